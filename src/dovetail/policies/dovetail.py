"""Dovetail: every GPU goes to the job that gains most from it, at one price.

draft docs
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dovetail.algorithms.gpu_price import sell
from dovetail.core.job import Floats
from dovetail.core.messages import RESUME
from dovetail.core.order import Order
from dovetail.core.packing import Stake, Unit, arrange
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.elastic.budget import pool_of
from dovetail.mechanisms.elastic.shares import churned, contenders, waits
from dovetail.mechanisms.elastic.shortest_first import left_s_of
from dovetail.mechanisms.pricing.pace import Pace
from dovetail.mechanisms.pricing.values import speeds_of, weights_of, with_hysteresis


def _left(view: View, jobs: Sequence[int]) -> list[float]:
    return view.progress.left_s(jobs)


@register("dovetail")
@dataclass(frozen=True, slots=True)
class Dovetail:
    """GPUs to the highest gain."""

    order_power: float = 0.25
    move_s: float = 30.0
    repair: bool = True

    knows: ClassVar[frozenset[str]] = frozenset({"length", "scaling"})
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate", "resize"})
    order: ClassVar[Order] = Order(_left)
    initial: ClassVar[Pace] = Pace()

    def decide(self, view: View, memory: object) -> Decision:
        """Sells the GPUs anew after each event."""
        assert isinstance(memory, Pace)
        pace = memory.at(view)
        if not churned(view.changes):
            return Decision(None, pace)
        pool = pool_of(view)
        who = contenders(view, pool)
        left_s = left_s_of(view, who.jobs)
        speeds = speeds_of(who)
        weights = weights_of(view, who, left_s, speeds, self.order_power)
        held = np.minimum(who.held, speeds.shape[1] - 1)
        rate = np.maximum(speeds[np.arange(len(held)), np.maximum(held, who.low)], 1e-9)
        rate = np.where(np.isfinite(rate), rate, 1.0)
        horizon_s = np.maximum(self.move_s, np.minimum(left_s / rate, pace.gap_s))
        lost = self.move_s / horizon_s
        values = weights[:, None] * speeds
        priced = with_hysteresis(who, values, grow=lost, stop=lost)
        sale = sell(priced, max(pool.gpus, 0))
        units = [Unit((int(j),), int(g)) for j, g in zip(who.jobs, sale.gpus, strict=True) if g]
        stakes = {
            int(j): Stake(float(w), float(h))
            for j, w, h in zip(who.jobs, weights, horizon_s, strict=True)
        }
        draft = arrange(view, units, stakes)
        return Decision(draft, pace, because=waits(view, draft))
