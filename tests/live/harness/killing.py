"""Where the controller may be killed, and the disk that fills up.

A kill is an exception that nothing catches: it unwinds the controller's whole stack, and what was
in memory is gone. What was on its way through the post, and what is on disk, stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random

from dovetail.live.edges.protocols import Journal, JournalEntry, Post, StoreError
from dovetail.wire.agent import AgentOrder


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


class Unread:
    """The orders of a controller that no agent has read yet.

    They are in sockets, where they outlive it, or in its own memory, where they do not.
    """

    def __init__(self) -> None:
        self._unread: dict[int, tuple[int, AgentOrder]] = {}
        self._lost: dict[int, AgentOrder] = {}

    def sent(self, node: int, order: AgentOrder) -> None:
        """Sees an order sent."""
        self._unread[id(order)] = (node, order)

    def read(self, order: AgentOrder) -> bool:
        """Sees an order come to its agent; False if it was lost with its controller."""
        self._unread.pop(id(order), None)
        return id(order) not in self._lost

    def lose(self, rng: Random) -> int:
        """Loses what each node has not read yet, from some order on; returns how much."""
        by_node: dict[int, list[AgentOrder]] = {}
        for node, order in self._unread.values():
            by_node.setdefault(node, []).append(order)
        lost = [o for _, those in sorted(by_node.items()) for o in those[_cut(rng, those) :]]
        self._lost.update({id(order): order for order in lost})
        return len(lost)


def _cut(rng: Random, orders: Sequence[AgentOrder]) -> int:
    return rng.randrange(len(orders) + 1)


class WatchedJournal:
    """Shows every entry that is durable, also one that the writer never learned to be so."""

    def __init__(self, inner: Journal, kept: Callable[[JournalEntry], None]) -> None:
        self._inner = inner
        self._kept = kept

    def write(self, entry: JournalEntry) -> None:
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

    def __init__(self, inner: Post, points: CrashPoints, unread: Unread) -> None:
        self._inner = inner
        self._points = points
        self._unread = unread

    def send(self, node: int, order: AgentOrder) -> None:
        """Sends the order."""
        self._points.reach("send")
        self._unread.sent(node, order)
        self._inner.send(node, order)
