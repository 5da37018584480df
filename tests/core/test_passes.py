"""Filling and ranking by hand: who starts, who is stopped, and why the rest waits."""

import pytest

from builders import Row, Stage
from dovetail.core.job import Floats
from dovetail.core.messages import Reason
from dovetail.core.passes import NO_ROOM, behind, check_bypass, fill, rank, serve
from dovetail.core.placement import Placement
from dovetail.core.plan import Change
from dovetail.core.view import Running


def by_length(running: Running) -> Floats:
    return running.left_s


def started(stage: Stage, bypass: str) -> tuple[list[int], tuple[Reason, ...]]:
    draft, because = fill(stage.view, bypass)
    jobs = [] if draft is None else [c.job for c in draft.changes()]
    stage.view.plan.discard()
    return jobs, because


def test_a_strict_queue_is_blocked_by_its_first_misfit() -> None:
    stage = Stage([Row(1, 5), Row(4, 5), Row(1, 5)], "fifo", "1x4")
    assert started(stage, "strict") == ([0], (Reason("Resources", 1), Reason("Priority", behind=1)))


def test_a_lenient_queue_passes_misfits_over() -> None:
    stage = Stage([Row(1, 5), Row(4, 5), Row(1, 5)], "fifo", "1x4")
    assert started(stage, "skip") == ([0, 2], NO_ROOM)


def test_an_empty_queue_has_no_reason_to_wait() -> None:
    stage = Stage([Row(1, 5)], "fifo", "1x4").run_jobs((0, ((0, 1),)))
    assert started(stage, "strict") == ([], ())
    assert started(stage, "skip") == ([], ())


def test_a_full_cluster_starts_nobody() -> None:
    stage = Stage([Row(4, 5), Row(1, 5), Row(2, 5)], "fifo", "1x4").run_jobs((0, ((0, 4),)))
    assert started(stage, "strict") == ([], behind(1))
    assert started(stage, "skip") == ([], NO_ROOM)


def test_filling_tries_other_shapes_after_one_failed() -> None:
    # 2+2 free: the gang of 3 fails under strict consolidation, each 2 fits.
    rows = [Row(2, 5), Row(2, 5), Row(3, 5), Row(2, 5), Row(3, 5), Row(2, 5), Row(2, 5)]
    stage = Stage(rows, "fifo", "2x4", placing="strict").run_jobs((0, ((0, 2),)), (1, ((1, 2),)))
    assert started(stage, "skip") == ([3, 5], NO_ROOM)


def moves(stage: Stage, bypass: str = "skip") -> list[Change]:
    draft, _ = rank(stage.view, by_length, bypass)
    changes = [] if draft is None else draft.changes()
    stage.view.plan.discard()
    return changes


def at(*spans: tuple[int, int]) -> Placement:
    return Placement(spans)


def test_the_longest_victim_gives_way_and_no_more_than_needed() -> None:
    rows = [Row(1, 9), Row(1, 8), Row(1, 7), Row(2, 3)]
    stage = Stage(rows, "srtf", "1x3").run_jobs(*[(j, ((0, 1),)) for j in range(3)])
    assert moves(stage) == [
        Change(0, at((0, 1)), None),
        Change(1, at((0, 1)), None),
        Change(3, None, at((0, 2))),
    ]


def test_a_tie_stops_nobody() -> None:
    rows = [Row(1, 5), Row(1, 5), Row(1, 5 * (1 - 1e-12))]
    stage = Stage(rows, "srtf", "1x1").run_jobs((0, ((0, 1),)))
    assert moves(stage) == []


def test_victims_that_do_not_help_keep_their_gpus() -> None:
    # The gang of 2 needs one node. Job 1 (9 s, node 1) is taken first and does not help; with
    # job 0 (8 s) off node 0 the gang fits there, and job 1 goes back to its place.
    rows = [Row(2, 8), Row(1, 9), Row(1, 1), Row(2, 3)]
    stage = Stage(rows, "srtf", "2x2", placing="strict").run_jobs(
        (0, ((0, 2),)), (1, ((1, 1),)), (2, ((1, 1),))
    )
    assert moves(stage) == [Change(0, at((0, 2)), None), Change(3, None, at((0, 2)))]


