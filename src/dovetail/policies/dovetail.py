"""Dovetail: every GPU goes to the job that gains most from it, at one price.

draft docs
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dovetail.core.order import Order
from dovetail.core.packing import arrange
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.elastic.budget import pool_of
from dovetail.mechanisms.elastic.shares import Contenders, churned, contenders, waits
from dovetail.mechanisms.elastic.shortest_first import left_s_of
from dovetail.mechanisms.pricing.market import Market, sell_alone, sell_shared
from dovetail.mechanisms.pricing.pace import Pace
from dovetail.mechanisms.pricing.values import speeds_of, weights_of


def _left(view: View, jobs: Sequence[int]) -> list[float]:
    return view.progress.left_s(jobs)


@register("dovetail")
@dataclass(frozen=True, slots=True)
class Dovetail:
    """GPUs to the highest gain."""

    order_power: float = 0.25
    move_s: float = 30.0
    share: bool = True

    knows: ClassVar[frozenset[str]] = frozenset({"length", "scaling", "interference", "memory"})
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate", "resize", "share"})
    order: ClassVar[Order] = Order(_left)
    initial: ClassVar[Pace] = Pace()

    def decide(self, view: View, memory: object) -> Decision:
        """Sells the GPUs anew after each event."""
        assert isinstance(memory, Pace)
        pace = memory.at(view)
        if not churned(view.changes):
            return Decision(None, pace)
        pool = pool_of(view)
        market = self._market(view, contenders(view, pool), pace)
        if self.share:
            outcome = sell_shared(view, market, max(pool.gpus, 0))
        else:
            outcome = sell_alone(market, max(pool.gpus, 0))
        draft = arrange(view, outcome.units, market.stakes(), named=self.share)
        return Decision(draft, pace, because=waits(view, draft))

    def _market(self, view: View, who: Contenders, pace: Pace) -> Market:
        left_s = left_s_of(view, who.jobs)
        speeds = speeds_of(who)
        weights = weights_of(view, who, left_s, speeds, self.order_power)
        held = np.minimum(who.held, speeds.shape[1] - 1)
        rate = speeds[np.arange(len(held)), np.maximum(held, who.low)]
        rate = np.where(np.isfinite(rate) & (rate > 0), rate, 1.0)
        horizon_s = np.maximum(self.move_s, np.minimum(left_s / rate, pace.gap_s))
        return Market(who, weights, speeds, horizon_s, self.move_s / horizon_s)
