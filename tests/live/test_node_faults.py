"""Faults that agents report drain nodes and GPUs, and put the jobs of a failed GPU back."""

from live_stage import Stage

from dovetail.core.cluster import DRAINING, UP
from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.status_snapshot import NodeStatus
from dovetail.wire.agent import (
    CHECK,
    DEVICE,
    DRAIN,
    FATAL,
    WARNING,
    AgentReport,
    HealthReport,
    NodeFault,
)


def report(stage: Stage, t: float, node: int, *faults: NodeFault) -> None:
    stage.at(t, lambda: stage.take([AgentReport(node, health=HealthReport(faults))]))


def status(stage: Stage, node: int) -> NodeStatus:
    assert stage.world is not None and stage.world.status is not None
    return stage.world.status.nodes[node]


OFF_THE_BUS = NodeFault(0, DEVICE, FATAL, "XID 79: the GPU has fallen off the bus")
WORN = NodeFault(0, DEVICE, DRAIN, "remapped memory rows await a reset")
HOT = NodeFault(1, DEVICE, WARNING, "slowed down: too hot")
SCRATCH = NodeFault(-1, CHECK, DRAIN, "health check: /scratch is read-only")


def test_a_job_on_a_gpu_that_fails_starts_elsewhere_by_no_fault_of_its_own() -> None:
    s = Stage(nodes=1, gpus=2)
    s.submit(1.0, duration_s=30.0, retries=0)
    report(s, 5.0, 0, OFF_THE_BUS)
    report(s, 15.0, 0, OFF_THE_BUS)
    s.submit(20.0, duration_s=5.0)
    s.play(100.0)
    assert [gpu for _, _, gpu in s.starts(1)] == [0, 1]
    assert s.record(1).state is State.COMPLETED and s.record(1).retries == 0
    (drain,) = status(s, 0).drains
    assert (drain.gpu, drain.reason, drain.by) == (0, OFF_THE_BUS.what, "driver")
    assert {gpu for _, _, gpu in s.starts(2)} == {1}


def test_a_job_on_a_worn_gpu_finishes_there() -> None:
    s = Stage(nodes=1, gpus=2)
    s.submit(1.0, duration_s=30.0)
    report(s, 5.0, 0, WORN)
    s.play(100.0)
    assert [gpu for _, _, gpu in s.starts(1)] == [0]
    assert status(s, 0).drained_gpus == (0,) and status(s, 0).state == UP


def test_a_warning_is_shown_and_drains_nothing() -> None:
    s = Stage(nodes=1, gpus=2)
    report(s, 5.0, 0, HOT)
    s.play(10.0)
    assert status(s, 0).warnings == ("GPU 1: slowed down: too hot",)
    report(s, 11.0, 0)
    s.play(20.0)
    assert status(s, 0).warnings == () and status(s, 0).drains == ()


def test_a_check_gives_the_node_back_and_a_users_drain_stays() -> None:
    s = Stage(nodes=2, gpus=1)
    s.ask(1.0, "drain", node=1)
    for node in (0, 1):
        report(s, 5.0, node, SCRATCH)
    s.play(10.0)
    assert [status(s, node).state for node in (0, 1)] == [DRAINING, DRAINING]
    assert [d.source for d in status(s, 1).drains] == ["user", CHECK]
    for node in (0, 1):
        report(s, 12.0, node)
    s.play(20.0)
    assert [status(s, node).state for node in (0, 1)] == [UP, DRAINING]


def test_a_user_may_take_back_what_a_fault_has_drained() -> None:
    s = Stage(nodes=1, gpus=2)
    report(s, 5.0, 0, WORN)
    s.ask(6.0, "undrain", node=0, argument='{"gpu": 0}')
    for at_s in (7.0, 17.0):
        report(s, at_s, 0, WORN)
    s.play(30.0)
    assert status(s, 0).drains == ()
    report(s, 31.0, 0, WORN, OFF_THE_BUS)
    s.play(40.0)
    assert status(s, 0).drains[0].reason == f"{OFF_THE_BUS.what}; {WORN.what}"


def test_reports_of_nodes_and_gpus_that_do_not_exist_change_nothing() -> None:
    s = Stage(nodes=1, gpus=1)
    report(s, 5.0, 0, NodeFault(7, DEVICE, FATAL, "XID 79"))
    report(s, 5.0, 3, SCRATCH)
    s.submit(6.0, duration_s=5.0)
    s.play(30.0)
    assert s.record(1).state is State.COMPLETED
