"""GPUs that are drained by themselves, as plans and their rules see them."""

import pytest

from builders import Row, Stage
from dovetail.core.cluster import DOWN, DRAINING, Cluster
from dovetail.core.errors import IllegalPlan, InputError
from dovetail.core.legality import audit, violations
from dovetail.core.placement import Placement


def faults(stage: Stage) -> list[str]:
    return audit(stage.view, stage.view.plan.occupancy)


def test_a_gpu_that_is_down_is_no_capacity_and_one_that_drains_is() -> None:
    cluster = Cluster.uniform(2, 4).with_gpus([(0, 3, DOWN), (1, 0, DRAINING)])
    assert cluster.capacity == (3, 4) and cluster.gpus == 7
    assert cluster.with_nodes([(0, "down")]).capacity == (0, 4)
    assert cluster.with_gpus([]).capacity == (4, 4)


@pytest.mark.parametrize("place", [(2, 0, DOWN), (0, 4, DOWN), (0, 0, "up")])
def test_only_gpus_that_exist_are_drained(place: tuple[int, int, str]) -> None:
    with pytest.raises(InputError):
        Cluster.uniform(2, 4).with_gpus([place])


@pytest.mark.parametrize("cluster", ["1x4", "1x2x2"])
def test_names_of_gpus_that_are_down_are_given_to_nobody(cluster: str) -> None:
    stage = Stage([Row(3, 9), Row(2, 9)], "fifo", cluster)
    stage.state.change_gpus([(0, 1, DOWN)], ())
    occupancy = stage.view.plan.occupancy
    assert occupancy.free_gpus == 3 and occupancy.idle_ids(0, 3) == (0, 2, 3)
    draft = stage.view.plan.draft()
    with pytest.raises(IllegalPlan, match="GPU 1 of node 0 is out of service"):
        draft.place(1, Placement(((0, 2),), ((0, 1),)))
    draft.place(0, Placement(((0, 3),), ((0, 2, 3),)))
    assert draft.free_gpus == 0
    draft.rollback()
    stage.run_jobs((0, ((0, 3),)))
    assert faults(stage) == []
    stage.state.change_gpus([], ())
    assert stage.view.plan.free_gpus == 1 and faults(stage) == []


def test_a_repack_knows_which_gpus_are_down() -> None:
    stage = Stage([Row(2, 9)], "fifo", "1x2x2")
    stage.state.change_gpus([(0, 1, DOWN)], ())
    draft = stage.view.plan.repack()
    draft.place(0, ((0, 2),))
    assert draft.placed[0].gpu_ids == ((2, 3),), "the other island has one GPU left"


def test_no_part_of_a_gpu_that_drains_is_given_away() -> None:
    stage = Stage([Row(1, 9, gpu_part=0.5) for _ in range(4)], "fifo", "1x2")
    stage.run_jobs((0, ((0, 1),)))
    assert stage.view.running[0].gpu_ids == ((0,),)
    stage.state.change_gpus([(0, 0, DRAINING)], {0})
    draft = stage.view.plan.draft()
    for job in (1, 2):
        spans = stage.view.placing.find(draft.occupancy, stage.view.shape(job))
        assert spans is not None
        draft.place(job, spans)
    assert [draft.placed[job].gpu_ids for job in (1, 2)] == [((1,),)] * 2
    assert stage.view.placing.find(draft.occupancy, stage.view.shape(3)) is None
    with pytest.raises(IllegalPlan, match="GPU 0 of node 0 is out of service"):
        draft.place(3, Placement(((0, 1),), ((0,),), gpu_part=0.5))


def test_a_job_on_a_gpu_that_drains_may_be_neither_stopped_nor_resized() -> None:
    elastic = Row(2, 9, min_gpus=1, max_gpus=4)
    stage = Stage([elastic, elastic], "afs-l", "1x4")
    stage.run_jobs((0, ((0, 2),)), (1, ((0, 1),)))
    stage.state.change_gpus([], {0})
    assert stage.view.preemptible.tolist() == [False, True] and not stage.view.all_preemptible
    powers = frozenset({"preempt", "resize", "migrate"})
    for job, after in ((0, ((0, 1),)), (0, None), (1, ((0, 2),))):
        draft = stage.view.plan.draft()
        if after is None:
            draft.remove(job)
        else:
            draft.place(job, after)
        found = violations(stage.view, draft.changes(), draft.occupancy, powers)
        assert bool(found) == (job == 0), found
        assert ("may finish on its draining GPU" in " ".join(found)) == (job == 0)
        draft.rollback()
