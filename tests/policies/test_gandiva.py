"""Gandiva by hand: first come, company, turns; trials, moves and deadlines."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, Stage, Story, play_scene, policy_of, scene_of, trace_of
from curved_physics import curved_physics
from dovetail.core.beliefs import Physics, SizedJob
from dovetail.core.job import JobTable
from dovetail.core.messages import Started, Stopped
from dovetail.core.view import show
from dovetail.mechanisms.sharing.candidates import utilisation
from dovetail.physics.linear import LinearSharing, LinearStructure, linear_physics
from dovetail.physics.sharing.interference import Injected, Interference
from tight_physics import tight_physics


def row(gpus: int, duration_s: float, submit_s: float = 0.0, **more: object) -> Row:
    return Row(gpus, duration_s, submit_s=submit_s, **{"shareable": True, **more})  # type: ignore[arg-type]


def alone(gpus: int, duration_s: float, submit_s: float = 0.0, **more: object) -> Row:
    return row(gpus, duration_s, submit_s, shareable=False, **more)


def run(
    rows: Sequence[Row],
    cluster: str = "1x1",
    *,
    policy: str = "gandiva",
    xi: float = 1.2,
    physics: Callable[[JobTable, Interference], Physics] = linear_physics,
    due_s: Sequence[float] = (),
    **more: object,
) -> Story:
    trace = trace_of(*rows)
    if due_s:
        trace = replace(trace, jobs=replace(trace.jobs, deadline_s=np.array(due_s)))
    truth = physics(trace.jobs, Injected(xi))
    return play_scene(scene_of(trace, cluster, truth=truth, **more), policy)  # type: ignore[arg-type]


def test_who_fits_starts_in_order_of_submission() -> None:
    # 2 GPUs: job 1 does not fit beside job 0, job 2 does; owners allow no company.
    story = run([alone(1, 30), alone(2, 30), alone(1, 30)], "1x2")
    assert [story.starts(j)[0][0] for j in (0, 2)] == [0, 0]
    assert story.starts(1)[0][0] == 30


def test_who_finds_no_gpu_joins_another() -> None:
    # At 10 s job 1 joins job 0: both at 1/1.2. It takes 72 s; job 0 has done 70 by then.
    story = run([row(1, 120), row(1, 60, 10)])
    assert story.finishes == pytest.approx([132, 82])


def test_a_pair_that_does_less_than_one_alone_is_parted_after_a_slice() -> None:
    # Ratio 2.5: together .8. Packed at 10 s, parted at 70: job 1 has done 24 s, job 0 34. At 130
    # it is job 1's turn, and not in company again; its 36 s end at 166. Job 0 has 26 s left.
    story = run([row(1, 120), row(1, 60, 10)], xi=2.5)
    assert story.stops(1) == [(70.0, "preempted")]
    assert story.stops(0) == [(130.0, "preempted")]
    assert story.finishes == pytest.approx([192, 166])


def test_a_pair_that_does_just_as_much_stays() -> None:
    story = run([row(1, 120), row(1, 60, 10)], xi=2.0)
    assert story.stops(0) == story.stops(1) == []


def test_jobs_that_cannot_share_take_turns() -> None:
    story = run([alone(1, 100), alone(1, 100)])
    assert story.stops(0) == [(60.0, "preempted")]
    assert story.stops(1) == [(120.0, "preempted")]
    assert story.finishes == [160, 200]


def test_the_slice_is_a_parameter() -> None:
    story = run([alone(1, 100), alone(1, 100)], policy="gandiva:slice=80")
    assert story.stops(0) == [(80.0, "preempted")]
    assert story.finishes == [180, 200]


def test_what_a_switch_takes_comes_on_top_of_the_slice() -> None:
    # A slice of 10 s and switches of 30: without that nobody would ever get on. Job 0 works from
    # 30 to 40 s, job 1 from 70 to 80; each needs two turns.
    rows = [alone(1, 20), alone(1, 20)]
    story = run(rows, policy="gandiva:slice=10", switching="per-start:30")
    assert story.stops(0) == [(40.0, "preempted")]
    assert story.finishes == [120, 160]


def test_a_wide_job_gets_its_turn_and_what_it_leaves_is_used() -> None:
    # 4 GPUs: jobs 0 to 3 of one GPU. Job 4 wants 3 from 5 s on: at 65 s the three submitted first
    # of those that have run as long make room; job 3 runs on.
    rows = [*(alone(1, 100) for _ in range(4)), alone(3, 30, 5)]
    story = run(rows, "1x4")
    assert story.starts(4) == [(65.0, "start")]
    assert [story.stops(j) for j in range(4)] == [[(65.0, "preempted")]] * 3 + [[]]
    assert story.finishes == [130, 130, 130, 100, 95]


def test_who_was_stopped_and_not_needed_stays() -> None:
    # Job 2 wants 2 of 4 GPUs; job 0 holds 1 and job 1 holds 3. Job 0 is stopped first, then job
    # 1; with that there is room for job 0 as well.
    rows = [alone(1, 200), alone(3, 200), alone(2, 30, 5)]
    story = run(rows, "1x4")
    assert story.stops(0) == []
    assert story.stops(1)[0] == (65.0, "preempted")
    assert story.finishes[2] == 95


def test_company_is_for_equals() -> None:
    # 2 GPUs, held by job 0. Job 1 wants one: no company, but a turn a slice later.
    story = run([row(2, 100), row(1, 30, 1)], "1x2")
    assert story.starts(1) == [(61.0, "start")]
    # Job 1 wants two: company at once, on the very same GPUs.
    story = run([row(2, 100), row(2, 30, 1)], "1x2")
    assert story.starts(1) == [(1.0, "start")]
    placed = [f.placement for f in story.facts if isinstance(f, Started)]
    assert placed[0] == placed[1]


def test_nobody_is_third_but_a_pair_gives_way_together() -> None:
    story = run([row(1, 100), row(1, 100), row(1, 30, 1)])
    assert story.starts(2) == [(60.0, "start")]
    assert story.stops(0) == story.stops(1) == [(60.0, "preempted")]


def test_whose_turn_it_is_may_have_company_at_once() -> None:
    # Jobs 0 and 1 share from 0 s, 2 and 3 wait from 1 s. At 60 s the pair gives way to job 2, and
    # job 3 joins it; at 120 s the first two are back.
    story = run([row(1, 100), row(1, 100), row(1, 100, 1), row(1, 100, 1)])
    assert [story.starts(j)[0] for j in (2, 3)] == [(60.0, "start")] * 2
    assert [story.starts(j)[1] for j in (0, 1)] == [(120.0, "resume")] * 2


class UtilisedSharing(LinearSharing):
    """Jobs beside their like: what they lose to one another says how much of a GPU they use."""

    ratio: ClassVar[dict[int, float]] = {0: 1.8, 1: 1.1, 2: 1.3}

    def interference(self, mine: SizedJob, other: SizedJob) -> tuple[float, float]:
        same = mine.job == other.job
        return (self.ratio[mine.job], self.ratio[other.job]) if same else (1.2, 1.2)


def utilised(jobs: JobTable, interference: Interference) -> Physics:
    """Returns the physics of jobs that are all of a kind of their own."""
    curved = curved_physics(jobs, [[1.0]] * len(jobs), interference_of=interference)
    return replace(curved, sharing=UtilisedSharing(LinearStructure(jobs), interference))


def test_the_least_utilised_host_is_asked_first() -> None:
    rows = [row(1, 100), row(1, 100), row(1, 100, 5)]
    trace = trace_of(*rows)
    view = Stage(rows, "gandiva", "1x2").view
    show(view, physics=utilised(trace.jobs, Injected(1.2)))
    assert [utilisation(view, j) for j in (0, 1)] == [0.9, 0.55]
    story = run(rows, "1x2", physics=utilised)
    placed = {f.job: f.placement for f in story.facts if isinstance(f, Started) and f.t < 6}
    assert placed[2] == placed[1] != placed[0]


def test_owners_memory_and_types_of_gpus_forbid_company() -> None:
    for rows in ([alone(1, 100), row(1, 9, 5)], [row(1, 100), alone(1, 9, 5)]):
        assert run(rows).starts(1) == [(65.0, "start")]
    rows = [row(1, 100), row(1, 9, 5)]
    assert run(rows, physics=tight_physics).starts(1) == [(65.0, "start")]
    rows = [row(1, 100, gpu_type="t4"), alone(1, 100), row(1, 9, 5, gpu_type="v100")]
    assert run(rows, "1x1:t4+1x1:v100").starts(2) == [(65.0, "start")]


def test_a_guest_moves_out_when_there_is_room_and_nobody_waits() -> None:
    # Job 2 joins job 0 at 10 s; job 1 ends at 20: job 2 moves. It has done 10/1.2 s of its 30.
    story = run([row(1, 100), alone(1, 20), row(1, 30, 10)], "1x2")
    assert story.starts(2) == [(10.0, "start"), (20.0, "move")]
    assert story.finishes == pytest.approx([20 + 100 - 10 - 10 / 1.2, 20, 20 + 30 - 10 / 1.2])


def test_a_job_that_is_spread_moves_together_when_there_is_room() -> None:
    rows = [alone(1, 10), alone(1, 50), alone(2, 40)]
    story = run(rows, "2x2", placing="prefer,most-free")
    assert story.starts(2) == [(0.0, "start"), (10.0, "move")]
    moved = [f.placement.spans for f in story.facts if isinstance(f, Started) and f.job == 2]
    assert moved == [((0, 1), (1, 1)), ((0, 2),)]
    story = run(rows, "2x2", placing="none,most-free")
    assert story.starts(2) == [(0.0, "start")]


def test_a_job_that_may_not_be_stopped_is_neither_stopped_nor_moved() -> None:
    rows = [alone(1, 10), alone(1, 50), alone(2, 40, preemptible=False)]
    assert run(rows, "2x2", placing="prefer,most-free").starts(2) == [(0.0, "start")]
    assert run([alone(1, 100, preemptible=False), alone(1, 9)]).finishes == [100, 109]


def test_least_slack_starts_first() -> None:
    rows = [alone(1, 100), alone(1, 100)]
    story = run(rows, policy="gandiva-deadline", due_s=[1000, 400])
    # Nobody gives way to a job of more slack.
    assert story.finishes == [200, 100]
    assert run(rows, due_s=[1000, 400]).finishes == [160, 200]


def test_a_job_of_less_slack_gets_its_turn_after_the_slice() -> None:
    rows = [alone(1, 200), alone(1, 50, 10)]
    assert run(rows, policy="gandiva-deadline", due_s=[1000, 150]).finishes == [250, 120]
    assert run(rows, policy="gandiva-deadline", due_s=[1000, 2000]).finishes == [200, 250]
    inf = float("inf")
    assert run(rows, policy="gandiva-deadline", due_s=[inf, inf]).finishes == [250, 120]


def test_a_slice_without_end_is_refused() -> None:
    for name in ("gandiva", "gandiva-deadline"):
        for text in ("0", "-1", "inf"):
            with pytest.raises(Exception, match="slice"):
                policy_of(f"{name}:slice={text}")


@settings(max_examples=25, deadline=None)
@given(
    jobs=st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 40), st.booleans()), min_size=1, max_size=14
    ),
    xi=st.sampled_from([1.0, 1.4, 2.5]),
    placing=st.sampled_from(["prefer", "strict", "none,most-free"]),
    policy=st.sampled_from(["gandiva", "gandiva-deadline"]),
)
def test_everybody_has_a_slice_and_company_of_equals(
    jobs: list[tuple[int, int, bool]], xi: float, placing: str, policy: str
) -> None:
    rows = [row(g, float(s), float(i), shareable=ok) for i, (g, s, ok) in enumerate(jobs)]
    due_s = [float(i + 3 * s) for i, (_, s, _) in enumerate(jobs)]
    story = run(rows, "2x2", policy=f"{policy}:slice=7", xi=xi, due_s=due_s, placing=placing)
    placed_s: dict[int, float] = {}
    for fact in story.facts:
        if isinstance(fact, Started):
            placed_s[fact.job] = fact.t
        elif isinstance(fact, Stopped):
            assert fact.t >= placed_s[fact.job] + 7 - 1e-9


def test_sizes_differ_only_if_asked() -> None:
    rows = [row(2, 100), row(1, 30, 1)]
    assert run(rows, "1x2").starts(1) == [(61.0, "start")]
    assert run(rows, "1x2", policy="gandiva:unequal=true").starts(1) == [(1.0, "start")]


def test_a_large_job_slowed_for_a_small_one_is_parted_by_gpus() -> None:
    # Ratio 1.5: 4 / 1.5 + 1 / 1.5 GPUs' worth of work, less than 4. Equals would do 4 / 3 of one.
    rows = [row(4, 300), row(1, 200, 1)]
    story = run(rows, "1x4", policy="gandiva:unequal=true", xi=1.5)
    assert story.stops(1)[0] == (61.0, "preempted")
    story = run(rows, "1x4", policy="gandiva:unequal=true", xi=1.25)
    assert story.stops(1) == []


def test_a_set_of_three_gives_way_together() -> None:
    # Job 3 wants all four GPUs and may not share. Slices end at 61 s, when the set of three has run
    # 59, and at 121.
    rows = [row(4, 300), row(2, 300, 1), row(2, 300, 2), alone(4, 50, 3)]
    story = run(rows, "1x4", policy="gandiva:unequal=true", xi=1.1)
    assert story.starts(3) == [(121.0, "start")]
    assert [story.stops(j)[0][0] for j in range(3)] == [121, 121, 121]
