"""EASY backfill by hand: the head's reservation holds, and others slip past it only for free."""

from dataclasses import replace

import numpy as np
import pytest

from builders import Row, play, play_scene, scene_of, trace_of
from dovetail.core.errors import InputError
from dovetail.forecast.forecasts import Known

PLACINGS = ["strict", "prefer", "none", "strict,first-fit", "none,most-free"]


@pytest.mark.parametrize("placing", PLACINGS)
def test_a_short_job_slips_past_a_head_that_waits(placing: str) -> None:
    # 4 GPUs. Job 0 holds 3 until 10 s; job 1 (4 GPUs) reserves 10 s. Job 2 (1 GPU) ends at 5 s.
    rows = [Row(3, 10), Row(4, 5), Row(1, 5)]
    assert play(rows, "backfill", "1x4", placing=placing).finishes == [10, 15, 5]


@pytest.mark.parametrize("placing", PLACINGS)
def test_a_job_that_ends_exactly_at_the_reservation_may_slip_in(placing: str) -> None:
    rows = [Row(3, 10), Row(4, 5), Row(1, 10)]
    assert play(rows, "backfill", "1x4", placing=placing).finishes == [10, 15, 10]


@pytest.mark.parametrize("placing", PLACINGS)
def test_a_job_that_would_delay_the_head_waits(placing: str) -> None:
    # Job 2 (1 GPU, 11 s) would hold a GPU at 10 s that the head needs.
    rows = [Row(3, 10), Row(4, 5), Row(1, 11)]
    assert play(rows, "backfill", "1x4", placing=placing).finishes == [10, 15, 26]


@pytest.mark.parametrize("placing", PLACINGS)
def test_a_long_job_may_use_gpus_the_head_leaves_over(placing: str) -> None:
    # The head needs 3 of 4 GPUs at 10 s: one is extra, so job 2 may outlive the reservation,
    # but job 3 may not.
    rows = [Row(2, 10), Row(3, 5), Row(1, 50), Row(1, 50)]
    story = play(rows, "backfill", "1x4", placing=placing)
    assert story.finishes == [10, 15, 50, 65]


def test_extra_gpus_are_spent_once() -> None:
    # Job 0 holds 3 of 8 until 10 s; the head needs 6: at 10 s two are extra. Job 2 takes both.
    rows = [Row(3, 10), Row(6, 10), Row(2, 100), Row(1, 100), Row(2, 10)]
    story = play(rows, "backfill", "1x8")
    assert story.finishes == [10, 20, 100, 120, 10]


def test_a_later_arrival_is_held_to_the_same_reservation() -> None:
    # The reservation of 10 s was made at 0 s; at 6 s a 4 s job may enter, a 5 s job may not.
    head = [Row(3, 10), Row(4, 5)]
    assert play([*head, Row(1, 4, submit_s=6)], "backfill", "1x4").finishes == [10, 15, 10]
    assert play([*head, Row(1, 5, submit_s=6)], "backfill", "1x4").finishes == [10, 15, 20]


def test_the_reservation_moves_up_when_a_job_ends_early() -> None:
    # Limits say 100 s, the truth is 10 s: the head starts at 10 s, not at 100 s.
    rows = [Row(3, 10, time_limit_s=100), Row(4, 5, time_limit_s=50), Row(1, 5, time_limit_s=99)]
    story = play(rows, "backfill", "1x4", forecast="limit")
    assert story.finishes == [10, 15, 5]


def test_limits_and_not_lengths_decide_with_the_limit_forecast() -> None:
    # Job 2 lasts 5 s but its user said 101 s: it would outlive the reservation at 100 s.
    rows = [Row(3, 10, time_limit_s=100), Row(4, 5, time_limit_s=50), Row(1, 5, time_limit_s=101)]
    story = play(rows, "backfill", "1x4", forecast="limit")
    assert story.finishes == [10, 15, 20]


def test_a_reservation_that_is_past_is_reckoned_anew() -> None:
    # Users said 10 and 12 s of jobs that last 100. The head (3 GPUs) reserved 10 s, when one job
    # would be over and no GPU extra. At 15 s both are overdue, so that one GPU is: job 3 takes it.
    trace = trace_of(Row(2, 100), Row(1, 100), Row(3, 5), Row(1, 50, submit_s=15))
    said = Known(np.array([10.0, 12.0, 5.0, 50.0]))
    scene = replace(scene_of(trace, "1x4"), forecast=said)

    story = play_scene(scene, "backfill")

    assert story.starts(3)[0][0] == 15


def test_limits_are_demanded_where_there_are_none() -> None:
    with pytest.raises(InputError, match="no job of the trace has a time limit"):
        play([Row(1, 1)], "backfill", forecast="limit")


def test_the_head_is_never_delayed_where_gangs_may_not_be_spread() -> None:
    # Two nodes of 2. Job 0 holds node 0 until 10 s, job 1 one GPU of node 1 until 20 s. The
    # head needs a whole node: node 0 at 10 s. Counting GPUs, one would be extra at 10 s, and
    # that one is on node 1: job 3 (1 GPU, 100 s) may take it, without touching node 0.
    rows = [Row(2, 10), Row(1, 20), Row(2, 5), Row(1, 100)]
    story = play(rows, "backfill", "2x2", placing="strict")
    assert story.finishes == [10, 20, 15, 100]
    # The same when the head and the small job come one after the other.
    later = [*rows[:2], Row(2, 5, submit_s=1), Row(1, 99, submit_s=1)]
    assert play(later, "backfill", "2x2", placing="strict").finishes == [10, 20, 15, 100]


def test_an_extra_gpu_on_the_wrong_node_is_not_given_away() -> None:
    # Two nodes of 4. Job 0 takes node 0 (3 of 4) until 10 s, job 1 node 1 (3 of 4) until 30 s.
    # The head needs 4 on one node: node 0 at 10 s. Counting, 8 - 3 - 4 = 1 GPU is extra then;
    # jobs 3 and 4 last 100 s. Job 3 would go to node 0 by best fit, and delay the head to 34 s.
    rows = [Row(3, 10), Row(3, 30), Row(4, 5), Row(1, 100), Row(1, 10)]
    story = play(rows, "backfill", "2x4", placing="strict,best-fit")
    assert story.finishes[2] == 15
    assert story.finishes[:2] == [10, 30]


def test_a_draining_node_promises_nothing_to_the_head() -> None:
    # Two nodes of 2. Job 0 runs on node 0, which drains from 1 s; job 1 holds a GPU of node 1
    # until 20 s. The head needs 2 GPUs: node 0 will not come back, so it starts at 20 s and no
    # GPU is extra. Job 3 lasts 100 s and must not get between.
    rows = [Row(2, 10), Row(1, 20), Row(2, 5, submit_s=2), Row(1, 100, submit_s=2)]
    story = play(rows, "backfill", "2x2", capacity=[(1.0, [(0, "draining")])])
    assert story.finishes == [10, 20, 25, 125]


def test_jobs_behind_the_head_start_in_order_of_submission() -> None:
    rows = [Row(3, 10), Row(4, 1), Row(1, 4), Row(1, 3), Row(1, 3)]
    story = play(rows, "backfill", "1x4")
    # 2 runs to 4, 3 to 7, 4 to 10: all before the reservation.
    assert story.finishes == [10, 11, 4, 7, 10]
