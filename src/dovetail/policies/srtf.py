"""Shortest remaining time first: the jobs of least remaining solo time at the requested GPUs run.

At each event all jobs are ranked anew and placed greedily; a job that does not fit is skipped, a
running one that loses its GPUs waits and pays the switching cost when it resumes.

Source: ALGORITHMS section 6. Knows: length (and scaling, for other sizes).
Stops running jobs: yes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.job import Floats, Ints
from dovetail.core.order import Order
from dovetail.core.policy import Preset, register
from dovetail.mechanisms.elastic.sizes import Key, RankedPolicy, order_at_peak

PRESETS = {
    "srtf-e": Preset(
        "SRTF-E: shortest remaining time first at the requested sizes; who runs shares what is "
        "left.",
        {"sizes": "left-over"},
    ),
    "srtf-max": Preset(
        "SRTF-max: shortest remaining time first, each elastic job on as many GPUs as it can use.",
        {"sizes": "peak", "packing": "none"},
    ),
}


def _time_left(left_s: Floats, gpus: Floats | Ints) -> Floats:
    return left_s


@register("srtf", PRESETS)
@dataclass(frozen=True, slots=True)
class Srtf(RankedPolicy):
    """Shortest remaining time first, preemptive."""

    key: ClassVar[Key] = _time_left
    order_as_requested: ClassVar[Order] = Order(lambda view, jobs: view.progress.left_s(jobs))
    order_at_peak: ClassVar[Order] = order_at_peak(_time_left)
