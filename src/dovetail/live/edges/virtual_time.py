"""The edges of the live world in virtual time: one heap of events drives the controller and all
that it talks to.

The controller's loop is the only thing that runs: whenever it waits for its inbox, the heap makes
time pass up to the next message for it. So a day of a live cluster passes in seconds, and the same
seed gives the same day.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Protocol

from dovetail.core.errors import DovetailError
from dovetail.core.units import NEVER_S
from dovetail.live.edges.protocols import Incoming
from dovetail.wire.agent import AgentOrder


class Timeline:
    """What will happen, in order of time; of one instant, in the order in which it was put in."""

    __slots__ = ("_count", "_events", "now")

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._count = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, time_s: float, do: Callable[[], None]) -> None:
        """Lets something happen at a time, at once if that is past."""
        self._count += 1
        heapq.heappush(self._events, (max(time_s, self.now), self._count, do))

    def after(self, delay_s: float, do: Callable[[], None]) -> None:
        """Lets something happen after a delay."""
        self.at(self.now + delay_s, do)

    @property
    def next_s(self) -> float:
        """Returns when the next event is due; infinite if there is none."""
        return self._events[0][0] if self._events else NEVER_S

    def step(self) -> None:
        """Lets the next event happen."""
        self.now, _, do = heapq.heappop(self._events)
        do()

    def pass_until(self, time_s: float) -> None:
        """Lets everything happen up to a time, and makes it the present."""
        while self.next_s <= time_s:
            self.step()
        self.now = max(self.now, time_s)


class VirtualClock:
    """The time of the heap, which a restart may find `ahead_s` of where it was."""

    def __init__(self, line: Timeline, ahead_s: float = 0.0) -> None:
        self._line = line
        self._ahead_s = ahead_s

    def now(self) -> float:
        """Returns the present."""
        return self._line.now + self._ahead_s


class VirtualInbox:
    """What comes in for one controller. To wait is to let time pass.

    `ahead_s` is that of the controller's clock.
    """

    def __init__(self, line: Timeline, ahead_s: float = 0.0) -> None:
        self._line = line
        self._ahead_s = ahead_s
        self._come: list[Incoming] = []

    def put(self, message: Incoming) -> None:
        """Takes a message in now."""
        self._come.append(message)

    def wait(self, until: float) -> Sequence[Incoming]:
        """Returns all that has come, letting time pass up to the first of it or to `until`."""
        line = self._line
        until -= self._ahead_s
        while not self._come and line.next_s < NEVER_S and line.next_s <= until:
            line.step()
        while self._come and line.next_s <= line.now:
            line.step()
        if not self._come:
            if until == NEVER_S:
                raise DovetailError("the controller waits and nothing is left to happen")
            line.now = max(line.now, until)
        come, self._come = self._come, []
        return come


class Road(Protocol):
    """How messages travel between the controller and a node."""

    def delays_s(self, node: int, *, up: bool) -> Sequence[float]:
        """Returns when each copy of the next message arrives; empty if it is lost.

        `up` tells a report, on its way to the controller, from an order.
        """
        ...


class EvenRoad:
    """Every message arrives once, in turn, after the same time."""

    def __init__(self, delay_s: float = 0.0005) -> None:
        self._delays = (delay_s,)

    def delays_s(self, node: int, *, up: bool) -> Sequence[float]:
        """Returns the one delay."""
        return self._delays


class VirtualPost:
    """Takes orders along a road to the nodes, `deliver`ed there when they arrive."""

    def __init__(
        self, line: Timeline, deliver: Callable[[int, AgentOrder], None], road: Road | None = None
    ) -> None:
        self._line = line
        self._deliver = deliver
        self._road = road or EvenRoad()

    def send(self, node: int, order: AgentOrder) -> None:
        """Sends an order; it arrives as often and as late as the road says."""
        for delay_s in self._road.delays_s(node, up=False):
            self._line.after(delay_s, lambda: self._deliver(node, order))
