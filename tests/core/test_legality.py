"""Each rule of a legal plan, broken once: by a sentence, and by nothing else."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from builders import Row, Stage
from dovetail.core.beliefs import Neighbour
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.errors import IllegalPlan
from dovetail.core.legality import audit, violations
from dovetail.core.node_sets import NodeSets
from dovetail.core.placement import Interleave, Placement
from dovetail.core.policy import POWERS
from dovetail.core.tenants import QueueSpec
from dovetail.core.view import show
from dovetail.physics.linear import LinearBatches, UnknownMemory, linear_physics
from dovetail.physics.sharing.interference import Injected

ALL = frozenset(POWERS)
SHARED = {"shareable": True}


def one(gpu: int, **more: object) -> Placement:
    """Returns one worker on a named GPU of node 0."""
    return Placement(((0, 1),), ((gpu,),), **more)  # type: ignore[arg-type]


def faults(
    stage: Stage,
    moves: Sequence[tuple[int, object]],
    powers: frozenset[str] = ALL,
) -> list[str]:
    """Returns the violations of a draft made of moves (None: remove)."""
    draft = stage.view.plan.draft()
    for job, where in moves:
        if where is None:
            draft.remove(job)
        else:
            draft.place(job, where)  # type: ignore[arg-type]
    return violations(stage.view, draft.changes(), draft.occupancy, powers)


def test_a_plain_start_breaks_no_rule_and_needs_no_power() -> None:
    stage = Stage([Row(2, 5)], "fifo", "1x4")
    assert faults(stage, [(0, ((0, 2),))], frozenset()) == []


def test_a_gang_is_whole() -> None:
    stage = Stage([Row(2, 5)], "fifo", "1x4")
    assert faults(stage, [(0, ((0, 1),))]) == ["job 0 asked for 2 GPUs and got 1"]


def test_a_queue_that_owns_nodes_stays_on_them() -> None:
    groups = (NodeGroup("left", 1, 4), NodeGroup("right", 1, 4))
    cluster = Cluster(groups, queues=(QueueSpec("q", groups=("right",)),))
    stage = Stage([Row(2, 5, queue="q"), Row(2, 5, queue="other")], "fifo", cluster)
    with pytest.raises(IllegalPlan, match=r"job 0 of queue q may not use nodes \[0\]"):
        faults(stage, [(0, ((0, 2),))])
    with pytest.raises(IllegalPlan, match=r"queue q may not use nodes \[0, 1\] together"):
        faults(stage, [(0, ((0, 1), (1, 1)))])
    with pytest.raises(IllegalPlan, match=r"queue q may not use nodes \[0\]"):
        faults(stage, [(0, Placement(((0, 2),), ((0, 1),)))])
    assert faults(stage, [(0, ((1, 2),)), (1, ((0, 2),))]) == []


def test_a_gang_with_a_list_of_types_has_gpus_of_one_of_them() -> None:
    rows = [Row(2, 5, gpu_type="a100|v100"), Row(2, 5, gpu_type="v100")]
    stage = Stage(rows, "fifo", "1x4:a100+1x4:v100+1x4:t4")
    assert faults(stage, [(0, ((0, 2),))]) == []
    assert faults(stage, [(0, ((1, 2),))]) == []
    with pytest.raises(IllegalPlan, match=r"job 0 may not use nodes \[0, 1\] together"):
        faults(stage, [(0, ((0, 1), (1, 1)))])
    with pytest.raises(IllegalPlan, match=r"job 0 may not use nodes \[2\]"):
        faults(stage, [(0, ((2, 2),))])


def test_a_demanded_topology_is_kept_and_a_wish_is_not_enforced() -> None:
    rows = [Row(2, 5, topology="node"), Row(2, 5, topology="node?")]
    stage = Stage(rows, "fifo", "2x4")
    with pytest.raises(IllegalPlan, match=r"job 0 may not use nodes \[0, 1\] together"):
        faults(stage, [(0, ((0, 1), (1, 1)))])
    assert faults(stage, [(0, ((0, 2),)), (1, ((0, 1), (1, 1)))]) == []


def test_the_audit_finds_a_job_on_nodes_that_its_queue_does_not_own() -> None:
    groups = (NodeGroup("left", 1, 4), NodeGroup("right", 1, 4))
    stage = Stage([Row(2, 5, queue="q")], "fifo", Cluster(groups)).run_jobs((0, ((0, 2),)))
    owned = Cluster(groups, queues=(QueueSpec("q", groups=("right",)),))
    occupancy = stage.view.plan.occupancy
    assert audit(stage.view, occupancy) == []
    occupancy.node_sets = NodeSets(owned)
    assert audit(stage.view, occupancy) == ["job 0 may not use nodes [0]"]


def test_stopping_needs_the_power_and_a_preemptible_job() -> None:
    rows = [Row(1, 5), Row(1, 5, preemptible=False)]
    stage = Stage(rows, "fifo", "1x4").run_jobs((0, ((0, 1),)), (1, ((0, 1),)))
    assert faults(stage, [(0, None)]) == []
    assert faults(stage, [(0, None)], ALL - {"preempt"}) == [
        "job 0 is stopped without the power to preempt"
    ]
    assert faults(stage, [(1, None)]) == ["job 1 is not preemptible"]


def test_moving_needs_the_power_and_a_preemptible_job() -> None:
    rows = [Row(1, 5), Row(1, 5, preemptible=False)]
    stage = Stage(rows, "fifo", "2x2").run_jobs((0, ((0, 1),)), (1, ((0, 1),)))
    assert faults(stage, [(0, ((1, 1),))]) == []
    assert faults(stage, [(0, ((1, 1),))], ALL - {"migrate"}) == [
        "job 0 is moved without the power to migrate"
    ]
    assert faults(stage, [(1, ((1, 1),))]) == ["job 1 is not preemptible and would move"]


def test_another_gpu_of_the_same_node_is_a_move_too() -> None:
    rows = [Row(1, 5, **SHARED), Row(1, 5, preemptible=False)]  # type: ignore[arg-type]
    stage = Stage(rows, "fifo", "1x4").run_jobs((0, one(0)), (1, one(1)))  # type: ignore[arg-type]
    assert faults(stage, [(0, one(2))], ALL - {"migrate"}) == [
        "job 0 is moved without the power to migrate"
    ]
    assert faults(stage, [(1, one(2))]) == ["job 1 is not preemptible and would move"]


def test_a_share_needs_the_power_an_elastic_job_and_its_range() -> None:
    rows = [Row(2, 5), Row(2, 5, elastic=True, min_gpus=1, max_gpus=3)]
    stage = Stage(rows, "fifo", "1x8")
    assert faults(stage, [(1, ((0, 3),))]) == []
    assert faults(stage, [(1, ((0, 1),))]) == []
    assert faults(stage, [(1, ((0, 4),))]) == ["job 1 takes 1 to 3 GPUs, not 4"]
    assert faults(stage, [(0, ((0, 3),))]) == ["job 0 asked for 2 GPUs and got 3"]
    assert faults(stage, [(1, ((0, 3),))], ALL - {"resize"}) == [
        "job 1 asked for 2 GPUs and got 3 without the power to resize"
    ]


def test_back_to_the_requested_size_is_a_resize_as_well() -> None:
    rows = [Row(2, 5, elastic=True, min_gpus=1, max_gpus=3)]
    stage = Stage(rows, "fifo", "1x8").run_jobs((0, ((0, 3),)))
    assert faults(stage, [(0, ((0, 2),))], ALL - {"resize"}) == [
        "job 0 is resized without the power to"
    ]


def test_a_job_that_does_not_wait_cannot_start() -> None:
    stage = Stage([Row(1, 5), Row(1, 5)], "fifo", "1x4")
    stage.state.waiting.remove(1)
    assert faults(stage, [(1, ((0, 1),))]) == ["job 1 is not waiting"]


def test_a_job_that_may_not_be_stopped_may_not_be_resized() -> None:
    rows = [Row(2, 5, elastic=True, min_gpus=1, max_gpus=3, preemptible=False)]
    stage = Stage(rows, "fifo", "1x8").run_jobs((0, ((0, 2),)))
    assert faults(stage, [(0, ((0, 3),))]) == ["job 0 is not preemptible and would move"]


def test_sharing_needs_the_power_and_both_owners() -> None:
    rows = [Row(1, 5, **SHARED), Row(1, 5, **SHARED), Row(1, 5)]  # type: ignore[arg-type]
    stage = Stage(rows, "fifo", "1x4")
    assert faults(stage, [(0, one(0)), (1, one(0))]) == []
    both = faults(stage, [(0, one(0)), (1, one(0))], ALL - {"share"})
    assert set(both) == {"GPU 0 of node 0 is shared without the power to"}
    refused = faults(stage, [(0, one(0)), (2, one(0))])
    assert set(refused) == {"job 2 does not allow sharing of GPU 0 of node 0"}


def test_a_newcomer_may_not_join_a_host_whose_owner_refuses() -> None:
    rows = [Row(1, 5), Row(1, 5, **SHARED)]  # type: ignore[arg-type]
    stage = Stage(rows, "fifo", "1x4").run_jobs((0, one(0)))  # type: ignore[arg-type]
    assert faults(stage, [(1, one(0))]) == ["job 0 does not allow sharing of GPU 0 of node 0"]


def test_at_most_two_jobs_share_a_gpu() -> None:
    rows = [Row(1, 5, **SHARED)] * 3  # type: ignore[arg-type]
    stage = Stage(rows, "fifo", "1x4").run_jobs((0, one(0)), (1, one(0)))  # type: ignore[arg-type]
    assert "GPU 0 of node 0 would hold 3 jobs, 2 at most" in faults(stage, [(2, one(0))])


def test_sharers_must_fit_the_memory_of_the_gpu_together() -> None:
    class Tight(UnknownMemory):
        def fits(self, occupants: Sequence[Neighbour], gpu_memory_bytes: float) -> bool:
            assert gpu_memory_bytes == 16 * 2**30
            assert [job for job, _ in occupants] == [0, 1]
            return len(occupants) < 2

    rows = [Row(1, 5, **SHARED)] * 2  # type: ignore[arg-type]
    stage = Stage(rows, "fifo", "1x4")
    show(stage.view, physics=replace(linear_physics(stage.trace.jobs), memory=Tight()))
    found = faults(stage, [(0, one(0)), (1, one(0))])
    assert set(found) == {"GPU 0 of node 0: jobs [0, 1] do not fit its memory together"}
    assert faults(stage, [(0, one(0)), (1, one(1))]) == []


def test_fractions_need_the_power_to_restrict() -> None:
    stage = Stage([Row(1, 5)], "fifo", "1x4")
    assert faults(stage, [(0, one(0, fractions=(0.5,)))]) == []
    assert faults(stage, [(0, one(0, fractions=(0.5,)))], ALL - {"restrict"}) == [
        "job 0 is restricted without the power to"
    ]


def test_samples_must_sum_to_the_batch() -> None:
    stage = Stage([Row(2, 5, batch_size=8)], "fifo", "1x4")
    assert faults(stage, [(0, Placement(((0, 2),), samples=(5, 3)))]) == []
    assert faults(stage, [(0, Placement(((0, 2),), samples=(4, 3)))]) == [
        "job 0: samples sum to 7, batch is 8"
    ]


def test_samples_of_a_batch_that_only_physics_knows_must_sum_to_it() -> None:
    class Sixteen(LinearBatches):
        def samples(self, job: int) -> int:
            return 16

    stage = Stage([Row(2, 5)], "fifo", "1x4")
    eight = Placement(((0, 2),), samples=(5, 3))
    assert faults(stage, [(0, eight)]) == [], "nobody knows the batch"
    sixteen = Sixteen(stage.trace.jobs, Injected())
    show(stage.view, physics=replace(linear_physics(stage.trace.jobs), batches=sixteen))
    assert faults(stage, [(0, eight)]) == ["job 0: samples sum to 8, batch is 16"]
    assert faults(stage, [(0, Placement(((0, 2),), samples=(13, 3)))]) == []
    changed = Placement(((0, 2),), samples=(5, 3), batch_size=8)
    assert faults(stage, [(0, changed)]) == []


def test_limits_on_a_gpu_may_sum_to_two_whole_ones() -> None:
    rows = [Row(1, 5, **SHARED)] * 2  # type: ignore[arg-type]
    stage = Stage(rows, "fifo", "1x4")
    assert faults(stage, [(0, one(0)), (1, one(0, fractions=(1.0,)))]) == []
    assert faults(stage, [(0, one(0, fractions=(0.1,))), (1, one(0, fractions=(0.9,)))]) == []


def test_who_takes_turns_is_neither_restricted_nor_split() -> None:
    rows = [Row(1, 5, batch_size=4, **SHARED)]  # type: ignore[arg-type]
    stage = Stage(rows, "fifo", "1x4")
    words = ["job 0 takes turns, whole and even, and is restricted or split"]
    for more in ({"fractions": (0.5,)}, {"samples": (4,)}):
        turns = one(0, interleave=Interleave(7, 0), **more)
        assert faults(stage, [(0, turns)]) == words


def test_accumulation_needs_a_power() -> None:
    stage = Stage([Row(1, 5)], "fifo", "1x4")
    steps = Placement(((0, 1),), accumulation_steps=2)
    assert faults(stage, [(0, steps)], frozenset({"share"})) == []
    assert faults(stage, [(0, steps)], frozenset({"change batch"})) == []
    assert faults(stage, [(0, steps)], frozenset({"preempt"})) == [
        "job 0 accumulates without the power to change its batch"
    ]


def seat(set_id: int, phase: int) -> Placement:
    return one(0, interleave=Interleave(set_id, phase))


def test_an_interleave_set_needs_the_power_one_set_and_distinct_phases() -> None:
    rows = [Row(1, 5, **SHARED)] * 3  # type: ignore[arg-type]
    stage = Stage(rows, "fifo", "1x4")
    good = [(0, seat(7, 0)), (1, seat(7, 1)), (2, seat(7, 2))]
    assert faults(stage, good) == []
    assert set(faults(stage, good, ALL - {"interleave"})) == {
        "GPU 0 of node 0 is interleaved without the power to"
    }
    words = "GPU 0 of node 0: interleaved jobs need one set and distinct phases"
    assert set(faults(stage, [(0, seat(7, 0)), (1, seat(8, 1))])) == {words}
    assert set(faults(stage, [(0, seat(7, 0)), (1, seat(7, 0))])) == {words}


def test_a_job_without_a_seat_does_not_join_an_interleave_set_of_two() -> None:
    rows = [Row(1, 5, **SHARED)] * 3  # type: ignore[arg-type]
    stage = Stage(rows, "fifo", "1x4")
    found = faults(stage, [(0, seat(7, 0)), (1, seat(7, 1)), (2, one(0))])
    assert "GPU 0 of node 0 would hold 3 jobs, 2 at most" in found


def test_a_closed_node_takes_no_new_work_but_keeps_what_it_has() -> None:
    stage = Stage([Row(1, 5), Row(1, 5)], "fifo", "2x2").run_jobs((0, ((0, 1),)))
    stage.state.change_nodes([(0, "draining")])
    assert faults(stage, [(1, ((0, 1),))]) == ["job 1 would start on closed node 0"]
    assert faults(stage, [(1, ((1, 1),))]) == []


def test_a_job_on_a_draining_node_may_shrink_there_or_grow_elsewhere_but_not_leave() -> None:
    rows = [Row(2, 5, elastic=True, min_gpus=1, max_gpus=4)]
    stage = Stage(rows, "fifo", "2x3").run_jobs((0, ((0, 2),)))
    stage.state.change_nodes([(0, "draining")])
    assert faults(stage, [(0, ((0, 1),))]) == []
    assert faults(stage, [(0, ((0, 2), (1, 2)))]) == []
    stays = "job 0 may finish on its draining node"
    assert faults(stage, [(0, ((1, 2),))]) == [f"{stays} and would move"]
    assert faults(stage, [(0, None)]) == [stays]
    assert faults(stage, [(0, ((0, 3),))]) == ["job 0 would start on closed node 0"]


def test_a_gpu_type_is_kept() -> None:
    stage = Stage([Row(1, 5, gpu_type="t4")], "fifo", "1x4:v100+1x4:t4")
    assert faults(stage, [(0, ((1, 1),))]) == []
    assert faults(stage, [(0, ((0, 1),))]) == ["job 0 needs t4 GPUs; node 0 has none"]


def refused(stage: Stage, job: int, spans: tuple[tuple[int, int], ...]) -> bool:
    """Tells whether the tables refuse a start."""
    try:
        assert faults(stage, [(job, spans)]) == []
    except IllegalPlan:
        return True
    return False


def test_naming_the_gpus_a_job_holds_is_no_move() -> None:
    # A host that runs by count must name its GPUs before a guest can join.
    rows = [Row(1, 5, preemptible=False, **SHARED)]  # type: ignore[arg-type]
    stage = Stage(rows, "fifo", "1x4").run_jobs((0, ((0, 1),)))
    assert faults(stage, [(0, one(0))], frozenset({"share"})) == []


def test_a_plan_over_a_quota_is_refused() -> None:
    cluster = Cluster((NodeGroup("all", 1, 8),), queues=(QueueSpec("q", 2),))
    rows = [Row(2, 5, queue="q"), Row(1, 5, queue="q"), Row(3, 5)]
    stage = Stage(rows, "fifo", cluster).run_jobs((0, ((0, 2),)))
    assert refused(stage, 1, ((0, 1),))
    assert not refused(stage, 2, ((0, 3),))


def test_a_plan_over_the_cpus_or_memory_of_a_node_is_refused() -> None:
    cluster = Cluster((NodeGroup("all", 2, 8, cpus=16, memory_bytes=64),))
    rows = [Row(1, 5, cpus=12), Row(1, 5, cpus=8), Row(1, 5, memory_bytes=65)]
    stage = Stage(rows, "fifo", cluster).run_jobs((0, ((0, 1),)))
    assert refused(stage, 1, ((0, 1),))
    assert not refused(stage, 1, ((1, 1),))
    assert refused(stage, 2, ((1, 1),))


def test_the_audit_finds_tables_that_do_not_add_up() -> None:
    stage = Stage([Row(1, 5), Row(1, 5)], "fifo", "2x2").run_jobs((0, ((0, 1),)))
    assert audit(stage.view, stage.view.plan.occupancy) == []
    stage.view.plan.occupancy.free[1] = 1
    assert "node 1: 1 free is wrong" in audit(stage.view, stage.view.plan.occupancy)


def test_the_audit_finds_a_job_that_both_runs_and_waits() -> None:
    stage = Stage([Row(1, 5), Row(1, 5)], "fifo", "2x2").run_jobs((0, ((0, 1),)))
    stage.state.waiting.add(0, 0.0)
    assert audit(stage.view, stage.view.plan.occupancy) == ["job 0 both runs and waits"]


def test_parts_of_one_gpu_need_no_power_to_share_and_never_meet_a_whole_job() -> None:
    stage = Stage([Row(1, 5, gpu_part=0.6), Row(1, 5, gpu_part=0.4), Row(1, 5)], "fifo", "1x2")
    spans = ((0, 1),)
    together = [(0, one(1, gpu_part=0.6)), (1, one(1, gpu_part=0.4)), (2, spans)]
    assert faults(stage, together, frozenset()) == []
    with pytest.raises(IllegalPlan, match="job 2: wants all of GPU 1 of node 0, which is held"):
        faults(stage, [(0, one(1, gpu_part=0.6)), (2, one(1))])
    with pytest.raises(IllegalPlan, match=r"job 1: wants 0\.4 of GPU 1 of node 0, which is held"):
        faults(stage, [(2, one(1)), (1, one(1, gpu_part=0.4))])


def test_parts_of_a_gpu_do_not_exceed_it() -> None:
    rows = [Row(1, 5, gpu_part=0.1)] * 11
    stage = Stage(rows, "fifo", "1x1")
    moves = [(job, one(0, gpu_part=0.1)) for job in range(10)]
    assert faults(stage, moves, frozenset()) == []
    with pytest.raises(IllegalPlan, match=r"job 10: wants 0\.1 of GPU 0 of node 0"):
        faults(stage, [*moves, (10, one(0, gpu_part=0.1))])
    thirds = Stage([Row(1, 5, gpu_part=0.334)] * 3, "fifo", "1x1")
    with pytest.raises(IllegalPlan, match=r"job 2: wants 0\.334"):
        faults(thirds, [(job, one(0, gpu_part=0.334)) for job in range(3)])


def test_a_job_gets_the_part_it_asked_for_and_is_not_restricted_besides() -> None:
    stage = Stage([Row(1, 5, gpu_part=0.5), Row(1, 5, gpu_part=0.0)], "fifo", "1x2")
    assert faults(stage, [(0, Placement(((0, 1),)))]) == [
        "job 0 asked for 0.5 of a GPU and got 1",
    ]
    assert faults(stage, [(1, Placement(((0, 1),)))]) == [
        "job 1 asked for 0 of a GPU and got 1",
    ]
    restricted = one(0, gpu_part=0.5, fractions=(0.5,))
    assert faults(stage, [(0, restricted)]) == [
        "job 0 holds parts of GPUs and is restricted or takes turns"
    ]
    with pytest.raises(IllegalPlan, match="names them"):
        Placement(((0, 1),), gpu_part=0.5)
