"""Smallest predicted workload first, strictly: A-SRPT's second baseline.

A workload is predicted length times GPUs. Else as spjf.

Source: A-SRPT section V.A; ALGORITHMS section 5.3. Knows: length. Stops running jobs: no.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.pipelines.heavy_edge_placement import start_in_order, workloads


@register("spwf")
@dataclass(frozen=True, slots=True)
class Spwf:
    """Order of predicted length times GPUs; a job that finds no room blocks all behind it."""

    knows: ClassVar[frozenset[str]] = frozenset({"length"})
    powers: ClassVar[frozenset[str]] = frozenset()
    order: ClassVar[Order] = Order(workloads)
    initial: ClassVar[None] = None

    def decide(self, view: View, memory: object) -> Decision:
        """Starts the smallest workloads until one does not fit."""
        draft, because = start_in_order(view, "strict")
        return Decision(draft, because=because)