def test_an_evicted_job_may_in_turn_stop_a_longer_one() -> None:
    # As above with two jobs of 1 GPU on node 0: the shorter of them takes job 1's place.
    rows = [Row(1, 8), Row(1, 9), Row(1, 7), Row(1, 1), Row(2, 3)]
    stage = Stage(rows, "srtf", "2x2", placing="strict").run_jobs(
        (0, ((0, 1),)), (1, ((1, 1),)), (2, ((0, 1),)), (3, ((1, 1),))
    )
    assert moves(stage) == [
        Change(0, at((0, 1)), None),
        Change(1, at((1, 1)), None),
        Change(2, at((0, 1)), at((1, 1))),
        Change(4, None, at((0, 2))),
    ]


def test_an_evicted_job_takes_the_room_that_is_left() -> None:
    # 0 (3 GPUs, 9 s) gives way to 2 (2 GPUs, 1 s); 1 (1 GPU, 20 s) waits behind 0 in rank, and
    # gets the GPU that 0 cannot use.
    rows = [Row(3, 9), Row(1, 20), Row(2, 1)]
    stage = Stage(rows, "srtf", "1x3").run_jobs((0, ((0, 3),)))
    assert moves(stage) == [
        Change(0, at((0, 3)), None),
        Change(1, None, at((0, 1))),
        Change(2, None, at((0, 2))),
    ]


def test_an_evicted_job_is_served_elsewhere_before_longer_waiting_ones() -> None:
    # The gang of 2 (1 s) takes node 0 from job 0 (4 s), which moves to node 1 before job 2 (8 s).
    rows = [Row(1, 4), Row(1, 3), Row(1, 8), Row(2, 1)]
    stage = Stage(rows, "srtf", "2x2", placing="strict").run_jobs((0, ((0, 1),)), (1, ((1, 1),)))
    # Node 1 has one free GPU, node 0 too; stopping only job 0 is enough.
    assert moves(stage) == [
        Change(0, at((0, 1)), at((1, 1))),
        Change(3, None, at((0, 2))),
    ]


def test_a_job_that_may_not_be_stopped_is_no_victim() -> None:
    rows = [Row(1, 9, preemptible=False), Row(1, 8), Row(1, 1)]
    stage = Stage(rows, "srtf", "1x2").run_jobs((0, ((0, 1),)), (1, ((0, 1),)))
    assert moves(stage) == [Change(1, at((0, 1)), None), Change(2, None, at((0, 1)))]


def test_a_strict_ranking_stops_at_the_first_that_finds_no_room() -> None:
    rows = [Row(2, 2, preemptible=False), Row(3, 3), Row(1, 9), Row(1, 8)]
    stage = Stage(rows, "srtf", "1x4").run_jobs((0, ((0, 2),)), (2, ((0, 1),)))
    draft, because = rank(stage.view, by_length, "strict")
    assert draft is None or draft.changes() == []
    assert because == behind(1)
    stage.view.plan.discard()
    assert moves(stage, "skip") == [Change(3, None, at((0, 1)))]


def test_a_repack_fills_the_cluster_in_order_of_key() -> None:
    # 1 (3 s) first to node 0, 0 (9 s) no longer fits a node: it loses to 2.
    rows = [Row(2, 9), Row(1, 3), Row(1, 4)]
    stage = Stage(rows, "srtf", "1x2", placing="repack").run_jobs((0, ((0, 2),)))
    assert moves(stage) == [
        Change(0, at((0, 2)), None),
        Change(1, None, at((0, 1))),
        Change(2, None, at((0, 1))),
    ]


def test_a_repack_moves_nobody_without_need() -> None:
    rows = [Row(2, 9), Row(1, 3), Row(1, 10)]
    stage = Stage(rows, "srtf", "2x2", placing="repack").run_jobs((1, ((0, 1),)), (0, ((1, 2),)))
    assert moves(stage) == [Change(2, None, at((0, 1)))]


def test_serving_by_count_takes_an_order_of_everybody() -> None:
    rows = [Row(2, 5), Row(1, 5), Row(2, 5), Row(1, 5)]
    stage = Stage(rows, "fifo", "1x4").run_jobs((0, ((0, 2),)), (1, ((0, 1),)))
    draft, because = serve(stage.view, [3, 2, 1, 0])
    assert draft.changes() == [
        Change(0, at((0, 2)), None),
        Change(2, None, at((0, 2))),
        Change(3, None, at((0, 1))),
    ]
    assert because == NO_ROOM


def test_a_bypass_is_one_of_two_words() -> None:
    with pytest.raises(ValueError, match="strict or skip, not 'loose'"):
        check_bypass("loose")
