"""A job that its node failed is tried on another one, if there is one that could hold it."""

import pytest
from live_stage import Stage

from dovetail.core.messages import Avoided
from dovetail.live.jobs.lifecycle import State
from dovetail.live.node.launcher import BY_NODE
from dovetail.wire.agent import AgentReport, WorkerEnded


def fails(stage: Stage, t: float, job: int, why: str, code: int = 125) -> None:
    """Lets the agent of a job's first worker report that it ended."""

    def do() -> None:
        worker, node, _ = stage.starts(job)[-1]
        ended = WorkerEnded(job, worker, stage.record(job).generation, code, why)
        stage.take([AgentReport(node, ended=ended)])

    stage.at(t, do)


def nodes(stage: Stage, job: int) -> list[int]:
    return [node for _, node, _ in stage.starts(job)]


POLICIES = ["fifo", "sjf", "srtf", "max-min", "afs-p", "tiresias", "sjf-bsbf", "muri-s:tick-s=5"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_a_node_failed_is_tried_elsewhere(policy: str) -> None:
    s = Stage(policy, nodes=2, gpus=2)
    s.submit(1.0, duration_s=30.0)
    fails(s, 8.0, 1, "its keeper was killed")
    s.play(200.0)
    first, second = nodes(s, 1)
    assert first != second and s.record(1).retries == 1
    assert s.record(1).state is State.COMPLETED and s.record(1).avoided == ()
    s.check()


def test_a_failed_prolog_counts_no_retry() -> None:
    s = Stage(nodes=2, gpus=1)
    s.submit(1.0, duration_s=10.0, retries=0)
    fails(s, 5.0, 1, f"{BY_NODE}: prolog: no module")
    s.play(60.0)
    assert nodes(s, 1) == [0, 1] and s.record(1).retries == 0
    assert s.record(1).state is State.COMPLETED


def test_it_waits_for_another_node_that_is_busy() -> None:
    s = Stage(nodes=2, gpus=1)
    s.submit(1.0, duration_s=60.0)
    s.submit(2.0, duration_s=20.0)
    fails(s, 5.0, 1, "its keeper was killed")
    s.play(15.0)
    assert s.states()[1] is State.PENDING and s.record(1).avoided == (0,)
    # The next controller knows it too.
    s.play(100.0)
    assert nodes(s, 1) == [0, 1]


def test_the_ban_gives_way_where_no_other_node_could_hold_it() -> None:
    s = Stage(nodes=1, gpus=2)
    s.submit(1.0, duration_s=30.0)
    fails(s, 5.0, 1, "its keeper was killed")
    s.play(60.0)
    assert nodes(s, 1) == [0, 0] and s.record(1).state is State.COMPLETED
    assert not [f for f in s.facts if isinstance(f, Avoided)]


def test_the_ban_gives_way_once_the_other_node_is_gone() -> None:
    s = Stage(nodes=2, gpus=1)
    s.submit(1.0, duration_s=60.0)
    s.submit(2.0, duration_s=500.0)
    fails(s, 5.0, 1, "its keeper was killed")
    s.ask(20.0, "drain", node=1)
    s.play(100.0)
    assert nodes(s, 1) == [0, 0] and s.record(1).state is State.COMPLETED
    said = [f.nodes for f in s.facts if isinstance(f, Avoided)]
    assert said == [(0,), ()]


def test_the_ban_gives_way_after_a_minute_in_the_queue() -> None:
    """Under fifo others wait behind the job, beside the free GPUs of the node."""
    s = Stage(nodes=2, gpus=1)
    s.submit(1.0, duration_s=60.0)
    s.submit(2.0, duration_s=500.0)
    s.submit(20.0, duration_s=5.0)
    fails(s, 5.0, 1, "its keeper was killed")
    s.play(60.0)
    assert nodes(s, 1) == [0] and nodes(s, 3) == []
    s.play(300.0)
    assert nodes(s, 1) == nodes(s, 3)[:1] * 2 == [0, 0]


@pytest.mark.parametrize("code", [1, -11, -9])
def test_a_program_that_fails_is_not_kept_off_its_node(code: int) -> None:
    s = Stage(nodes=2, gpus=1)
    s.submit(1.0, duration_s=30.0)
    fails(s, 5.0, 1, "", code)
    s.play(60.0)
    assert not [f for f in s.facts if isinstance(f, Avoided)]
