"""Where the controller may be killed, and the disk that fills up.

A kill is an exception that nothing catches: it unwinds the controller's whole stack, and what was
in memory is gone. What was on its way through the post, and what is on disk, stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from dovetail.live.edges import Entry, Journal, Post, StoreError
from dovetail.wire.agent import Order


class Killed(BaseException):
    """SIGKILL. No code under test may catch it."""


class CrashPoints:
    """Counts the points at which a controller can be killed, and kills it at those chosen.

    They are the beginning of each transaction, the instants before and after its commit, and the
    sending of each order. A disk that is full refuses transactions at their beginning.
    """

    def __init__(self, at: Collection[int] = ()) -> None:
        self._at = frozenset(at)
        self.passed = 0
        self.disk_full = False

    def reach(self, where: str) -> None:
        """Passes one point, or dies there."""
        self.passed += 1
        if self.passed in self._at:
            raise Killed(where)
        if where == "begin" and self.disk_full:
            raise StoreError("no space left on device")


class WatchedJournal:
    """Shows every entry that is durable, also one that the writer never learned to be so."""

    def __init__(self, inner: Journal, kept: Callable[[Entry], None]) -> None:
        self._inner = inner
        self._kept = kept

    def write(self, entry: Entry) -> None:
        """Writes the entry."""
        try:
            self._inner.write(entry)
        except Killed as death:
            if death.args == ("after commit",):
                self._kept(entry)
            raise
        self._kept(entry)


class KillingPost:
    """A post between whose letters the controller may die."""

    def __init__(self, inner: Post, points: CrashPoints) -> None:
        self._inner = inner
        self._points = points

    def send(self, node: int, order: Order) -> None:
        """Sends the order."""
        self._points.reach("send")
        self._inner.send(node, order)
