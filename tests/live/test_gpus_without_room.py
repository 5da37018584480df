"""A program of `dovetail.train` that found no room on its GPU, alone or beside another."""

import pytest
from live_stage import Stage

from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.jobs.lifecycle import State
from dovetail.wire.agent import AgentReport, WorkerEnded


@pytest.mark.parametrize("shared", [False, True])
def test_no_room_on_a_gpu_is_the_jobs_own_doing_only_if_it_is_alone(shared: bool) -> None:
    s = Stage("sjf-ffs", nodes=1, gpus=1, injected=1.2)
    number = 2 if shared else 1
    for t in range(number):
        s.submit(1.0 + t, duration_s=20.0, shareable=True, trains=True)
    end = WorkerEnded(number, 0, 1, 5, "")
    s.at(5.0, lambda: s.take([AgentReport(0, ended=end)]))
    s.play(6.0)
    record = s.record(number)
    if shared:
        assert (record.state, record.retries) == (State.PENDING, 1), "it fits where it is alone"
        assert "exit code 5" in record.detail
    else:
        assert (record.state, record.exit_code) == (State.OUT_OF_MEMORY, 5)
        assert record.reason == "OutOfMemory"
    s.check()


def test_who_is_still_bound_when_its_neighbour_has_left_is_not_to_blame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GpuMap, "bound", lambda gpus, job: 1 << 30)
    s = Stage("fifo", nodes=1, gpus=1)
    s.submit(1.0, duration_s=20.0, trains=True)
    s.at(5.0, lambda: s.take([AgentReport(0, ended=WorkerEnded(1, 0, 1, 5, ""))]))
    s.play(5.5)
    record = s.record(1)
    assert (record.state, record.retries) == (State.PENDING, 1)
    s.check()


@pytest.mark.parametrize("shared", [False, True])
def test_an_ordinary_program_that_said_so_is_treated_alike(shared: bool) -> None:
    s = Stage("sjf-ffs", nodes=1, gpus=1, injected=1.2)
    number = 2 if shared else 1
    for t in range(number):
        s.submit(1.0 + t, duration_s=20.0, shareable=True)
    end = WorkerEnded(number, 0, 1, 1, "out of memory")
    s.at(5.0, lambda: s.take([AgentReport(0, ended=end)]))
    s.play(6.0)
    record = s.record(number)
    if shared:
        assert (record.state, record.retries) == (State.PENDING, 1)
    else:
        assert (record.state, record.exit_code) == (State.OUT_OF_MEMORY, 1)
        assert (record.reason, record.detail) == (
            "OutOfMemory",
            "worker 0 ended with exit code 1: out of memory",
        )
    s.check()
