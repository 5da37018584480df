"""Shortest remaining service first: the jobs of least remaining solo time times requested GPUs run.

At each event all jobs are ranked anew and placed greedily; a job that does not fit is skipped, a
running one that loses its GPUs waits and pays the switching cost when it resumes.

Source: ALGORITHMS section 6. Knows: length (and scaling, for other sizes).
Stops running jobs: yes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.job import Floats, Ints
from dovetail.core.order import Order
from dovetail.core.policy import Preset, register
from dovetail.core.view import View
from dovetail.mechanisms.elastic.sizes import Key, RankedPolicy, order_at_peak

PRESETS = {
    "srsf-e": Preset(
        "SRSF-E: shortest remaining service first at the requested sizes; who runs shares what is "
        "left.",
        {"sizes": "left-over"},
    ),
    "srsf-max": Preset(
        "SRSF-max: shortest remaining service first, each elastic job on as many GPUs as it can "
        "use.",
        {"sizes": "peak", "packing": "none"},
    ),
}


def _service_left(left_s: Floats, gpus: Floats | Ints) -> Floats:
    return left_s * gpus


def _keys(view: View, jobs: Sequence[int]) -> list[float]:
    gpus = view.jobs.asked_gpus
    return [s * float(gpus[j]) for s, j in zip(view.progress.left_s(jobs), jobs, strict=True)]


@register("srsf", PRESETS)
@dataclass(frozen=True, slots=True)
class Srsf(RankedPolicy):
    """Shortest remaining service first, preemptive."""

    key: ClassVar[Key] = _service_left
    order_as_requested: ClassVar[Order] = Order(_keys)
    order_at_peak: ClassVar[Order] = order_at_peak(_service_left)
