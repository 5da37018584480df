"""What the world does by itself: switching, limits, cancellations, capacity, instants."""

import pytest

from builders import Row, play
from dovetail.core.errors import InputError
from dovetail.core.messages import Ended, NodeChanged, Started, Stopped, Submitted, Woke


def test_a_first_start_is_free_and_a_resumption_costs_thirty_seconds() -> None:
    # 1 GPU. Job 0 is stopped at 10 s by a 5 s job (no cost), resumes at 15 s, works from 45 s.
    rows = [Row(1, 100), Row(1, 5, submit_s=10)]
    story = play(rows, "srtf", "1x1", switching="restart:30")
    assert story.finishes == [135, 15]
    started = [f for f in story.facts if isinstance(f, Started) and f.job == 0]
    assert [(f.t, f.from_s) for f in started] == [(0, 0), (15, 45)]


def test_a_job_stopped_while_it_switches_has_made_no_progress() -> None:
    # Job 0 resumes at 15 s, is stopped at 20 s inside its restart, resumes at 25 s for good.
    rows = [Row(1, 100), Row(1, 5, submit_s=10), Row(1, 5, submit_s=20)]
    story = play(rows, "srtf", "1x1", switching="restart:30")
    assert story.finishes == [25 + 30 + 90, 15, 25]
    stopped = [f.done_s for f in story.facts if isinstance(f, Stopped)]
    assert stopped == [10, 10]


def test_every_start_can_cost() -> None:
    story = play([Row(1, 10), Row(1, 10)], "fifo", "1x1", switching="per-start:5")
    assert story.finishes == [15, 30]


def test_a_resize_costs_its_own() -> None:
    elastic = {"elastic": True, "min_gpus": 1, "max_gpus": 2}
    rows = [Row(1, 20, **elastic), Row(1, 5, submit_s=5, **elastic)]  # type: ignore[arg-type]
    # Job 0 on 2 GPUs does 10 by 5 s; shrinks to 1 and works from 8 s; job 1 ends at 10 s; job 0
    # has done 12 and grows: 8 left at speed 2 from 13 s.
    story = play(rows, "max-min", "1x2", switching="per-resize:3")
    assert story.finishes == [17, 10]


def test_a_job_over_its_time_limit_is_ended_by_the_clock() -> None:
    story = play([Row(1, 10, time_limit_s=4), Row(1, 3)], "fifo", "1x1")
    assert story.finishes == [4, 7]
    assert story.how == ["timeout", "completed"]


def test_a_job_that_ends_exactly_at_its_limit_completes() -> None:
    assert play([Row(1, 4, time_limit_s=4)], "fifo", "1x1").how == ["completed"]


def test_a_time_limit_counts_running_time_over_all_stays_and_not_waiting() -> None:
    # Runs 0-2, waits 2-5, runs on to 5 s of running time at 8 s.
    rows = [Row(1, 10, time_limit_s=5), Row(1, 3, submit_s=2)]
    story = play(rows, "srtf", "1x1")
    assert story.finishes == [8, 5]
    assert story.how == ["timeout", "completed"]


def test_a_time_limit_is_not_charged_for_switching() -> None:
    rows = [Row(1, 10, time_limit_s=12), Row(1, 3, submit_s=2)]
    story = play(rows, "srtf", "1x1", switching="restart:4")
    # Runs 0-2, resumes at 5, works 9-17: ten seconds of running, fourteen on its GPU.
    assert story.finishes == [17, 5]
    assert story.how == ["completed", "completed"]


def test_cancelled_jobs_are_work_unless_the_clock_decides() -> None:
    rows = [Row(1, 10), Row(1, 4, end="cancelled"), Row(1, 2, submit_s=1)]
    story = play(rows, "fifo", "1x1")
    assert story.finishes == [10, 14, 16]
    assert story.how == ["completed", "cancelled", "completed"]


def test_a_job_cancelled_by_the_clock_leaves_the_queue_at_its_moment() -> None:
    rows = [Row(1, 10), Row(1, 4, end="cancelled"), Row(1, 2, submit_s=1)]
    story = play(rows, "fifo", "1x1", cancelled_by_clock=True)
    assert story.finishes == [10, 4, 12]
    assert story.starts(1) == []


def test_a_job_cancelled_by_the_clock_while_it_runs_frees_its_gpu() -> None:
    rows = [Row(1, 2), Row(1, 5, end="cancelled"), Row(1, 2, submit_s=1)]
    story = play(rows, "fifo", "1x1", cancelled_by_clock=True)
    # Runs from 2 to 5, the moment the owner gave up.
    assert story.finishes == [2, 5, 7]
    assert story.how == ["completed", "cancelled", "completed"]


def test_a_stopped_job_can_still_be_cancelled_by_the_clock() -> None:
    rows = [Row(1, 9, end="cancelled"), Row(1, 8, submit_s=0.5), Row(1, 3, submit_s=2)]
    story = play(rows, "srtf", "1x1", cancelled_by_clock=True)
    # At 0.5 s job 1 (8 s) takes over from job 0 (8.5 left); job 2 runs 2-5; job 0 quits at 9.
    assert story.finishes == [9, 11.5, 5]


def test_failed_jobs_are_work_up_to_the_failure() -> None:
    story = play([Row(1, 3, end="failed"), Row(1, 1)], "fifo", "1x1")
    assert story.finishes == [3, 4]
    assert story.how == ["failed", "completed"]


