"""Limits and samples in the simulated world: what a squeeze costs, whom it helps, what is told."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from builders import Row, Story, play_scene, scene_of, trace_of
from dovetail.core.cluster import Cluster
from dovetail.core.messages import ADJUST, LIMIT, Retimed, Started
from dovetail.core.order import Order
from dovetail.core.placement import Placement
from dovetail.core.policy import POWERS, Decision, parse_policy
from dovetail.core.view import View
from dovetail.physics.linear import linear_physics
from dovetail.physics.sharing.contention import shipped_contention
from dovetail.physics.sharing.interference import Injected
from dovetail.physics.sharing.limits import shared_slowdown
from dovetail.replaying.decisions import read_recording, replay
from dovetail.study.options import Options
from dovetail.study.run import simulate

BUSY = shipped_contention().median_utilization
FREE = 1 / 1.5
SQUEEZED = 1 / shared_slowdown(BUSY, 0.4, BUSY, 1.0, 1.5)
RELIEVED = 1 / shared_slowdown(BUSY, 1.0, BUSY, 0.4, 1.5)


@dataclass(frozen=True)
class Calibrator:
    """Packs jobs on the first GPUs of node 0; at `at_s` gives job `who` a limit, or samples.

    At twice that time it takes both back.
    """

    at_s: float = 4.0
    who: int = 1
    limit: float = 0.0
    first_samples: int = 0
    knows: ClassVar[frozenset[str]] = frozenset()
    powers: ClassVar[frozenset[str]] = frozenset(POWERS)
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[None] = None

    def decide(self, view: View, memory: object) -> Decision:
        draft = view.plan.draft()
        for job in list(view.waiting):
            gpus = int(view.jobs.gpus[job])
            draft.place(job, Placement(((0, gpus),), (tuple(range(gpus)),)))
        held = draft.placed.get(self.who)
        if held is not None and view.now in (self.at_s, 2 * self.at_s):
            begins = view.now == self.at_s
            if self.limit:
                held = replace(held, fractions=(self.limit,) * held.gpus if begins else ())
            if self.first_samples:
                others = int(view.jobs.batch_size[self.who]) - self.first_samples
                held = replace(held, samples=(self.first_samples, others) if begins else ())
            draft.place(self.who, held)
        due = [t for t in (self.at_s, 2 * self.at_s) if t > view.now]
        return Decision(draft, wake_at=min(due, default=float("inf")))


def play(rows: list[Row], policy: Calibrator, switching: str = "limit") -> Story:
    trace = trace_of(*rows)
    truth = linear_physics(trace.jobs, Injected(1.5))
    scene = scene_of(trace, "1x2", truth=truth, switching=switching)
    return play_scene(scene, policy)


PAIR = [Row(1, 40, shareable=True), Row(1, 40, shareable=True)]


def test_a_squeeze_stops_the_squeezed_for_its_switch_and_speeds_the_neighbour_up_at_once() -> None:
    story = play(PAIR, Calibrator(limit=0.4, at_s=10.0))
    assert SQUEEZED < FREE < RELIEVED < 1
    assert story.starts(1) == [(0.0, "start"), (10.0, LIMIT), (20.0, LIMIT)]
    assert story.starts(0) == [(0.0, "start")], "the neighbour is not switched"
    orders = [f for f in story.facts if isinstance(f, Started) and f.job == 1]
    assert [f.from_s for f in orders] == pytest.approx([0.0, 13.6, 23.6])
    assert [f.rate for f in orders] == pytest.approx([FREE, SQUEEZED, FREE])
    retimed = [(f.t, f.rate) for f in story.facts if isinstance(f, Retimed) and f.job == 0]
    assert retimed[:2] == [(10.0, pytest.approx(RELIEVED)), (20.0, pytest.approx(FREE))]
    # Job 0: 10 s free, 10 s relieved, the rest free. Job 1: twice 3.6 s without progress.
    first = 20 + (40 - 10 * FREE - 10 * RELIEVED) / FREE
    done = (10 + first - 23.6) * FREE + 6.4 * SQUEEZED
    assert story.finishes == pytest.approx([first, first + 40 - done])


def test_without_switching_costs_a_squeeze_costs_its_speed_alone() -> None:
    story = play(PAIR, Calibrator(limit=0.4, at_s=10.0), "none")
    orders = [f for f in story.facts if isinstance(f, Started) and f.job == 1]
    assert [f.from_s for f in orders] == [0.0, 10.0, 20.0]


def test_gpus_made_ready_beforehand_do_not_make_another_limit_free() -> None:
    rows = [Row(1, 40, shareable=True, elastic=True), Row(1, 40, shareable=True, elastic=True)]
    story = play(rows, Calibrator(limit=0.4, at_s=10.0), "prepared:10")
    orders = [f for f in story.facts if isinstance(f, Started) and f.job == 1]
    assert [(f.how, f.from_s) for f in orders] == [("start", 0), (LIMIT, 13.6), (LIMIT, 23.6)]


def test_other_samples_are_free_and_work_at_once() -> None:
    story = play([Row(2, 40, batch_size=8)], Calibrator(who=0, first_samples=5, at_s=10.0))
    orders = [f for f in story.facts if isinstance(f, Started)]
    assert [(f.how, f.from_s) for f in orders] == [("start", 0), (ADJUST, 10), (ADJUST, 20)]
    assert [f.rate for f in orders] == pytest.approx([1.0, 4 / 5, 1.0])
    assert story.finishes == pytest.approx([10 + 10 + (40 - 10 - 8)])


def test_samples_that_follow_the_limits_undo_the_straggling() -> None:
    """A worker at half its speed with half the samples of the other: both are done together."""
    trace = trace_of(Row(2, 40, batch_size=9))
    physics = linear_physics(trace.jobs)
    straggling = Placement(((0, 2),), ((0, 1),), fractions=(1.0, BUSY / 2))
    assert physics.rate(0, straggling, ()) == pytest.approx(0.5)
    assert physics.rate(0, replace(straggling, samples=(6, 3)), ()) == pytest.approx(4.5 / 6)


@pytest.mark.parametrize("change", ["limit=0.4", "first-samples=5"])
def test_a_log_of_calibrations_is_replayed_without_a_difference(
    tmp_path: Path, change: str
) -> None:
    rows = [Row(2, 40, batch_size=8, shareable=True), Row(2, 30, batch_size=8, shareable=True)]
    options = Options(Cluster.uniform(1, 2), interference=1.5)
    log = tmp_path / "log"
    policy = f"{__file__}:Calibrator:who=0,{change}"
    result = simulate(trace_of(*rows), parse_policy(policy), options, log_to=log)
    again = replay(log, policy)
    assert again.differences == ()
    assert again.decisions == result.summary["decisions"]
    told = log.read_text()
    kept = '"fractions":[0.4, 0.4]' if "limit" in change else '"samples":[5, 3]'
    assert told.count(kept) == 1
    assert read_recording(log).tally().finish_s == result.jobs["finish_s"].to_list()
    other = replay(log, policy.replace("=0.4", "=0.5").replace("=5", "=6")).differences
    assert {d.job for d in other} == {0}
