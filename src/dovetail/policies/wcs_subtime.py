"""Work-conserving, in order of submission: starts everything that fits, in that order.

Source: A-SRPT section V.A; ALGORITHMS section 5.3. Knows: nothing of lengths.
Stops running jobs: no.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.pipelines.heavy_edge_placement import start_in_order


@register("wcs-subtime")
@dataclass(frozen=True, slots=True)
class WcsSubtime:
    """Order of submission; who does not fit is passed over."""

    knows: ClassVar[frozenset[str]] = frozenset()
    powers: ClassVar[frozenset[str]] = frozenset()
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[None] = None

    def decide(self, view: View, memory: object) -> Decision:
        """Starts the earliest jobs that fit."""
        draft, because = start_in_order(view, "skip")
        return Decision(draft, because=because)
