"""SRSF-max: shortest remaining service first, each elastic job on as many GPUs as it can use.

A job's size is the fewest GPUs on which it is fastest; it runs on all of them or waits. Ranked
by the time left at that size times the size.

Source: AFS section 5.2, Figure 6; ALGORITHMS section 6. Knows: length, scaling.
Stops running jobs: yes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.job import Floats
from dovetail.core.order import Order
from dovetail.core.passes import check_bypass
from dovetail.core.policy import Decision, register
from dovetail.core.view import Running, View
from dovetail.mechanisms.elastic.peak_size import (
    left_at_peak_s,
    serve_at_peak,
    waiting_left_at_peak_s,
)


def _keys(view: View, jobs: Sequence[int]) -> list[float]:
    left_s, gpus = waiting_left_at_peak_s(view, jobs)
    service: list[float] = (left_s * gpus).tolist()
    return service


@register("srsf-max")
@dataclass(frozen=True, slots=True)
class SrsfMax:
    """Shortest remaining service first at peak sizes, preemptive."""

    bypass: str = "skip"

    knows: ClassVar[frozenset[str]] = frozenset({"length", "scaling"})
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate", "resize"})
    order: ClassVar[Order] = Order(_keys)
    initial: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_bypass(self.bypass)

    def decide(self, view: View, memory: object) -> Decision:
        """Ranks everybody by the service left at their peak sizes."""

        def keys(running: Running) -> Floats:
            left_s, gpus = left_at_peak_s(view, running.jobs, running.left_s)
            return left_s * gpus

        draft, because = serve_at_peak(view, keys, self.bypass)
        return Decision(draft, because=because)