def test_a_lost_node_evicts_its_jobs_which_keep_their_progress() -> None:
    # Node 0 is down from 4 s to 6 s. Job 0 (2 GPUs of node 0) has 6 s left and resumes at 6 s.
    rows = [Row(2, 10), Row(2, 10)]
    story = play(rows, "fifo", "2x2", capacity=[(4.0, [(0, "down")]), (6.0, [(0, "up")])])
    assert story.stops(0) == [(4.0, "node down")]
    assert story.starts(0) == [(0.0, "start"), (6.0, "resume")]
    assert story.finishes == [12, 10]


def test_a_gang_over_two_nodes_is_evicted_whole() -> None:
    rows = [Row(4, 10)]
    story = play(rows, "fifo", "2x2", capacity=[(4.0, [(1, "down")]), (5.0, [(1, "up")])])
    assert story.finishes == [11]
    assert story.stops(0) == [(4.0, "node down")]


def test_a_draining_node_lets_its_job_end_and_takes_no_other() -> None:
    rows = [Row(2, 10), Row(2, 10), Row(2, 1, submit_s=5)]
    capacity = [(4.0, [(0, "draining")]), (30.0, [(0, "up")])]
    story = play(rows, "fifo", "2x2", capacity=capacity)
    # Job 1 ends at 10 too; job 2 goes to node 1.
    assert story.finishes == [10, 10, 11]
    placed = [f.placement.spans for f in story.facts if isinstance(f, Started) and f.job == 2]
    assert placed == [((1, 2),)]


def test_a_node_that_blinks_within_an_instant_evicts_nobody() -> None:
    story = play([Row(2, 10)], "fifo", "1x2", capacity=[(4.0, [(0, "down"), (0, "up")])])
    assert story.finishes == [10]


@pytest.mark.parametrize(
    "policy", ["fifo", "sjf", "srtf", "srsf", "tiresias", "gittins", "backfill"]
)
def test_capacity_that_never_returns_ends_in_a_clear_error(policy: str) -> None:
    with pytest.raises(InputError, match="it leaves 0 GPUs from 4 s on"):
        play([Row(2, 10)], policy, "1x2", capacity=[(4.0, [(0, "down")])])


def test_capacity_that_changes_after_the_last_job_says_nothing_about_the_run() -> None:
    # The run is over at 10 s: averages are from the first submission to the last finish.
    capacity = [(1000.0, [(0, "down")]), (2000.0, [(0, "up")])]
    story = play([Row(2, 10)], "fifo", "1x2", capacity=capacity)
    assert story.tally.integrals["capacity"] == 20
    assert story.tally.integrals["held"] == 20


def test_capacity_that_changed_before_the_first_job_is_in_force_and_not_counted() -> None:
    rows = [Row(2, 10, submit_s=100)]
    story = play(rows, "fifo", "2x2", capacity=[(1.0, [(0, "down")])])
    assert story.finishes == [110]
    assert story.tally.integrals["capacity"] == 20
    assert story.tally.integrals["down"] == 20


def test_one_instant_has_its_order() -> None:
    # At 4 s: job 0 ends, the policy's timer rings (job 2 falls), node 1 drains, job 3 arrives;
    # then one pass.
    rows = [Row(1, 4), Row(1, 8), Row(2, 9), Row(1, 1, submit_s=4)]
    story = play(
        rows, "tiresias:thresholds=4", "2x2", capacity=[(4.0, [(1, "draining")])], placing="none"
    )
    at_4 = [type(f) for f in story.facts if f.t == 4.0]
    order = [Ended, Woke, NodeChanged, Submitted]
    ranks = [order.index(kind) for kind in at_4 if kind in order]
    assert ranks == sorted(ranks)
    assert set(order) <= set(at_4)
    later = [kind for kind in at_4 if kind not in order]
    assert at_4[-len(later) :] == later, "the pass comes last"


def test_completions_of_one_instant_come_in_order_of_job() -> None:
    rows = [Row(1, 4), Row(1, 4), Row(1, 4)]
    assert play(rows, "fifo", "1x3").ended() == [0, 1, 2]


def test_a_completion_and_an_arrival_at_once_are_one_pass() -> None:
    # The shorter newcomer wins the GPU that frees up at the same instant.
    rows = [Row(1, 4), Row(1, 9, submit_s=1), Row(1, 1, submit_s=4)]
    story = play(rows, "sjf", "1x1")
    assert story.finishes == [4, 14, 5]


def test_events_close_in_time_are_handed_over_together() -> None:
    # With 2 s of coalescing, arrivals at 0, 1 and 2 s make one instant at 2 s: shortest first.
    rows = [Row(1, 9), Row(1, 5, submit_s=1), Row(1, 1, submit_s=2)]
    story = play(rows, "sjf", "1x1", coalesce_s=2.0)
    assert [f.t for f in story.of(Submitted)] == [2, 2, 2]
    assert story.finishes == [17, 8, 3]


def test_coalescing_waits_for_a_last_event_and_never_longer() -> None:
    # A lone event is handled at its own time, not at the end of the window.
    assert play([Row(1, 9)], "fifo", "1x1", coalesce_s=5.0).finishes == [9]


def test_a_job_longer_than_the_clock_can_resolve_still_ends() -> None:
    rows = [Row(1, 1e-7, submit_s=1.7e9), Row(1, 1.0, submit_s=1.7e9)]
    story = play(rows, "fifo", "1x1")
    assert story.ended() == [0, 1]
