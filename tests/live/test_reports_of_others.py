"""A node whose agent lies: it ends, finishes and moves nothing that runs on other nodes."""

import logging
from dataclasses import replace
from random import Random

import pytest
from live_stage import RULES, Stage

from dovetail.live.jobs.lifecycle import State
from dovetail.wire.agent import (
    REPORTS,
    AgentReport,
    IdleReport,
    IdleWorker,
    Inventory,
    PortFound,
    WorkerDeferred,
    WorkerEnded,
    WorkerReport,
    WorkerStarted,
    WorkerState,
)
from dovetail.wire.codec import plain
from dovetail.wire.worker import Finished, Lost, Training
from random_messages import random_message

LEASED = replace(RULES, leases_s=(60.0, 60.0))
MINE, THEIRS = 1, 0
"""The node that lies, and that of the first job."""


def stage() -> Stage:
    """Two nodes with two GPUs, and a job on each: the first on node 0."""
    stage = Stage("fifo", rules=LEASED)
    stage.submit(1.0, gpus=2, duration_s=30.0)
    stage.submit(2.0, gpus=2, duration_s=40.0)
    return stage


def lies(stage: Stage, t: float, *reports: AgentReport) -> None:
    stage.at(t, lambda: stage.take(list(reports)))


def inventory(stage: Stage, t: float, *rows: WorkerState) -> None:
    """Lets node 1 list these workers, in answer to the newest request that it was sent."""

    def do() -> None:
        asked = [o.hail for _, node, o in stage.orders if node == MINE and o.hail is not None][-1]
        listed = Inventory(MINE, "x", ("a", "b"), rows, asked.epoch, asked.serial)
        stage.take([AgentReport(MINE, inventory=listed)])

    stage.at(t, do)


def outcome(stage: Stage, until: float = 100.0) -> tuple[list[tuple[int, int, int]], float]:
    """Returns where the first job was started, and when it ended."""
    stage.play(until)
    record = stage.record(1)
    assert record.state is State.COMPLETED and record.retries == record.restarts == 0
    (end,) = [fact.t for fact in stage.of(1) if type(fact).__name__ == "Ended"]
    return stage.starts(1), round(end, 1)


HONEST = outcome(stage())


@pytest.mark.parametrize(
    "report",
    [
        AgentReport(MINE, ended=WorkerEnded(1, 0, 1, 0)),
        AgentReport(MINE, ended=WorkerEnded(1, 0, 1, 1)),
        AgentReport(MINE, ended=WorkerEnded(1, 0, 1, -9, "killed")),
        AgentReport(MINE, said=WorkerReport(1, 0, finished=Finished(10, 10))),
        AgentReport(MINE, said=WorkerReport(1, 0, lost=Lost(1, "x"))),
        AgentReport(MINE, said=WorkerReport(1, 0, training=Training(1, 1, 10**6, 1e6, 1e-6))),
        AgentReport(MINE, progress=(WorkerReport(1, 0, finished=Finished(10, 10)),)),
        AgentReport(MINE, ended=WorkerEnded(1, 1, 1, 0)),
        AgentReport(MINE, started=WorkerStarted(1, 7, 9, 0)),
        AgentReport(MINE, said=WorkerReport(1, 7, finished=Finished(10, 10))),
        AgentReport(MINE, deferred=WorkerDeferred(1, 0, "send all data to n2")),
        AgentReport(MINE, port=PortFound(1, 1, "10.6.6.6:666")),
    ],
    ids=lambda report: "-".join(sorted(plain(report).keys() - {"node"})),
)
def test_what_a_node_reports_of_anothers_job_changes_nothing_and_is_logged(
    report: AgentReport, caplog: pytest.LogCaptureFixture
) -> None:
    liar = stage()
    lies(liar, 10.0, report, report)
    with caplog.at_level(logging.INFO):
        assert outcome(liar) == HONEST
    said = [r.getMessage() for r in caplog.records if "reports on job 1" in r.getMessage()]
    assert len(said) == 1, "refused, and logged once in a while"


@pytest.mark.parametrize(
    "row",
    [
        WorkerState(1, 0, 1, 0, exit_code=0),
        WorkerState(1, 0, 1, 0, exit_code=1),
        WorkerState(1, 0, 1, 0, finished=Finished(10, 10)),
        WorkerState(1, 7, 1, 0, finished=Finished(10, 10)),
        WorkerState(1, 7, 1, 0, exit_code=0),
    ],
)
def test_an_inventory_with_anothers_workers_is_believed_without_them(
    row: WorkerState, caplog: pytest.LogCaptureFixture
) -> None:
    liar = stage()
    own = WorkerState(2, 0, 1, 0, gpus=(0, 1))
    inventory(liar, 10.0, own, row)
    with caplog.at_level(logging.INFO):
        assert outcome(liar) == HONEST
    assert "node 1 reports on job 1" in caplog.text
    asked = [(node, o.end or o.forget) for _, node, o in liar.orders if o.end or o.forget]
    assert (MINE, (1, row.worker)) in [(node, (e.job, e.worker)) for node, e in asked]


def test_a_node_cannot_call_the_job_of_another_idle() -> None:
    liar = Stage("fifo", rules=replace(LEASED, reclaim_idle_s=60.0))
    liar.submit(1.0, gpus=2, duration_s=200.0)
    for t in range(10, 200, 5):
        lies(liar, t, AgentReport(MINE, idle=IdleReport((IdleWorker(1, 0, 100.0),))))
    liar.submit(2.0, gpus=2, duration_s=200.0)
    liar.play(300.0)
    assert liar.record(1).state is State.COMPLETED


def fuzzed(seed: int, reports: int) -> None:
    rng, liar = Random(seed), stage()

    def some() -> AgentReport:
        one = random_message(rng, AgentReport, some=rng.choice((0.1, 0.4)))
        told = REPORTS.decode(REPORTS.encode(replace(one, node=MINE)))
        # The gate lets no other number through, within these messages either.
        return replace(
            told,
            inventory=told.inventory and replace(told.inventory, node=MINE),
            alive=told.alive and replace(told.alive, node=MINE),
        )

    for _ in range(reports):
        lies(liar, rng.uniform(0.5, 45.0), some())
    starts, _ = outcome(liar)
    assert starts == HONEST[0]


@pytest.mark.parametrize("seed", range(6))
def test_whatever_a_node_reports_the_controller_goes_on_and_so_do_the_jobs_of_others(
    seed: int,
) -> None:
    fuzzed(seed, 200)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_whatever_a_node_reports_at_length_the_controller_goes_on(seed: int) -> None:
    fuzzed(seed, 1000)
