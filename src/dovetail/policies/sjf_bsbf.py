"""SJF-BSBF: shortest job first; with too few free GPUs, share where both jobs gain most.

A waiting job joins running ones if the mean completion time of the pair is clearly smaller than if
it waited for the host to end. Its batch is split into accumulation steps to fit the memory. It
starts as a whole gang or not at all; no job is ever stopped.

`priority=service` ranks by length times GPUs; `order-hosts=benefit` ranks hosts by the time that
sharing saves instead of the pair's completion time.

Source: SJF-BSBF Theorem 1, Algorithms 1 and 2, as settled in ALGORITHMS section 1. Knows:
length, interference, scaling, memory. Stops running jobs: no.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.sharing.best_benefit import BestBenefit
from dovetail.mechanisms.sharing.sharing_pass import decide

PRIORITIES = ("time", "service")
ORDERS = ("pair-jct", "benefit")


def left_s(view: View, jobs: Sequence[int]) -> list[float]:
    """Returns the solo seconds left of waiting jobs, after progress before an eviction."""
    return view.progress.left_s(jobs)


def left_service(view: View, jobs: Sequence[int]) -> list[float]:
    """Returns the solo seconds left of waiting jobs times their requested GPUs."""
    gpus = view.jobs.gpus
    return [s * int(gpus[j]) for j, s in zip(jobs, view.progress.left_s(jobs), strict=True)]


_RANK = {"time": Order(left_s), "service": Order(left_service)}


@register("sjf-bsbf")
@dataclass(frozen=True, slots=True)
class SjfBsbf:
    """Shortest job first with best sharing benefit first; non-preemptive."""

    priority: str = "time"
    order_hosts: str = "pair-jct"

    knows: ClassVar[frozenset[str]] = frozenset({"length", "interference", "scaling", "memory"})
    powers: ClassVar[frozenset[str]] = frozenset({"share"})
    initial: ClassVar[None] = None

    def __post_init__(self) -> None:
        if self.priority not in PRIORITIES:
            raise ValueError(f"priority is time or service, not '{self.priority}'")
        if self.order_hosts not in ORDERS:
            raise ValueError(f"order-hosts is pair-jct or benefit, not '{self.order_hosts}'")

    @property
    def order(self) -> Order:
        """Returns the rank of the waiting jobs: forecast length, or length times GPUs."""
        return _RANK[self.priority]

    def decide(self, view: View, memory: object) -> Decision:
        """Starts the shortest jobs on free GPUs or beside hosts that gain."""
        beside = BestBenefit(self.order_hosts == "benefit")
        return decide(view, memory, beside, by_service=self.priority == "service")
