"""Shortest remaining time first: the jobs of least remaining solo time at the requested GPUs run.

At each event all jobs are ranked anew and placed greedily; a job that does not fit is passed
over, a running one that loses its GPUs waits and pays the switching cost when it resumes.

Source: ALGORITHMS section 6. Knows: length (and scaling, for other sizes).
Stops running jobs: yes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.job import Floats, Ints
from dovetail.core.order import Order
from dovetail.core.passes import check_bypass
from dovetail.core.policy import Decision, Preset, register
from dovetail.core.view import View
from dovetail.mechanisms.elastic.sizes import PEAK, check_sizes, declared, order_at_peak, rank_at

PRESETS = {
    "srtf-e": Preset(
        "SRTF-E: shortest remaining time first at the requested sizes; who runs shares what is "
        "left.",
        {"sizes": "left-over"},
    ),
    "srtf-max": Preset(
        "SRTF-max: shortest remaining time first, each elastic job on as many GPUs as it can use.",
        {"sizes": "peak"},
    ),
}


def _time_left(left_s: Floats, gpus: Floats | Ints) -> Floats:
    return left_s


AS_REQUESTED = Order(lambda view, jobs: view.progress.left_s(jobs))
AT_PEAK = order_at_peak(_time_left)


@register("srtf", PRESETS)
@dataclass(frozen=True, slots=True)
class Srtf:
    """Shortest remaining time first, preemptive."""

    bypass: str = "skip"
    sizes: str = "requested"

    initial: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_bypass(self.bypass)
        check_sizes(self.sizes)

    @property
    def knows(self) -> frozenset[str]:
        """Returns length, and scaling where sizes differ from the request."""
        return declared(frozenset({"length"}), self.sizes, "scaling")

    @property
    def powers(self) -> frozenset[str]:
        """Returns preempt and migrate, and resize where sizes differ from the request."""
        return declared(frozenset({"preempt", "migrate"}), self.sizes, "resize")

    @property
    def order(self) -> Order:
        """Returns the order by the time left at the sizes that jobs would get."""
        return AT_PEAK if self.sizes == PEAK else AS_REQUESTED

    def decide(self, view: View, memory: object) -> Decision:
        """Ranks waiting and running jobs and stops those that lose."""
        draft, because = rank_at(view, self.sizes, _time_left, self.bypass)
        return Decision(draft, because=because)
