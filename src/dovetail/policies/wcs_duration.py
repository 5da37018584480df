"""Work-conserving, shortest predicted job first: starts everything that fits, in that order.

Source: A-SRPT section V.A; ALGORITHMS section 5.3. Knows: length. Stops running jobs: no.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.pipelines.heavy_edge_placement import start_in_order


@register("wcs-duration")
@dataclass(frozen=True, slots=True)
class WcsDuration:
    """Order of predicted length; who does not fit is passed over."""

    knows: ClassVar[frozenset[str]] = frozenset({"length"})
    powers: ClassVar[frozenset[str]] = frozenset()
    order: ClassVar[Order] = Order(lambda view, jobs: view.progress.length_s(jobs))
    initial: ClassVar[None] = None

    def decide(self, view: View, memory: object) -> Decision:
        """Starts the shortest jobs that fit."""
        draft, because = start_in_order(view, "skip")
        return Decision(draft, because=because)
