"""A policy that changes nothing: the shortest legal one, and a start for authors.

Copy this file, rename the class, and fill in `decide`. Since it starts no jobs, a run ends with an
error that lists the waiting jobs.

Knows: nothing. Stops running jobs: no.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.policy import Decision, register
from dovetail.core.view import View


@register("no-op")
@dataclass(frozen=True, slots=True)
class NoOp:
    """Leaves the plan as it is."""

    knows: ClassVar[frozenset[str]] = frozenset()
    powers: ClassVar[frozenset[str]] = frozenset()
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[None] = None

    def decide(self, view: View, memory: object) -> Decision:
        """Returns an empty decision: the plan stays."""
        return Decision()
