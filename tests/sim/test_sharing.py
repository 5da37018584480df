"""The proof that the core carries sharing: pairs, interleave sets and elastic shares by hand.

A policy of a few lines writes each plan down; world, loop, physics and log are the real ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from builders import Row, Story, play_scene, scene_of, trace_of
from dovetail.core.beliefs import Physics
from dovetail.core.errors import IllegalPlan
from dovetail.core.messages import Retimed, Started
from dovetail.core.order import Order
from dovetail.core.placement import Interleave, Placement
from dovetail.core.policy import POWERS, Decision
from dovetail.core.trace import Trace
from dovetail.core.view import View
from dovetail.physics.linear import linear_physics
from dovetail.physics.sharing.interference import Injected
from dovetail.record.log import LogWriter, fact_of, read_log
from dovetail.record.metrics import gpu_seconds
from tight_physics import tight_physics

Script = Callable[[View], dict[int, Placement | None]]


@dataclass(frozen=True)
class Scripted:
    """Carries out what a script says at each decision; None takes a job off its GPUs."""

    script: Script
    powers: frozenset[str] = frozenset(POWERS)
    knows: ClassVar[frozenset[str]] = frozenset()
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[None] = None

    def decide(self, view: View, memory: object) -> Decision:
        draft = view.plan.draft()
        for job, where in self.script(view).items():
            if where is None:
                draft.remove(job)
            else:
                draft.place(job, where)
        return Decision(draft)


def on(gpu: int, node: int = 0, **more: object) -> Placement:
    """Returns one worker on one named GPU."""
    return Placement(((node, 1),), ((gpu,),), **more)  # type: ignore[arg-type]


def as_they_come(*where: Placement) -> Script:
    """Returns a script that puts each job, when it waits, where it is told to go."""
    return lambda view: {job: where[job] for job in view.waiting}


def play(
    rows: Sequence[Row],
    script: Script,
    cluster: str = "1x2",
    *,
    interference: float = 1.5,
    powers: frozenset[str] = frozenset(POWERS),
    physics: Callable[[Trace], Physics] | None = None,
    **options: object,
) -> Story:
    trace = trace_of(*rows)
    shared = Injected(interference)
    truth = physics(trace) if physics else linear_physics(trace.jobs, shared)
    scene = scene_of(trace, cluster, truth=truth, **options)  # type: ignore[arg-type]
    return play_scene(scene, Scripted(script, powers))  # type: ignore[arg-type]


def willing(gpus: int, duration_s: float, submit_s: float = 0.0, **more: object) -> Row:
    return Row(gpus, duration_s, submit_s, shareable=True, **more)  # type: ignore[arg-type]


def test_a_pair_slows_each_other_and_the_host_recovers_when_the_guest_is_gone() -> None:
    # One GPU. Host 0: 10 s. Guest 1 arrives at 4 s with 2 s of work: both run at 1/1.5 from 4 s.
    # The guest ends at 4 + 3 = 7. The host did 4 + 3/1.5 = 6 by then, and the last 4 alone: 11.
    rows = [willing(1, 10), willing(1, 2, 4)]
    story = play(rows, as_they_come(on(0), on(0)), "1x1")
    assert story.finishes == pytest.approx([11, 7])
    retimed = [f for f in story.facts if isinstance(f, Retimed)]
    assert [(f.t, f.job) for f in retimed] == [(4, 0), (pytest.approx(7), 0)]
    assert [f.rate for f in retimed] == [pytest.approx(1 / 1.5), 1.0]


def test_a_shared_gpu_is_held_once_and_efficiency_may_exceed_one() -> None:
    rows = [willing(1, 10), willing(1, 2, 4)]
    story = play(rows, as_they_come(on(0), on(0)), "1x1")
    assert story.tally.integrals["held"] == pytest.approx(11)
    # 2 s at 2/1.5 for 3 s, 1 otherwise: 12 solo seconds in 11 s.
    assert story.tally.integrals_efficiency == pytest.approx(12)
    assert gpu_seconds(story.tally)["slowdown"] == pytest.approx(-1)
    assert story.tally.service_gpu_s == pytest.approx([11, 3])


def test_the_host_ends_first_and_the_guest_goes_on_alone() -> None:
    # Host 2 s, guest 10 s from 0 s on: host ends at 3; guest did 2 of 10, ends at 11.
    story = play([willing(1, 2), willing(1, 10)], as_they_come(on(0), on(0)), "1x1")
    assert story.finishes == pytest.approx([3, 11])


def test_a_wide_host_is_slowed_by_a_guest_on_any_of_its_gpus() -> None:
    # Host on GPUs 0 and 1 of node 0 and 0 of node 1; guest on node 1. A gang goes at the pace
    # of its slowest worker. A bystander on GPU 1 of node 1 is not re-timed.
    host = Placement(((0, 2), (1, 1)), ((0, 1), (0,)))
    rows = [willing(3, 12), willing(1, 50), willing(1, 4, 3)]
    story = play(rows, as_they_come(host, on(1, 1), on(0, 1)), "2x2")
    # Guest from 3 to 9; host did 3 + 4 by 9, ends at 14.
    assert story.finishes == pytest.approx([14, 50, 9])
    assert {f.job for f in story.facts if isinstance(f, Retimed)} == {0}


def test_stopping_a_guest_gives_the_host_its_speed_back() -> None:
    def script(view: View) -> dict[int, Placement | None]:
        if view.now == 0:
            return {0: on(0), 1: on(0)}
        if view.changes.arrived:
            return {1: None, 2: Placement(((1, 2),))}
        return {1: on(0)} if 0 in view.changes.ended else {}

    rows = [willing(1, 10), willing(1, 10), Row(2, 1, 3)]
    story = play(
        rows,
        lambda v: {2: Placement(((1, 2),)), **script(v)} if v.now == 3 else script(v),
        "1x1+1x2",
    )
    # Together 0-3: 2 each. Host alone: 8 more, ends at 11. Guest resumes at 11 and needs 8.
    assert story.finishes == pytest.approx([11, 19, 4])
    assert story.stops(1) == [(3.0, "preempted")]


def test_moving_a_guest_slows_the_new_host_and_frees_the_old_one() -> None:
    def script(view: View) -> dict[int, Placement | None]:
        if view.now == 0:
            return {0: on(0), 1: on(1), 2: on(0)}
        if view.changes.arrived:
            return {2: on(1), 3: on(0, 1)}
        return {}

    rows = [willing(1, 9), willing(1, 9), willing(1, 6), Row(1, 1, 3)]
    story = play(rows, script, "1x2+1x1")
    # 0 and 2 share 0-3: 2 each. 0 alone from 3: 7 more, ends at 10. 2 shares with 1 from 3:
    # 4 left, 6 s, ends at 9. 1 did 3 + 4 by 9, ends at 11.
    assert story.finishes == pytest.approx([10, 11, 9, 4])
    assert story.starts(2) == [(0.0, "start"), (3.0, "move")]


def test_a_guest_that_switches_already_takes_its_place() -> None:
    # Starts cost 3 s: the guest makes no progress until 7, yet the host is slowed from 4 on.
    rows = [willing(1, 10), willing(1, 2, 4)]
    story = play(rows, as_they_come(on(0), on(0)), "1x1", switching="per-start:3")
    # Host works from 3; at 4 it has 1; slowed; guest works 7-10: host has 1 + 4 by 10, ends 15.
    assert story.finishes == pytest.approx([15, 10])


def test_a_host_retimed_while_it_switches_keeps_its_switch() -> None:
    rows = [willing(1, 6), willing(1, 2, 1)]
    story = play(rows, as_they_come(on(0), on(0)), "1x1", switching="per-start:3")
    # Host would work from 3, guest from 4 to 7 (2 s at 1/1.5). Host has 4/1.5 by 7, ends 10.33.
    assert story.finishes == pytest.approx([7 + 6 - 4 / 1.5, 7])


def test_a_lost_node_evicts_both_of_a_pair() -> None:
    rows = [willing(1, 10), willing(1, 10)]
    story = play(
        rows,
        lambda view: {j: on(0) for j in view.waiting if view.cluster.is_open(0)},
        "1x1",
        capacity=[(3.0, [(0, "down")]), (5.0, [(0, "up")])],
    )
    # 2 each by 3; again together from 5: 8 * 1.5 = 12 s.
    assert story.finishes == pytest.approx([17, 17])


def test_losing_one_node_of_a_wide_guest_gives_the_host_its_speed_back() -> None:
    # Guest on node 0 (with host) and node 1; node 1 goes down at 3.
    wide = Placement(((0, 1), (1, 1)), ((0,), (0,)))
    rows = [willing(1, 10), willing(2, 10)]

    def script(view: View) -> dict[int, Placement | None]:
        where = {0: on(0), 1: wide}
        return {j: where[j] for j in view.waiting if view.cluster.is_open(1)}

    story = play(rows, script, "2x1", capacity=[(3.0, [(1, "down")]), (20.0, [(1, "up")])])
    # Host: 2 by 3, alone to 11. Guest: 2 by 3, alone from 20: 28.
    assert story.finishes == pytest.approx([11, 28])


def test_a_pair_reads_back_from_the_log(tmp_path: Path) -> None:
    rows = [willing(1, 10), willing(1, 2, 4)]
    guest = on(0, accumulation_steps=4, fractions=(0.5,), samples=(8,))
    story = play(rows, as_they_come(on(0), guest), "1x1")
    scene = story.scene
    path = tmp_path / "log"
    with path.open("w", encoding="utf-8") as file:
        writer = LogWriter(file, scene.trace, scene.truth, {})
        for batch in story.batches:
            writer.record(batch)
        writer.close()
    facts = [fact_of(record, {"0": 0, "1": 1}) for record in read_log(path)[1]]
    assert facts == story.facts
    started = [f for f in facts if isinstance(f, Started) and f.job == 1]
    assert started[0].placement == guest


def seat(phase: int, set_id: int = 3) -> Placement:
    return on(0, interleave=Interleave(set_id, phase))


def test_an_interleave_set_runs_at_its_cycle() -> None:
    # Jobs whose stages are not known take turns on the GPU: three at a third of their speed until
    # the first has its 6 s at 18; then two at half, with 12 - 6 = 6 s left.
    rows = [willing(1, 6), willing(1, 12), willing(1, 12)]
    story = play(rows, as_they_come(seat(0), seat(1), seat(2)), "1x1")
    assert story.finishes == pytest.approx([18, 30, 30])
    assert story.tally.integrals["held"] == pytest.approx(30)


def test_the_last_of_an_interleave_set_runs_alone() -> None:
    rows = [willing(1, 6), willing(1, 12)]
    story = play(rows, as_they_come(seat(0), seat(1)), "1x1")
    # At 12 the other has 6 left and the GPU to itself.
    assert story.finishes == pytest.approx([12, 18])
    assert [f.rate for f in story.facts if isinstance(f, Retimed)] == [1.0]


def test_a_set_can_be_taken_apart_and_put_together_anew() -> None:
    def script(view: View) -> dict[int, Placement | None]:
        if view.now == 0:
            return {0: seat(0), 1: seat(1)}
        if view.changes.arrived:
            return {1: on(1), 2: seat(1)}
        return {}

    rows = [willing(1, 12), willing(1, 12), willing(1, 5, 6)]
    story = play(rows, script, "1x2")
    # 0 and 1 at half speed until 6: 3 each. 1 alone from 6: 15. 0 and 2 from 6: 2 ends at 16;
    # 0 has 8 by then and ends at 20.
    assert story.finishes == pytest.approx([20, 15, 16])


@pytest.mark.parametrize(
    ("rows", "where", "without", "words"),
    [
        ([willing(1, 1)] * 2, (on(0), on(0)), "share", "shared without the power"),
        ([willing(1, 1), Row(1, 1)], (on(0), on(0)), "", "job 1 does not allow sharing"),
        ([willing(1, 1)] * 3, (on(0), on(0), on(0)), "", "would hold 3 jobs, 2 at most"),
        ([willing(1, 1)] * 2, (seat(0), seat(1)), "interleave", "interleaved without the power"),
        ([willing(1, 1)] * 2, (seat(0), seat(0)), "", "one set and distinct phases"),
        ([willing(1, 1)] * 2, (seat(0), seat(1, 4)), "", "one set and distinct phases"),
        ([willing(1, 1)], (on(0, fractions=(0.5,)),), "restrict", "restricted without the power"),
        (
            [willing(2, 1, batch_size=8)],
            (Placement(((0, 2),), samples=(4, 5)),),
            "",
            "samples sum to 9, batch is 8",
        ),
        (
            [Row(1, 1, elastic=True, min_gpus=1, max_gpus=2)],
            (Placement(((0, 2),)),),
            "resize",
            "asked for 1 GPUs and got 2",
        ),
        (
            [Row(2, 1, elastic=True, min_gpus=2, max_gpus=2)],
            (Placement(((0, 1),)),),
            "",
            "takes 2 to 2 GPUs, not 1",
        ),
    ],
)
def test_a_word_used_wrongly_is_refused_by_the_world(
    rows: list[Row], where: tuple[Placement, ...], without: str, words: str
) -> None:
    with pytest.raises(IllegalPlan, match=words):
        play(rows, as_they_come(*where), "1x4", powers=frozenset(POWERS) - {without})


def test_a_pair_that_does_not_fit_the_memory_is_refused() -> None:
    with pytest.raises(IllegalPlan, match=r"jobs \[0, 1\] do not fit its memory together"):
        play(
            [willing(1, 1), willing(1, 1)],
            as_they_come(on(0), on(0)),
            physics=lambda trace: tight_physics(trace.jobs),
        )


def test_shares_of_an_elastic_job_change_its_speed_and_not_its_work() -> None:
    def script(view: View) -> dict[int, Placement | None]:
        if view.now == 0:
            return {0: Placement(((0, 4),))}
        if view.changes.arrived:
            return {0: Placement(((0, 1),)), 1: Placement(((0, 3),))}
        return {0: Placement(((0, 2), (1, 2)))} if 0 in view.running else {}

    rows = [Row(2, 10, elastic=True, min_gpus=1, max_gpus=4), Row(3, 4, 2)]
    story = play(rows, script, "2x4", switching="per-resize:1")
    # 4 GPUs at speed 2: 4 by 2 s. 1 GPU at 0.5 from 3 s to 6 s: 1.5. From 6 s on 2+2 GPUs at
    # speed 2, working from 7 s: 4.5 left, ends at 9.25.
    assert story.finishes == pytest.approx([9.25, 6])
    assert story.starts(0) == [(0.0, "start"), (2.0, "resize"), (6.0, "resize")]
    assert story.tally.resizes == [2, 0]


def test_per_worker_fractions_and_samples_are_kept_in_rank_order() -> None:
    split = Placement(
        ((1, 1), (0, 2)), ((0,), (1, 0)), fractions=(1.0, 0.5, 0.25), samples=(5, 2, 1)
    )
    story = play([willing(3, 4, batch_size=8)], as_they_come(split), "2x2")
    started = [f for f in story.facts if isinstance(f, Started)]
    assert started[0].placement == split
    assert list(started[0].placement.named()) == [(1, 0), (0, 1), (0, 0)]
