"""The edges of a controller that runs for real: the machine's clock, and an inbox for threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import monotonic

from dovetail.live.edges.protocols import Incoming

LONGEST_WAIT_S = 3600.0
"""What a lock may be asked to wait; whoever waits longer is asked again."""


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
    """What other threads put in, for the one thread that waits."""

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._come: list[Incoming] = []
        self._some = threading.Condition()

    def put(self, incoming: Incoming) -> None:
        """Takes what has come, from any thread."""
        with self._some:
            self._come.append(incoming)
            self._some.notify()

    def wait(self, until: float) -> Sequence[Incoming]:
        """Returns all that has come, waiting for the first up to `until`; empty when it is time."""
        with self._some:
            while not self._come:
                left_s = (until - self._clock.now()) / self._clock.speed
                if left_s <= 0:
                    return ()
                self._some.wait(min(left_s, LONGEST_WAIT_S))
            come, self._come = self._come, []
            return come
