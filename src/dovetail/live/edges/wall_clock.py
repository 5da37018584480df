"""The machine's clock, and an inbox that other threads fill: edges of a real controller."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import monotonic

from dovetail.live.edges.protocols import Incoming

LONGEST_WAIT_S = 3600.0
"""The longest single wait on a lock; a longer wait is several of these."""


class WallClock:
    """The cluster's time: goes on from `start_s`, `speed` times as fast as the machine's.

    The machine's clock is the monotonic one: setting the date does not touch a cluster.
    """

    def __init__(self, start_s: float = 0.0, speed: float = 1.0) -> None:
        self.speed = speed
        self._start_s = start_s
        self._began_s = monotonic()

    def now(self) -> float:
        """Returns the present."""
        return self._start_s + (monotonic() - self._began_s) * self.speed


class ThreadInbox:
    """Messages that any thread puts in, for the one thread that waits for them."""

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._messages: list[Incoming] = []
        self._arrival = threading.Condition()

    def put(self, incoming: Incoming) -> None:
        """Adds a message, from any thread."""
        with self._arrival:
            self._messages.append(incoming)
            self._arrival.notify()

    def wait(self, until: float) -> Sequence[Incoming]:
        """Returns all messages, waiting for the first; none if `until` comes before it."""
        with self._arrival:
            while not self._messages:
                left_s = (until - self._clock.now()) / self._clock.speed
                if left_s <= 0:
                    return ()
                self._arrival.wait(min(left_s, LONGEST_WAIT_S))
            messages, self._messages = self._messages, []
            return messages
