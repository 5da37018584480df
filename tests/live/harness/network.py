"""The network between controller and nodes, with the weather and the faults of a story."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from harness.story import CALM_S, Weather

from dovetail.live.edges.virtual_time import Timeline
from dovetail.wire.agent import AgentOrder


class FaultyNetwork:
    """Delays, losses and doubles drawn from a seed; nodes that are deaf or silent for a while.

    What is said to or by an agent that is stopped waits in its socket, in order, until it goes on.
    """

    def __init__(self, line: Timeline, weather: Weather, rng: Random) -> None:
        self._line = line
        self._weather = weather
        self._rng = rng
        self.deaf: dict[int, float] = {}
        self.stopped: dict[int, float] = {}
        self.silent: dict[int, float] = {}

    def delays_s(self, node: int, *, up: bool) -> Sequence[float]:
        """Returns when each copy of the next message arrives."""
        now, weather, rng = self._line.now, self._weather, self._rng
        if (self.silent if up else self.deaf).get(node, -1.0) > now:
            return ()
        if self.stopped.get(node, -1.0) > now:
            return (self.stopped[node] - now + 0.0005,)
        if now > CALM_S or weather == Weather():
            return (0.0005,)
        if rng.random() < weather.lost:
            return ()
        copies = 2 if rng.random() < weather.doubled else 1
        return [0.0005 + rng.random() * weather.late_s for _ in range(copies)]


class FaultyPost:
    """Sends orders over a faulty network: each arrives as often and as late as that decides."""

    def __init__(
        self, line: Timeline, deliver: Callable[[int, AgentOrder], None], network: FaultyNetwork
    ) -> None:
        self._line = line
        self._deliver = deliver
        self._network = network

    def send(self, node: int, order: AgentOrder) -> None:
        """Sends an order."""
        for delay_s in self._network.delays_s(node, up=False):
            self._line.after(delay_s, lambda: self._deliver(node, order))
