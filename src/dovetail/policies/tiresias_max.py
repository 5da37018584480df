"""Tiresias-max: Tiresias-L, each elastic job on as many GPUs as it can use.

A job's size is the fewest GPUs on which it is fastest; it runs on all of them or waits. Queues
and falls are those of `tiresias`: by the GPU-seconds held, which a larger size spends faster.

Source: AFS section 5.2, Figure 6; ALGORITHMS section 6. Knows: attained service, scaling.
Stops running jobs: yes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.elastic.peak_size import serve_at_peak
from dovetail.policies.tiresias import Tiresias


@register("tiresias-max")
@dataclass(frozen=True, slots=True)
class TiresiasMax:
    """Discretised 2D-LAS at peak sizes, preemptive between queues. Thresholds in GPU-seconds."""

    thresholds: tuple[float, ...] = (3250.0,)
    bypass: str = "skip"

    knows: ClassVar[frozenset[str]] = frozenset({"attained service", "scaling"})
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate", "resize"})
    initial: ClassVar[None] = None

    def __post_init__(self) -> None:
        _ = self._queues

    @property
    def _queues(self) -> Tiresias:
        return Tiresias(self.thresholds, bypass=self.bypass)

    @property
    def order(self) -> Order:
        """Ranks a waiting job behind the running ones of its queue."""
        return self._queues.order

    def decide(self, view: View, memory: object) -> Decision:
        """Ranks all jobs by queue; wakes when the next running job falls to another queue."""
        queues = self._queues
        draft, because = serve_at_peak(view, queues.running_keys, self.bypass)
        return Decision(draft, wake_at=queues.next_fall_s(view, draft), because=because)
