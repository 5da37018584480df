"""A program of `dovetail.train` that ends with an error after it saved: tried again from there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from live_stage import Stage

from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.record import JobRecord
from dovetail.wire.agent import AgentReport, WorkerReport
from dovetail.wire.worker import Saved

PATIENT_S = 400.0


def stage(**spec: object) -> Stage:
    """Returns a cluster of one GPU with one long job on it."""
    s = Stage("fifo", nodes=1, gpus=1)
    s.submit(1.0, duration_s=10_000.0, **{"trains": True, **spec})
    return s


def saves(s: Stage, t: float, step: int) -> None:
    """Has the job's present worker save."""

    def do() -> None:
        worker = s.starts(1)[-1][0]
        s.take([AgentReport(0, said=WorkerReport(1, worker, saved=Saved(step, 10 * step)))])

    s.at(t, do)


def ends(s: Stage, t: float, code: int = 1, worker: int = -1) -> None:
    """Has a worker of the job, the newest if not said, end with a code."""

    def do() -> None:
        number = s.starts(1)[-1][0] if worker < 0 else worker
        s.take([_with_code(report, code) for report in s.nodes.kill(1, number, t)])

    s.at(t, do)


def _with_code(report: AgentReport, code: int) -> AgentReport:
    if report.ended is None:
        return report
    return replace(report, ended=replace(report.ended, exit_code=code))


def record_after(s: Stage, until: float) -> JobRecord:
    s.play(until)
    s.check()
    return s.record(1)


@pytest.mark.parametrize("code", [1, 3, 5, -6])
def test_an_error_after_a_new_checkpoint_is_retried_whatever_the_exit_code(code: int) -> None:
    s = stage()
    saves(s, 4.0, 7)
    ends(s, 5.0, code)
    record = record_after(s, 5.5)
    assert (record.state, record.retries, record.reason) == (State.PENDING, 1, "BeginTime")
    how = f"exit code {code}" if code > 0 else f"signal {-code}"
    assert record.detail == f"worker 0 ended with {how}, after the checkpoint of step 7"
    assert record_after(s, PATIENT_S).state is State.RUNNING


@pytest.mark.parametrize("code", [1, -6])
def test_an_error_without_a_checkpoint_is_the_programs_own(code: int) -> None:
    s = stage()
    ends(s, 5.0, code)
    assert record_after(s, 6.0).state is State.FAILED


def test_an_error_is_not_retried_again_without_a_newer_checkpoint() -> None:
    s = stage()
    saves(s, 4.0, 7)
    ends(s, 5.0)
    ends(s, 100.0)
    record = record_after(s, PATIENT_S)
    assert (record.state, record.reason, record.retries) == (State.FAILED, "NonZeroExitCode", 1)


def test_a_program_that_fails_after_each_checkpoint_uses_up_its_retries() -> None:
    s = stage(retries=2)
    for time in range(3):
        saves(s, 99.0 + 200 * time, 7 + time)
        ends(s, 100.0 + 200 * time)
    record = record_after(s, 400.0)
    assert (record.state, record.retries) == (State.RUNNING, 2)
    record = record_after(s, 600.0)
    assert (record.state, record.exit_code, record.reason) == (State.FAILED, 1, "NonZeroExitCode")
    assert record.detail.endswith("after the checkpoint of step 9; it was tried 3 times")


def test_a_checkpoint_counts_for_a_job_that_a_later_controller_took_over() -> None:
    s = stage()
    saves(s, 4.0, 7)
    assert record_after(s, 10.0).state is State.RUNNING
    ends(s, 40.0)
    assert record_after(s, 40.5).reason == "BeginTime"


def test_a_program_without_the_training_side_is_not_retried_for_its_exit_code() -> None:
    s = stage(trains=False)
    saves(s, 4.0, 7)
    ends(s, 5.0)
    assert record_after(s, 6.0).state is State.FAILED


def test_one_fault_that_ends_all_workers_in_turn_uses_up_one_retry() -> None:
    s = Stage("afs-p", nodes=1, gpus=4)
    s.submit(1.0, gpus=4, duration_s=10_000.0, min_gpus=1, max_gpus=4, trains=True)
    saves(s, 20.0, 7)
    for worker in range(4):
        ends(s, 30.0 + 0.1 * worker, worker=worker)
    record = record_after(s, 31.0)
    assert (record.state, record.retries) == (State.PENDING, 1)
    record = record_after(s, PATIENT_S)
    assert (record.state, record.retries, len(record.members)) == (State.RUNNING, 1, 4)
