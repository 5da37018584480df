"""Shortest predicted job first, strictly: A-SRPT's first baseline.

"If the shortest job does not fit, it will not schedule longer jobs with fewer GPUs." Servers with
most free GPUs first, replicas by Heavy-Edge, as all baselines of that paper here.

Source: A-SRPT section V.A; ALGORITHMS section 5.3. Knows: length. Stops running jobs: no.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.pipelines.heavy_edge_placement import start_in_order


@register("spjf")
@dataclass(frozen=True, slots=True)
class Spjf:
    """Order of predicted length; a job that finds no room blocks all behind it."""

    knows: ClassVar[frozenset[str]] = frozenset({"length"})
    powers: ClassVar[frozenset[str]] = frozenset()
    order: ClassVar[Order] = Order(lambda view, jobs: view.progress.length_s(jobs))
    initial: ClassVar[None] = None

    def decide(self, view: View, memory: object) -> Decision:
        """Starts the shortest jobs until one does not fit."""
        draft, because = start_in_order(view, "strict")
        return Decision(draft, because=because)
