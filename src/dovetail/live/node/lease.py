"""The lease of a node, as its agent has it: until when workers may run without a controller.

The controller renews it by answering a heartbeat, and it counts from the sending of that heartbeat:
an answer that comes late or twice gives no more time than one that came at once. It is kept for
later agents of the node, and for whatever ends the workers of a node without an agent.
"""

from __future__ import annotations

from dovetail.core.units import LONG_AGO_S, NEVER_S
from dovetail.wire.agent import Renew


class Lease:
    """Until when workers may run, by the clock of the node, and how long they may take to end.

    A node that was never given a lease starts nothing.
    """

    def __init__(self, until_s: float = LONG_AGO_S, length_s: float = 0.0, grace_s: float = 0.0):
        self.until_s, self.length_s, self.grace_s = until_s, length_s, grace_s
        self._ended_s = LONG_AGO_S
        self._renewed_for = ""

    def may_start(self, incarnation: str, now: float) -> bool:
        """Returns whether this agent may start workers: not by a lease that an earlier one had.

        The node may have been lost and gone since, and an order to start may be from before that.
        An answer to this agent's own heartbeat shows that its inventory was heard as well.
        """
        return self._renewed_for == incarnation and self.holds(now)

    def holds(self, now: float) -> bool:
        """Returns whether workers may run."""
        return now < self.until_s

    @property
    def due_s(self) -> float:
        """Returns when the workers must end; NEVER if they were told so."""
        return self.until_s if self.until_s > self._ended_s else NEVER_S

    def ends(self, now: float) -> bool:
        """Returns, once, whether the workers must end now."""
        is_due = self.due_s <= now
        self._ended_s = self.until_s if is_due else self._ended_s
        return is_due

    def renew(self, order: Renew, incarnation: str, now: float) -> bool:
        """Takes the answer to a heartbeat; False if it gives no more time."""
        if order.incarnation != incarnation or order.sent_s > now:
            # Another agent sent that heartbeat, whose clock may have been another one.
            return False
        self._renewed_for = incarnation
        until_s = order.sent_s + order.lease_s
        if until_s <= self.until_s:
            return False
        self.until_s, self.length_s, self.grace_s = until_s, order.lease_s, order.grace_s
        self.store()
        return True

    def store(self) -> None:
        """Stores the lease after each change; this one is in memory only."""
