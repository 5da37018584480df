"""Work-conserving, smallest predicted workload first: starts everything that fits, in that order.

A workload is predicted length times GPUs.

Source: A-SRPT section V.A; ALGORITHMS section 5.3. Knows: length. Stops running jobs: no.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.pipelines.heavy_edge_placement import start_in_order, workloads


@register("wcs-workload")
@dataclass(frozen=True, slots=True)
class WcsWorkload:
    """Order of predicted length times GPUs; who does not fit is passed over."""

    knows: ClassVar[frozenset[str]] = frozenset({"length"})
    powers: ClassVar[frozenset[str]] = frozenset()
    order: ClassVar[Order] = Order(workloads)
    initial: ClassVar[None] = None

    def decide(self, view: View, memory: object) -> Decision:
        """Starts the smallest workloads that fit."""
        draft, because = start_in_order(view, "skip")
        return Decision(draft, because=because)
