"""Where the processes of a plain program meet: the first node finds a port, then they start."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest
from test_agent import do, start
from test_agent import scene as agent_scene
from test_gang import JOB, Table

from dovetail.live.node.agent import Agent
from dovetail.live.node.rendezvous_addresses import LATELY, RendezvousAddresses
from dovetail.live.workers.gang_orders import due_orders, next_resend_s
from dovetail.live.workers.inventory_check import check_inventory
from dovetail.live.workers.node_addresses import NodeAddresses
from dovetail.wire.agent import EndWorker, FindPort, PortFound, StartWorker, WorkerState


@pytest.fixture
def ranks() -> Table:
    """A program that runs once on each of its GPUs."""
    table = Table(trains=False)
    table.gang.roster.launch = replace(table.gang.roster.launch, distributed=True)
    table.want((0, 4, 1), (1, 2, 0), (2, 4, 0))
    return table


def found(table: Table, address: str, generation: int = 1) -> bool:
    return table.gang.roster.master.take(PortFound(JOB, generation, address))


def starts(table: Table, now: float) -> list[StartWorker]:
    return [order for _, order in table.orders(now) if isinstance(order, StartWorker)]


def test_the_first_node_is_asked_for_a_port_until_it_answers_and_then_all_start(
    ranks: Table,
) -> None:
    assert ranks.orders(0.0) == [(4, FindPort(JOB, 1))]
    assert next_resend_s(ranks.gang, 0.0) == 2.0
    assert ranks.orders(1.0) == []
    assert ranks.orders(2.0) == [(4, FindPort(JOB, 1))]
    assert not found(ranks, "10.0.0.4:5", generation=0), "an answer to an earlier start"
    assert ranks.orders(3.0) == []
    assert found(ranks, "10.0.0.4:4321") and not found(ranks, "10.0.0.4:99")
    begun = starts(ranks, 3.0)
    assert [order.master for order in begun] == ["10.0.0.4:4321"] * 3
    assert [(o.local_rank, o.group_rank, o.group_world_size) for o in begun] == [
        (0, 0, 2),
        (0, 1, 2),
        (1, 0, 2),
    ]


def test_an_agent_of_the_version_before_is_not_asked_and_the_port_is_guessed(ranks: Table) -> None:
    ranks.gang.roster.hosts.learn(4, "")
    assert [order.master for order in starts(ranks, 0.0)] == ["127.0.0.1:20360"] * 3
    ranks.gang.roster.hosts.learn(4, "10.0.0.4")
    assert ranks.gang.roster.hosts.finds_ports(4), "it was upgraded"


def test_each_start_asks_anew_and_no_answer_to_the_last_one_counts(ranks: Table) -> None:
    ranks.orders(0.0)
    found(ranks, "10.0.0.4:1")
    assert len(starts(ranks, 0.0)) == 3
    ranks.start(0, 1, 2)
    ranks.end(1, 9, 1.0, node=2)
    ranks.want((3, 2, 0), (4, 4, 1), now=1.0)
    for worker in (0, 2):
        ranks.end(worker, -15, 2.0, node=4)
    assert ranks.orders(3.0)[-1] == (2, FindPort(JOB, 2))
    assert not found(ranks, "10.0.0.4:1", generation=1)
    assert found(ranks, "10.0.0.2:7", generation=2)
    assert [order.master for order in starts(ranks, 3.0)] == ["10.0.0.2:7"] * 2


def test_workers_that_must_go_before_there_is_a_port_are_ended(ranks: Table) -> None:
    ranks.orders(0.0)
    ranks.gang.roster.vacate(1.0, 5.0, "end")
    assert {type(order) for _, order in ranks.orders(1.0)} == {EndWorker}


def test_a_later_controller_learns_the_port_from_the_ranks_that_run(ranks: Table) -> None:
    roster = ranks.gang.roster
    roster.generation = 6
    roster.restore(roster.wanted, (0, 1, 2), ran=False)
    row = WorkerState(JOB, 0, 6, 1, master="10.0.0.4:4321")
    check_inventory(ranks.gang, 4, [row], 1.0)
    assert ranks.gang.find_missing(1.0) == ()
    late = starts(ranks, 1.0)
    assert [(order.worker, order.master) for order in late] == [
        (1, "10.0.0.4:4321"),
        (2, "10.0.0.4:4321"),
    ]


def test_a_program_that_runs_once_or_trains_by_messages_waits_for_no_port() -> None:
    once = Table(trains=False)
    once.want((0, 0, 0), (0, 0, 1))
    assert [order.master for order in starts(once, 0.0)] == [""]
    trains = Table(trains=True)
    trains.gang.roster.launch = replace(trains.gang.roster.launch, distributed=True)
    trains.want((0, 0, 0), (1, 1, 0))
    assert len(starts(trains, 0.0)) == 2


def test_programs_that_want_slurms_variables_learn_the_names_of_all_nodes(ranks: Table) -> None:
    roster = ranks.gang.roster
    roster.launch = replace(roster.launch, slurm_variables=True)
    roster.hosts = NodeAddresses({4: "gpu-a4"})
    roster.hosts.learn(2, "10.0.0.2")
    ranks.orders(0.0)
    found(ranks, "10.0.0.4:1")
    begun = starts(ranks, 0.0)
    assert {order.nodes for order in begun} == {("gpu-a4", "10.0.0.2")}
    assert {order.tasks_on_nodes for order in begun} == {(2, 1)}


def test_an_agent_gives_one_port_of_its_own_address_to_a_start_however_often_it_is_asked() -> None:
    ports = iter([7001, 7002, 7003])
    _, stage = agent_scene()
    agent = Agent(3, ("a",), stage, ports=RendezvousAddresses("10.0.0.3", lambda host: next(ports)))
    first = do(agent, port=FindPort(1, 4))
    assert first[0].port == PortFound(1, 4, "10.0.0.3:7001")
    assert do(agent, port=FindPort(1, 4)) == first
    assert do(agent, port=FindPort(1, 3)) == [], "an older generation is not served"
    assert do(agent, epoch=0, port=FindPort(1, 5)) == [], "nor an older controller"
    (other,) = do(agent, port=FindPort(2, 1))
    assert other.port == PortFound(2, 1, "10.0.0.3:7002")
    assert agent.inventory().host == "10.0.0.3"


def test_a_port_given_out_lately_is_given_to_no_other_job() -> None:
    free = iter([5000, 5000, 5001, 5000, 5001, 5002])
    ports = RendezvousAddresses(free=lambda host: next(free))
    given = [ports.find(FindPort(job, 1)).address for job in range(3)]
    assert given == ["127.0.0.1:5000", "127.0.0.1:5001", "127.0.0.1:5002"]
    hardly_any = RendezvousAddresses(free=lambda host: 9)
    assert {hardly_any.find(FindPort(job, 1)).address for job in range(LATELY)} == {"127.0.0.1:9"}


def test_found_ports_are_free_on_the_address_of_the_node_alone() -> None:
    ports = RendezvousAddresses("127.0.0.3")
    address = ports.find(FindPort(1, 1)).address
    host, _, port = address.rpartition(":")
    assert host == "127.0.0.3"
    with socket.create_server((host, int(port))):
        assert RendezvousAddresses("127.0.0.3").find(FindPort(1, 1)).address != address


def test_an_address_that_the_node_does_not_have_is_the_reason_and_is_tried_again() -> None:
    ports = RendezvousAddresses("192.0.2.1")
    answer = ports.find(FindPort(1, 1))
    assert answer.why == "the node has no free port on 192.0.2.1: Cannot assign requested address"
    ports.host = "127.0.0.1"
    assert ports.find(FindPort(1, 1)).address.startswith("127.0.0.1:")


def test_orders_are_listed_without_a_step_too(ranks: Table) -> None:
    ranks.orders(0.0)
    assert due_orders(ranks.gang, 2.5) == [(4, FindPort(JOB, 1))]


def test_a_worker_is_listed_with_where_it_meets_the_others() -> None:
    agent, _ = agent_scene()
    do(agent, start=replace(start(), master="10.0.0.4:1"))
    assert agent.inventory().workers[0].master == "10.0.0.4:1"
