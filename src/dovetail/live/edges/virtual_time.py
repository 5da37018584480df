"""The edges of the live world in virtual time: one heap of events drives the whole cluster.

The controller's loop is the only thing that runs. Whenever it waits for its inbox, time passes up
to the next message for it. So a day of a live cluster takes seconds, and the same seed gives the
same day.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import partial

from dovetail.core.errors import DovetailError
from dovetail.core.units import NEVER_S
from dovetail.live.edges.protocols import Incoming
from dovetail.wire.agent import AgentOrder


class Timeline:
    """The events to come, by time; events of one instant in the order in which they were added."""

    __slots__ = ("_count", "_events", "now")

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._count = 0
        self._events: list[tuple[float, int, Callable[[], object]]] = []

    def at(self, time_s: float, do: Callable[[], object]) -> None:
        """Schedules a call for a time; for now if that is past."""
        self._count += 1
        heapq.heappush(self._events, (max(time_s, self.now), self._count, do))

    def after(self, delay_s: float, do: Callable[[], object]) -> None:
        """Schedules a call after a delay."""
        self.at(self.now + delay_s, do)

    @property
    def next_s(self) -> float:
        """Returns when the next event is due; infinite if there is none."""
        return self._events[0][0] if self._events else NEVER_S

    def step(self) -> None:
        """Moves to the next event and makes its call."""
        self.now, _, do = heapq.heappop(self._events)
        do()

    def pass_until(self, time_s: float) -> None:
        """Makes all calls up to a time, and moves there."""
        while self.next_s <= time_s:
            self.step()
        self.now = max(self.now, time_s)


class VirtualClock:
    """The time of a timeline plus `ahead_s`: a restart may find the clock ahead of the last one."""

    def __init__(self, line: Timeline, ahead_s: float = 0.0) -> None:
        self._line = line
        self._ahead_s = ahead_s

    def now(self) -> float:
        """Returns the present."""
        return self._line.now + self._ahead_s


class VirtualInbox:
    """The messages for one controller; while it waits for them, time passes.

    `ahead_s` is that of the controller's clock.
    """

    def __init__(self, line: Timeline, ahead_s: float = 0.0) -> None:
        self._line = line
        self._ahead_s = ahead_s
        self._messages: list[Incoming] = []

    def put(self, message: Incoming) -> None:
        """Adds a message now."""
        self._messages.append(message)

    def wait(self, until: float) -> Sequence[Incoming]:
        """Returns all messages there are; time passes up to the first one, or to `until`."""
        line = self._line
        until -= self._ahead_s
        while not self._messages and line.next_s < NEVER_S and line.next_s <= until:
            line.step()
        # Of one instant all messages are returned together, as a real controller finds them.
        while self._messages and line.next_s <= line.now:
            line.step()
        if not self._messages:
            if until == NEVER_S:
                raise DovetailError("the controller waits and nothing is left to happen")
            line.now = max(line.now, until)
        messages, self._messages = self._messages, []
        return messages


class VirtualPost:
    """Sends orders by calls of `deliver`, each once, in order, after the same delay."""

    def __init__(
        self, line: Timeline, deliver: Callable[[int, AgentOrder], None], delay_s: float = 0.0005
    ) -> None:
        self._line = line
        self._deliver = deliver
        self._delay_s = delay_s

    def send(self, node: int, order: AgentOrder) -> None:
        """Sends an order; it arrives after the delay."""
        self._line.after(self._delay_s, partial(self._deliver, node, order))
