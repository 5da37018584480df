"""Waiting jobs in order, on the servers with most free GPUs, replicas by Heavy-Edge.

A-SRPT's baselines, as presets. `order` ranks by `submission`, by predicted `length`, or by
`workload`, predicted length times GPUs. Under `bypass=strict` a job that finds no room blocks all
behind it ("If the shortest job does not fit, it will not schedule longer jobs with fewer GPUs.");
under `skip` (work-conserving) it is skipped.

Source: A-SRPT section V.A; ALGORITHMS section 5.3. Knows: length, unless by submission.
Stops running jobs: no.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.passes import check_bypass
from dovetail.core.policy import Decision, Preset, register
from dovetail.core.view import View
from dovetail.mechanisms.pipelines.heavy_edge_placement import start_in_order, workloads

ORDERS = {
    "submission": Order(lambda view, jobs: [0.0] * len(jobs)),
    "length": Order(lambda view, jobs: view.progress.length_s(jobs)),
    "workload": Order(workloads),
}
PRESETS = {
    "spjf": Preset(
        "Shortest predicted job first, strictly: A-SRPT's first baseline.",
        {"order_by": "length", "bypass": "strict"},
    ),
    "spwf": Preset(
        "Smallest predicted workload first, strictly: A-SRPT's second baseline.",
        {"order_by": "workload", "bypass": "strict"},
    ),
    "wcs-duration": Preset(
        "Work-conserving, shortest predicted job first: starts everything that fits, in that "
        "order.",
        {"order_by": "length", "bypass": "skip"},
    ),
    "wcs-subtime": Preset(
        "Work-conserving, in order of submission: starts everything that fits, in that order.",
        {"order_by": "submission", "bypass": "skip"},
    ),
    "wcs-workload": Preset(
        "Work-conserving, smallest predicted workload first: starts everything that fits, in that "
        "order.",
        {"order_by": "workload", "bypass": "skip"},
    ),
}


@register("heavy-edge", PRESETS)
@dataclass(frozen=True, slots=True)
class HeavyEdge:
    """Non-preemptive, in one of three orders, strict or work-conserving."""

    order_by: str = "submission"
    bypass: str = "skip"

    powers: ClassVar[frozenset[str]] = frozenset()
    initial: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_bypass(self.bypass)
        if self.order_by not in ORDERS:
            raise ValueError(f"order-by is {', '.join(ORDERS)}, not '{self.order_by}'")

    @property
    def knows(self) -> frozenset[str]:
        """Returns length, unless the order is that of submission."""
        return frozenset() if self.order_by == "submission" else frozenset({"length"})

    @property
    def order(self) -> Order:
        """Returns the order of waiting jobs."""
        return ORDERS[self.order_by]

    def decide(self, view: View, memory: object) -> Decision:
        """Starts the first jobs in order that fit, or until one does not."""
        draft, because = start_in_order(view, self.bypass)
        return Decision(draft, because=because)
