"""The promise of a lease in numbers: no worker of a node outlives what its controller waits for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.live.engines.stored_lease import StoredFence
from dovetail.live.node.agent import Agent
from dovetail.live.node.launcher import AdoptedWorker, WorkerExit
from dovetail.live.node.lease import Lease
from dovetail.live.workers.rules import Rules
from dovetail.wire.agent import (
    AgentOrder,
    EndWorker,
    Heartbeat,
    InventoryRequest,
    Renew,
    StartWorker,
)
from dovetail.wire.worker import Abandon, Checkpoint, Entered, FromWorker, Hello, ToWorker

SECONDS = st.floats(0.0, 1000.0)


class Processes:
    """A launcher whose processes ignore SIGTERM and die `dies_s` after SIGKILL."""

    def __init__(self) -> None:
        self.alive: set[tuple[int, int]] = set()
        self.signals: list[tuple[tuple[int, int], int]] = []
        self.adopted: tuple[AdoptedWorker, ...] = ()
        self.told: list[tuple[int, ToWorker]] = []
        self._exits: list[WorkerExit] = []

    def adopt(self) -> tuple[AdoptedWorker, ...]:
        return self.adopted

    def start(self, order: StartWorker, token: str, now: float) -> None:
        self.alive.add((order.job, order.worker))

    def signal(self, job: int, worker: int, number: int) -> None:
        self.signals.append(((job, worker), number))
        if number == 9 and (job, worker) in self.alive:
            self.alive.discard((job, worker))
            self._exits.append(WorkerExit(job, worker, -9))

    def limit(self, order: StartWorker) -> None: ...

    def send(self, job: int, worker: int, message: ToWorker) -> None:
        self.told.append((worker, message))

    def store(self, job: int, worker: int, message: FromWorker) -> None: ...

    def poll(self) -> list[WorkerExit]:
        exits, self._exits = self._exits, []
        return exits

    def forget(self, job: int, worker: int) -> None: ...


def start(job: int = 1, worker: int = 0, serial: int = 0, grace_s: float = 10.0) -> AgentOrder:
    launch = StartWorker(job, worker, 1, 0, ("true",), "/jobs/1", "out", "/", grace_s=grace_s)
    return AgentOrder(1, start=launch, serial=serial)


def leased() -> tuple[Agent, Processes, Lease]:
    processes, lease = Processes(), Lease()
    return Agent(0, ("a",), processes, lease=lease, incarnation="x"), processes, lease


def renew(sent_s: float, lease_s: float = 60.0, grace_s: float = 5.0) -> AgentOrder:
    return AgentOrder(1, renew=Renew(lease_s, grace_s, "x", sent_s))


@given(
    lease_s=st.floats(10.0, 1e5),
    grace_s=st.floats(0.0, 600.0),
    margin_s=st.floats(0.0, 600.0),
    drift=st.floats(0.0, 0.2),
    agent_rate=st.floats(-1.0, 1.0),
    controller_rate=st.floats(-1.0, 1.0),
    answered_s=SECONDS,
    killed_part=st.floats(0.0, 1.0),
)
def test_the_last_worker_is_gone_before_its_node_is_lost(
    lease_s: float,
    grace_s: float,
    margin_s: float,
    drift: float,
    agent_rate: float,
    controller_rate: float,
    answered_s: float,
    killed_part: float,
) -> None:
    """In true time: a heartbeat is sent at 0 and heard `answered_s` later, where all else counts.

    The agent's clock and the controller's run as differently as they may.
    """
    rules = Rules(
        leases_s=(lease_s,), lease_grace_s=grace_s, lease_margin_s=margin_s, clock_drift=drift
    )
    agent_s = (lease_s + grace_s) / (1 + drift * agent_rate) + killed_part * margin_s
    controller_s = answered_s + rules.lost_after_s(0) / (1 + drift * controller_rate)
    assert agent_s <= controller_s * (1 + 1e-9)


def test_the_usual_lease_in_numbers() -> None:
    rules = Rules(leases_s=(600.0,))
    assert rules.lost_after_s(0) == pytest.approx((630 / 0.99 + 30) * 1.01)
    assert (Rules().lost_after_s(0), Rules().lease_s(0), rules.lease_s(1)) == (0.0, 0.0, 0.0)


def test_a_lease_too_short_to_be_renewed_is_refused() -> None:
    with pytest.raises(ValueError, match="a lease of 9 s is shorter than 10 s"):
        Rules(leases_s=(0.0, 9.0))


def test_nothing_starts_before_the_first_answer_to_a_heartbeat() -> None:
    agent, processes, _ = leased()
    assert agent.handle(start(), 1.0) == [] and not processes.alive
    assert agent.heartbeat(1.5).alive == Heartbeat(0, "x", 1.5)
    agent.handle(renew(1.5), 2.0)
    agent.handle(start(), 2.0)
    assert processes.alive == {(1, 0)}


def test_an_agent_without_a_lease_starts_at_once_and_never_ends_by_itself() -> None:
    processes = Processes()
    agent = Agent(0, ("a",), processes)
    agent.handle(start(), 1.0)
    agent.tick(1e9)
    assert processes.alive == {(1, 0)} and agent.heartbeat(5.0).alive == Heartbeat(0)


def test_over_its_lease_an_agent_asks_and_then_kills() -> None:
    agent, processes, lease = leased()
    agent.handle(renew(0.0), 0.0)
    agent.handle(start(grace_s=300.0), 1.0)
    assert agent.next_due() == 60.0
    agent.tick(60.0)
    assert processes.signals == [((1, 0), 15)] and agent.next_due() == 65.0
    reports = [*agent.tick(65.0), *agent.tick(65.1)]
    assert not processes.alive
    ended = next(r.ended for r in reports if r.ended is not None)
    assert (ended.exit_code, ended.why) == (-9, "no controller was heard for 60 s")
    assert agent.handle(start(worker=1), 66.0) == [] and not lease.holds(66.0)


def test_an_answer_counts_from_its_heartbeat_however_late_or_often_it_comes() -> None:
    agent, processes, lease = leased()
    agent.handle(renew(0.0), 0.0)
    agent.handle(start(), 1.0)
    for late_s in (30.0, 59.0):
        agent.handle(renew(0.0), late_s)
    assert lease.until_s == 60.0
    agent.handle(renew(10.0), 59.0)
    agent.handle(renew(5.0), 59.5)
    assert lease.until_s == 70.0
    agent.tick(70.0)
    assert processes.signals == [((1, 0), 15)]


def test_the_answer_to_another_agent_s_heartbeat_gives_no_time() -> None:
    agent, _, lease = leased()
    agent.handle(AgentOrder(1, renew=Renew(60.0, 5.0, "before the reboot", 1.0)), 2.0)
    agent.handle(renew(100.0), 2.0)
    assert not lease.holds(2.0)


def test_over_its_lease_one_worker_of_each_job_saves_alone_and_has_the_whole_grace() -> None:
    agent, processes, _ = leased()
    agent.handle(renew(0.0), 0.0)
    for job, worker in ((1, 0), (1, 1), (2, 0), (3, 0)):
        agent.handle(start(job, worker, grace_s=1.0), 1.0)
    for job, worker in ((1, 0), (1, 1), (2, 0)):
        agent.receive(job, worker, Hello(f"{job}/{worker}", "", worker), 2.0)
        agent.receive(job, worker, Entered(4, 10, 100, 0.0), 2.0)
    agent.tick(60.0)
    alone = [Abandon(4), Checkpoint(leave=True)]
    assert processes.told == [(0, message) for message in (*alone, *alone)]
    assert processes.signals == [((1, 1), 15), ((3, 0), 15)]
    agent.tick(61.0)
    agent.tick(64.9)
    assert processes.alive == {(1, 0), (2, 0)}, "the others had the grace of their jobs, 1 s"
    agent.tick(65.0)
    assert not processes.alive


def later_agent(lease: Lease, incarnation: str) -> tuple[Agent, Processes]:
    """An agent that finds the lease of an earlier one, and the worker that this had started."""
    processes = Processes()
    launch = start().start
    assert launch is not None
    processes.adopted = (AdoptedWorker(launch, "token", 1.0),)
    processes.alive = {(1, 0)}
    return Agent(0, ("a",), processes, lease=lease, incarnation=incarnation), processes


def test_a_later_agent_goes_on_with_the_lease_of_the_one_before() -> None:
    later, processes = later_agent(Lease(60.0, 60.0, 5.0), "y")
    later.tick(59.9)
    assert processes.signals == []
    later.tick(60.0)
    assert processes.signals == [((1, 0), 15)]


def test_a_later_agent_starts_nothing_before_it_was_heard_itself() -> None:
    """Its node may have been lost and gone since the order that is late."""
    later, processes = later_agent(Lease(60.0, 60.0, 5.0), "y")
    later.handle(start(worker=1), 10.0)
    assert processes.alive == {(1, 0)}
    later.handle(renew(5.0), 11.0)
    later.handle(start(worker=1), 11.0)
    assert processes.alive == {(1, 0)}, "an answer to the agent before"
    later.handle(AgentOrder(1, renew=Renew(60.0, 5.0, "y", 11.0)), 12.0)
    later.handle(start(worker=1), 12.0)
    assert processes.alive == {(1, 0), (1, 1)}


def test_what_is_void_stays_void_for_a_later_agent(tmp_path: Path) -> None:
    fence = StoredFence(tmp_path / "fence.json")
    fence.accept_epoch(3)
    fence.void(7)
    again = StoredFence(tmp_path / "fence.json")
    assert again.is_void(6) and not again.is_void(7) and again.accept_epoch(3)
    again.accept_epoch(4)
    assert not StoredFence(tmp_path / "fence.json").is_void(1)


def test_a_start_from_before_an_inventory_that_voids_it_is_not_carried_out() -> None:
    agent, processes, _ = leased()
    agent.handle(renew(0.0), 0.0)
    agent.handle(AgentOrder(1, hail=InventoryRequest(1, 8, void_before=7)), 1.0)
    agent.handle(start(serial=6), 2.0)
    assert not processes.alive
    agent.handle(start(serial=7), 2.0)
    assert processes.alive == {(1, 0)}
    # A later controller counts its requests anew.
    agent.handle(AgentOrder(2, hail=InventoryRequest(2, 1)), 3.0)
    agent.handle(AgentOrder(2, start=start(2).start, serial=1), 3.0)
    assert (2, 0) in processes.alive


def test_an_end_by_the_controller_is_not_put_off_by_the_lease() -> None:
    agent, processes, _ = leased()
    agent.handle(renew(0.0), 0.0)
    agent.handle(start(), 1.0)
    agent.handle(AgentOrder(1, end=EndWorker(1, 0, 2.0)), 59.0)
    agent.tick(60.0)
    agent.tick(61.0)
    assert processes.signals == [((1, 0), 15), ((1, 0), 9)]
