"""The tables every world keeps: progress, service and forecast ends, by hand."""

import pytest

from builders import Row, Stage
from dovetail.core.placement import Placement


def stage() -> Stage:
    rows = [Row(2, 10), Row(1, 4, elastic=True, min_gpus=1, max_gpus=2), Row(1, 6)]
    return Stage(rows, "backfill", "1x4")


def test_progress_and_service_grow_with_time() -> None:
    scene = stage().run_jobs((0, ((0, 2),)), (1, ((0, 1),))).at(3.0)
    progress = scene.view.progress
    assert progress.done_s([0, 1, 2]) == [3, 3, 0]
    assert progress.left_s([0, 1, 2]) == [7, 1, 6]
    assert progress.length_s([0, 1, 2]) == [10, 4, 6]
    assert progress.attained_gpu_s([0, 1, 2]) == [6, 3, 0]
    assert progress.running_since_s(0) == 0
    assert progress.pending_since_s(2) == 0


def test_what_is_left_is_never_below_zero() -> None:
    scene = stage().run_jobs((1, ((0, 1),))).at(30.0)
    assert scene.view.progress.left_s([1]) == [0.0]


def test_a_stopped_job_keeps_what_it_did_and_waits_from_now_on() -> None:
    scene = stage().run_jobs((0, ((0, 2),))).at(3.0)
    scene.state.evict(0)
    scene.at(5.0)
    progress = scene.view.progress
    assert progress.done_s([0]) == [3]
    assert progress.attained_gpu_s([0]) == [6]
    assert progress.pending_since_s(0) == 3
    assert 0 in scene.view.waiting
    assert scene.view.plan.free_gpus == 4


def test_a_switch_holds_gpus_and_makes_no_progress() -> None:
    scene = stage()
    draft = scene.view.plan.draft()
    draft.place(0, ((0, 2),))
    scene.state.plan.commit(draft)
    scene.state.start(0, Placement(((0, 2),)), 1.0, 5.0)
    progress = scene.at(3.0).view.progress
    assert progress.done_s([0]) == [0]
    assert progress.attained_gpu_s([0]) == [6]
    assert scene.at(7.0).view.progress.done_s([0]) == [2]


def test_a_new_rate_counts_from_now() -> None:
    scene = stage().run_jobs((0, ((0, 2),))).at(4.0)
    scene.state.retime(0, 0.5)
    assert scene.at(6.0).view.progress.done_s([0]) == [5]


def test_forecast_ends_are_in_order_and_follow_the_rate() -> None:
    scene = stage().run_jobs((0, ((0, 2),)), (1, ((0, 1),)))
    ends = scene.view.ends
    assert ends is not None
    assert list(ends) == [(4.0, 1), (10.0, 0)]
    scene.at(2.0).state.retime(1, 0.1)
    assert list(ends) == [(10.0, 0), (pytest.approx(22.0), 1)]
    scene.state.evict(0)
    assert [job for _, job in ends] == [1]
    scene.state.end(1)
    assert list(ends) == []


def test_policies_that_do_not_ask_get_no_ends() -> None:
    assert Stage([Row(1, 1)], "fifo").view.ends is None


def test_a_waiting_job_can_end_without_having_run() -> None:
    scene = stage()
    scene.state.end(2)
    assert list(scene.view.waiting) == [0, 1]


def test_a_new_order_ranks_everybody_who_waits_and_who_will() -> None:
    from dovetail.core.order import Order

    scene = Stage([Row(1, 9), Row(1, 5), Row(1, 7)], "sjf")
    scene.state.reorder(Order(lambda view, jobs: view.progress.length_s(jobs)))
    assert list(scene.view.waiting) == [1, 2, 0]
    scene.run_jobs((1, ((0, 1),))).at(1.0).state.evict(1)
    assert list(scene.view.waiting) == [1, 2, 0]
