"""How soon the next arrival or end is expected: the time for which a decision will stand."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.core.view import View
from dovetail.mechanisms.elastic.shares import churned

REMEMBERED = 20
"""Events over which the mean gap is taken, the latest counting most."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The mean time between events, the number of events behind it, and when the last was."""

    gap_s: float = 0.0
    events: int = 0
    last_s: float = 0.0

    def at(self, view: View) -> Pace:
        """Returns the pace with the event that a view shows, if it shows one."""
        if not churned(view.changes):
            return self
        if not self.events:
            return Pace(0.0, 1, view.now)
        seen = min(self.events, REMEMBERED)
        gap_s = self.gap_s + (view.now - self.last_s - self.gap_s) / seen
        return Pace(gap_s, self.events + 1, view.now)


NO_PACE = Pace()
