"""The tables every world keeps: progress, service and forecast ends, by hand."""

import pytest

from builders import Row, Stage
from dovetail.control.state import JobProgress
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.errors import IllegalPlan
from dovetail.core.job import JobRequest, Shape
from dovetail.core.legality import audit
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


def test_an_admitted_job_is_known_and_waits_when_it_arrives() -> None:
    scene = Stage([Row(1, 4)], "sjf", "1x4").at(2.0)
    assert scene.state.admit([JobRequest("new", 2.0, 3, 3, 3, cpus=8.0)]) == range(1, 2)
    assert 1 not in scene.view.waiting
    assert scene.view.shape(1) == Shape(3)
    assert scene.view.physics.structure.scale(1) == 3.0
    scene.state.forecast = Fixed()
    scene.state.arrive(1)
    assert list(scene.view.waiting) == [0, 1]
    scene.run_jobs((1, ((0, 3),))).at(5.0)
    assert scene.view.progress.done_s([1]) == [3.0]
    assert scene.view.progress.left_s([1]) == [6.0]


class Fixed:
    """Every job is 9 s long."""

    knows = frozenset({"length"})

    def admit(self, jobs: object) -> None:
        pass

    def length_s(self, job: int, now: float) -> float:
        return 9.0

    def distribution(self, job: int, now: float, done_s: object) -> None:
        pass

    def ended(self, job: int, ran_s: float, how: str, now: float) -> None:
        pass


def test_cpus_count_from_the_first_job_on_that_asks_for_them() -> None:
    cluster = Cluster((NodeGroup("n", 1, 4, cpus=8.0),))
    scene = Stage([Row(1, 4)], "fifo", cluster)
    scene.run_jobs((0, ((0, 1),)))
    assert not scene.view.plan.occupancy.limits_host
    scene.state.admit(
        [JobRequest("a", 0.0, 1, 1, 1, cpus=6.0), JobRequest("b", 0.0, 1, 1, 1, cpus=6.0)]
    )
    scene.state.forecast = Fixed()
    scene.state.arrive(1)
    scene.state.arrive(2)
    assert scene.view.shape(1).cpus == 6.0
    scene.run_jobs((1, ((0, 1),)))
    with pytest.raises(IllegalPlan, match="lacks CPUs"):
        scene.view.plan.draft().place(2, ((0, 1),))
    scene.view.plan.discard()
    assert scene.view.placing.find(scene.view.plan.occupancy, scene.view.shape(2)) is None
    assert audit(scene.view, scene.view.plan.occupancy) == []


def test_what_is_measured_replaces_what_was_reckoned_but_not_the_service() -> None:
    scene = stage().run_jobs((0, ((0, 2),)), (1, ((0, 1),))).at(4.0)
    scene.state.measure(0, 2.5, 0.5)
    assert scene.view.progress.done_s([0]) == [2.5]
    progress = scene.at(6.0).view.progress
    assert progress.done_s([0]) == [3.5]
    assert progress.attained_gpu_s([0]) == [12]
    assert scene.view.ends is not None
    assert list(scene.view.ends) == [(4.0, 1), (4.0 + 7.5 / 0.5, 0)]
    columns = scene.state.running()
    assert columns.left_s[columns.jobs.tolist().index(0)] == 6.5


def test_a_new_forecast_moves_a_job_in_the_queue_and_among_the_ends() -> None:
    scene = Stage([Row(1, 9), Row(1, 4), Row(1, 6)], "sjf", "1x4")
    assert list(scene.view.waiting) == [1, 2, 0]
    scene.state.relength(1, 8.0)
    assert list(scene.view.waiting) == [2, 1, 0]
    scene = stage().run_jobs((0, ((0, 2),)))
    scene.state.relength(0, 30.0)
    scene.state.relength(2, 2.0)
    assert scene.view.ends is not None
    assert list(scene.view.ends) == [(30.0, 0)]
    assert scene.view.progress.left_s([0]) == [30.0]
    assert scene.view.waiting.first_behind(scene.view.shape_of[2], 2.0, 0) == 2


def test_a_withdrawn_job_waits_no_more_and_comes_back_as_far_as_it_came() -> None:
    scene = stage().run_jobs((0, ((0, 2),))).at(3.0)
    scene.state.evict(0)
    scene.state.withdraw(0)
    assert 0 not in scene.view.waiting
    scene.at(9.0).state.arrive(0)
    assert scene.view.progress.done_s([0]) == [3]
    assert scene.view.progress.pending_since_s(0) == 9


def test_jobs_are_taken_up_where_an_earlier_run_left_them() -> None:
    old = stage().run_jobs((0, ((0, 2),)), (1, ((0, 1),))).at(3.0)
    old.state.evict(1)
    old.at(4.0)
    new = stage()
    for job in range(3):
        new.state.withdraw(job)
    new.at(4.0)
    for job in range(3):
        where = old.view.running.get(job)
        new.state.restore(job, old.state.life(job), where, old.state.rate[job])
    for scene in (old, new):
        scene.at(5.0)
    for name in ("done_s", "left_s", "length_s", "attained_gpu_s"):
        asked = getattr(old.view.progress, name)([0, 1, 2])
        assert getattr(new.view.progress, name)([0, 1, 2]) == asked
    assert dict(new.view.running) == dict(old.view.running)
    assert list(new.view.waiting) == list(old.view.waiting)
    assert list(new.view.ends or ()) == list(old.view.ends or ())
    assert new.view.progress.pending_since_s(1) == 3
    assert new.view.progress.running_since_s(0) == 0
    assert new.state.first_start_s == old.state.first_start_s
    assert audit(new.view, new.view.plan.occupancy) == []


def test_a_job_cannot_be_taken_up_on_gpus_that_are_not_there() -> None:
    scene = stage()
    scene.state.withdraw(0)
    with pytest.raises(IllegalPlan):
        scene.state.restore(0, JobProgress(), Placement(((0, 5),)), 1.0)
    assert 0 not in scene.view.running
    scene.state.restore(0, JobProgress(done_s=2.0), None)
    assert scene.view.progress.done_s([0]) == [2.0]
