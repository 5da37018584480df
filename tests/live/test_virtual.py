"""The edges in virtual time: what happens when, and what the controller is given."""

from __future__ import annotations

import pytest

from dovetail.core.errors import DovetailError
from dovetail.live.edges.protocols import NodeLost
from dovetail.live.edges.virtual_time import Timeline, VirtualClock, VirtualInbox, VirtualPost
from dovetail.wire.agent import AgentOrder, InventoryRequest


def test_events_happen_in_order_of_time_and_of_one_instant_in_the_order_put_in() -> None:
    line, seen = Timeline(), []
    for name, t in (("c", 2.0), ("a", 1.0), ("d", 2.0), ("b", 1.5)):
        line.at(t, lambda name=name: seen.append((name, line.now)))
    line.pass_until(1.5)
    assert seen == [("a", 1.0), ("b", 1.5)] and line.now == 1.5
    line.pass_until(9.0)
    assert seen[2:] == [("c", 2.0), ("d", 2.0)] and line.now == 9.0


def test_what_should_have_happened_happens_now() -> None:
    line = Timeline(now=5.0)
    line.at(1.0, lambda: None)
    assert line.next_s == 5.0


def test_an_inbox_waits_for_the_first_message_and_gives_all_of_its_instant() -> None:
    line = Timeline()
    inbox, clock = VirtualInbox(line), VirtualClock(line)
    for job, t in ((1, 3.0), (2, 3.0), (3, 4.0)):
        line.at(t, lambda job=job: inbox.put(NodeLost(job)))
    assert inbox.wait(2.0) == [] and clock.now() == 2.0
    assert inbox.wait(10.0) == [NodeLost(1), NodeLost(2)] and clock.now() == 3.0
    assert inbox.wait(10.0) == [NodeLost(3)]
    assert inbox.wait(10.0) == [] and clock.now() == 10.0
    with pytest.raises(DovetailError, match="nothing is left"):
        inbox.wait(float("inf"))


def test_a_clock_found_ahead_agrees_with_its_inbox() -> None:
    line = Timeline(now=7.0)
    inbox, clock = VirtualInbox(line, ahead_s=100.0), VirtualClock(line, ahead_s=100.0)
    assert clock.now() == 107.0
    assert inbox.wait(110.0) == [] and line.now == 10.0 and clock.now() == 110.0


def test_orders_arrive_once_in_order_after_the_delay() -> None:
    line, come = Timeline(), []
    post = VirtualPost(line, lambda node, order: come.append((line.now, node, order)), 0.5)
    order = AgentOrder(1, hail=InventoryRequest(1))
    for node in (2, 0, 1):
        post.send(node, order)
    line.pass_until(5.0)
    assert come == [(0.5, 2, order), (0.5, 0, order), (0.5, 1, order)]
