"""Shortest remaining service first: the jobs of least remaining solo time times requested GPUs run.

At each event all jobs are ranked anew and placed greedily; a job that does not fit is passed
over, a running one that loses its GPUs waits and pays the switching cost when it resumes.

Source: ALGORITHMS section 6. Knows: length (and scaling, for other sizes).
Stops running jobs: yes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.job import Floats, Ints
from dovetail.core.order import Order
from dovetail.core.passes import check_bypass
from dovetail.core.policy import Decision, Preset, register
from dovetail.core.view import View
from dovetail.mechanisms.elastic.sizes import PEAK, check_sizes, declared, order_at_peak, rank_at

PRESETS = {
    "srsf-e": Preset(
        "SRSF-E: shortest remaining service first at the requested sizes; who runs shares what is "
        "left.",
        {"sizes": "left-over"},
    ),
    "srsf-max": Preset(
        "SRSF-max: shortest remaining service first, each elastic job on as many GPUs as it can "
        "use.",
        {"sizes": "peak"},
    ),
}


def _service_left(left_s: Floats, gpus: Floats | Ints) -> Floats:
    return left_s * gpus


def _keys(view: View, jobs: Sequence[int]) -> list[float]:
    gpus = view.jobs.gpus
    return [s * float(gpus[j]) for s, j in zip(view.progress.left_s(jobs), jobs, strict=True)]


AS_REQUESTED = Order(_keys)
AT_PEAK = order_at_peak(_service_left)


@register("srsf", PRESETS)
@dataclass(frozen=True, slots=True)
class Srsf:
    """Shortest remaining service first, preemptive."""

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
        """Returns the order by the service left at the sizes that jobs would get."""
        return AT_PEAK if self.sizes == PEAK else AS_REQUESTED

    def decide(self, view: View, memory: object) -> Decision:
        """Ranks waiting and running jobs and stops those that lose."""
        draft, because = rank_at(view, self.sizes, _service_left, self.bypass)
        return Decision(draft, because=because)
