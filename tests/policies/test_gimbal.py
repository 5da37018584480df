"""GIMBAL as a policy around a policy: searches, what they leave behind, and who is held back."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import dovetail.policies  # registers the policies
from builders import Row, Story, play_scene, policy_of, scene_of, trace_of
from dovetail.core.beliefs import Neighbour, Physics
from dovetail.core.errors import InputError
from dovetail.core.job import JobTable
from dovetail.core.messages import LIMIT, Started
from dovetail.core.placement import Placement
from dovetail.core.policy import parse_policy, registered, spell
from dovetail.core.units import HOUR_S
from dovetail.physics.linear import LinearBatches, LinearSharing, LinearStructure, linear_physics
from dovetail.physics.sharing.interference import Injected

assert dovetail.policies
ROOT = Path(__file__).resolve().parents[2]
EAGER = "lucid:score-limit=4;unequal=true;load=0"


class PairSharing(LinearSharing):
    """Section 4.1: beside job 1 job 0 needs 10 h in place of 5; job 1 is not slowed by it.

    Squeezed, job 1 needs 7 h at a limit of a half, and job 0 is then not slowed any more.
    """

    def utilization(self, job: int) -> float:
        return 0.1 if job == 0 else 1.0

    def slowdown(self, job: int, placement: Placement, neighbours: Sequence[Neighbour]) -> float:
        return 1.0 / self._speed(job, placement, neighbours)

    def _speed(self, job: int, placement: Placement, neighbours: Sequence[Neighbour]) -> float:
        def limit(p: Placement) -> float:
            return min(p.fractions or (1.0,))

        if job == 0:
            squeezed = min((1 - limit(p)) / 0.5 for _, p in neighbours) if neighbours else 1.0
            return 0.5 + 0.5 * min(1.0, squeezed)
        squeezed = min(1.0, (1 - limit(placement)) / 0.5)
        return (1 - 2 / 7 * squeezed) * min(1.0, limit(placement) / 0.5)


def paper_pair(jobs: JobTable) -> Physics:
    return replace(linear_physics(jobs), sharing=PairSharing(LinearStructure(jobs), Injected()))


def row(gpus: int, duration_s: float, submit_s: float = 0.0, **more: object) -> Row:
    return Row(gpus, duration_s, submit_s=submit_s, **{"shareable": True, **more})  # type: ignore[arg-type]


def pair(policy: str, switching: str = "none") -> Story:
    trace = trace_of(row(1, 5 * HOUR_S), row(1, 5 * HOUR_S))
    scene = scene_of(trace, "1x1", truth=paper_pair(trace.jobs), switching=switching)
    return play_scene(scene, policy)


def limits_of(story: Story, job: int) -> list[tuple[float, ...]]:
    return [
        f.placement.fractions for f in story.of(Started) if isinstance(f, Started) and f.job == job
    ]


def test_the_example_of_section_4_1_is_found() -> None:
    # At the speeds of free competition 10 h and 5 h, a mean of 7.5; at a half 5 h and 7 h: 6.
    story = pair(f"gimbal:inner={EAGER}")
    assert limits_of(story, 0) == [()]
    tried = [f[0] if f else 1.0 for f in limits_of(story, 1)]
    assert tried[:9] == pytest.approx([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2])
    # Three settings without gain, then the best one again, then whole for who is left alone.
    assert tried[9:] == pytest.approx([0.5, 1.0])
    rates = {
        f.job: f.rate
        for f in story.of(Started)
        if isinstance(f, Started) and f.placement.fractions[:1] == (0.5,)
    }
    assert 5 * HOUR_S / rates[1] == pytest.approx(7 * HOUR_S)


def test_who_is_left_runs_on_alone_so_the_example_gains_less_through_the_world() -> None:
    # Free: job 1 ends at 5 h, job 0 has half of its work left: 7.5 h; a mean of 6.25.
    free = pair(EAGER.replace(";", ","))
    assert free.finishes == pytest.approx([7.5 * HOUR_S, 5 * HOUR_S])
    # At a half from the start on: 5 h, and 2/7 of 5 h more: 6.43 h; a mean of 5.71. The search
    # takes a few minutes of it.
    calibrated = pair(f"gimbal:inner={EAGER}", switching="limit:3.6")
    assert sum(calibrated.finishes) / 2 < 5.76 * HOUR_S
    assert sum(calibrated.finishes) / 2 > 5.71 * HOUR_S


def test_every_change_of_limits_costs_a_switch() -> None:
    story = pair(f"gimbal:inner={EAGER}", switching="limit:3.6")
    switches = [f for f in story.of(Started) if isinstance(f, Started) and f.how == LIMIT]
    # Eight settings, the best again, and whole again at the end of the other.
    assert len(switches) == 10
    assert all(f.from_s == pytest.approx(f.t + 3.6) for f in switches)


def test_limits_need_not_be_used() -> None:
    assert limits_of(pair(f"gimbal:inner={EAGER},lgrr=false"), 1) == [()]


def test_without_early_exit_every_limit_is_tried() -> None:
    tried = limits_of(pair(f"gimbal:inner={EAGER},early-exit=false"), 1)
    assert sorted({f[0] for f in tried if f}) == pytest.approx([k / 10 for k in range(1, 10)])
    assert tried[-2][0] == 0.5


def test_a_newcomer_begins_the_search_anew() -> None:
    # Jobs 0 and 1 are calibrated; job 2 comes into the set at 2 h, and all are whole again.
    trace = trace_of(row(2, 5 * HOUR_S), row(1, 5 * HOUR_S), row(1, 5 * HOUR_S, 2 * HOUR_S))
    story = play_scene(
        scene_of(trace, "1x2", truth=paper_pair(trace.jobs)), f"gimbal:inner={EAGER}"
    )
    changes = [f for f in story.of(Started) if isinstance(f, Started) and f.job == 1]
    assert [f.placement.fractions for f in changes if f.t == 2 * HOUR_S] == [()]
    assert any(f.placement.fractions for f in changes if f.t > 2 * HOUR_S)


class StridingBatches(LinearBatches):
    """A wide job has 16 samples; beside another each takes a worker three times as long."""

    def samples(self, job: int) -> int:
        return 16 if int(self._jobs.gpus[job]) == 4 else 0


def test_samples_move_to_the_workers_that_are_alone() -> None:
    trace = trace_of(row(4, 600), row(1, 600, 1))
    law = Injected(3.0)
    truth = replace(linear_physics(trace.jobs, law), batches=StridingBatches(trace.jobs, law))
    story = play_scene(scene_of(trace, "1x4", truth=truth), f"gimbal:inner={EAGER},lgrr=false")
    split = [
        f.placement.samples for f in story.of(Started) if isinstance(f, Started) and f.job == 0
    ]
    assert split[0] == ()
    tried = [s for s in split if s]
    assert tried and all(sum(s) == 16 for s in tried)
    assert min(tried[0]) < 4 < max(tried[0])


def test_what_is_no_star_is_executed_one_after_another() -> None:
    # Job 2 shares a GPU of job 0, job 3 gets the one that job 1 leaves. Job 4 would lie over the
    # other GPU of job 0, which is as large, and over job 3: it waits for the end of job 3.
    rows = [row(2, 300), row(1, 10, shareable=False), row(1, 80, 1), row(1, 90, 11), row(2, 40, 12)]
    trace = trace_of(*rows)
    truth = linear_physics(trace.jobs, Injected(1.1))
    free = play_scene(scene_of(trace, "1x3", truth=truth), "sjf-bsbf")
    held = play_scene(scene_of(trace, "1x3", truth=truth), "gimbal:inner=sjf-bsbf")
    assert free.starts(4)[0][0] == 12
    assert held.starts(4)[0][0] == held.finishes[3] > 80


def test_the_inner_policy_is_asked_when_it_would_be_and_at_no_other_moment() -> None:
    asked: list[float] = []
    inner = parse_policy("lucid:score-limit=4,load=0")

    class Heard:
        name = "heard"
        knows, powers, order, initial = inner.knows, inner.powers, inner.order, inner.initial

        def decide(self, view, memory):  # type: ignore[no-untyped-def]
            asked.append(view.now)
            return inner.decide(view, memory)

    policy = replace(parse_policy("gimbal"), inner=Heard())  # type: ignore[type-var]
    trace = trace_of(row(1, 5 * HOUR_S), row(1, 5 * HOUR_S))
    story = play_scene(scene_of(trace, "1x1", truth=paper_pair(trace.jobs)), policy)
    assert asked == [0.0, min(story.finishes), max(story.finishes)]


def test_a_fourth_goal_of_an_operators_own_runs() -> None:
    story = pair(f"gimbal:inner={EAGER},goal={ROOT}/examples/even_slowdown.py:EvenSlowdown")
    tried = [f[0] for f in limits_of(story, 1) if f]
    # Slowdowns 2 and 1 at first; .7 and 5/6 at a limit of .8, .8 and .83 at .7, .9 and .77 at .6.
    assert tried[-1] == pytest.approx(0.7)


def test_it_knows_and_may_what_its_inner_does_and_more() -> None:
    policy = policy_of("gimbal:inner=gavel")
    assert policy.powers == {"preempt", "migrate", "share", "restrict"}
    assert policy.knows == {"length", "interference", "memory"}
    assert "attained service" not in policy.knows


def test_it_wraps_only_who_shares() -> None:
    with pytest.raises(InputError, match="'srtf' never does"):
        parse_policy("gimbal:inner=srtf")
    with pytest.raises(InputError, match="inner is another policy"):
        parse_policy("gimbal:inner=gimbal")
    with pytest.raises(InputError, match="no such goal"):
        parse_policy("gimbal:goal=soon")


@pytest.mark.parametrize("goal", ["jct", f"{ROOT}/examples/even_slowdown.py:EvenSlowdown"])
def test_it_reads_back_with_its_goal(goal: str) -> None:
    policy = parse_policy(f"gimbal:inner={EAGER},goal={goal},liss=false")
    assert parse_policy(spell(policy)) == policy
    assert "gimbal" in registered()
