"""Dovetail: each GPU goes to the job that gains most from it, at one price for all.

After every arrival and end all GPUs are sold anew. A job values n GPUs at its speed on them times
its weight, which is larger for short jobs and for jobs that use GPUs well. The next GPUs go to the
largest gain per GPU, over jumps of any size; the last gain is the price. Two jobs buy together
where they are worth more on shared GPUs, at that price, than apart. What a change costs is taken
off its gain over the time until the next event is expected. Jobs stay where they are, or whole
nodes are packed anew, whichever is worth more.

If nobody is elastic this is SRTF; if nobody may be stopped or resized, SJF-BSBF. `order-power` is
how strongly short jobs go first. `lengths=false` goes by attained progress instead of lengths.
`preempt`, `resize` and `share` take or leave these powers.

Source: docs/policies/dovetail.md. Knows: lengths (unless told not to), scaling, interference,
memory. Stops running jobs: yes, if that gains more than it costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dovetail.core.job import Floats, Ints
from dovetail.core.order import Order
from dovetail.core.packing import arrange
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.elastic.budget import pool_of
from dovetail.mechanisms.elastic.shares import Contenders, churned, contenders, waits
from dovetail.mechanisms.elastic.shortest_first import left_s_of
from dovetail.mechanisms.elastic.sizes import peak_gpus
from dovetail.mechanisms.elastic.marginal_shares import speeds
from dovetail.mechanisms.pricing.costs import costs_of
from dovetail.mechanisms.pricing.market import Market, sell_alone, sell_shared
from dovetail.mechanisms.pricing.pace import Pace
from dovetail.mechanisms.pricing.values import speeds_of, weights_of
from dovetail.mechanisms.sharing.sharing_pass import decide as share_without_stopping
from dovetail.policies.sjf_bsbf import BestBenefit

LEAST_DONE_S = 60.0
"""Without lengths a job counts as having as long left as it has run, and at least this long."""
SHORTEST_HORIZON_S = 1.0


def _time_left_at_peak(view: View, jobs: Sequence[int]) -> list[float]:
    left_s = np.array(view.progress.left_s(jobs), dtype=np.float64)
    rows = np.array(jobs, np.int64)
    rate = speeds(view, rows, peak_gpus(view, rows)[:, None])[:, 0]
    keys: list[float] = (left_s / np.maximum(rate, 1e-9)).tolist()
    return keys


BY_LENGTH = Order(_time_left_at_peak)
BY_SUBMISSION = Order(lambda view, jobs: [0.0] * len(jobs))


@dataclass(frozen=True, slots=True)
class Memory:
    """How often things happen, and what the pass without stops has looked at."""

    pace: Pace = Pace()
    looked: object = None


@register("dovetail")
@dataclass(frozen=True, slots=True)
class Dovetail:
    """All GPUs at one price; elastic, preemptive, sharing."""

    order_power: float = 0.25
    lengths: bool = True
    preempt: bool = True
    resize: bool = True
    share: bool = True

    initial: ClassVar[Memory] = Memory()

    def __post_init__(self) -> None:
        if not 0.0 <= self.order_power <= 1.0:
            raise ValueError("order-power is between 0 and 1")
        if not (self.preempt or self.resize or self.share):
            raise ValueError("without preempt, resize and share use sjf or backfill")

    @property
    def knows(self) -> frozenset[str]:
        """Returns scaling, lengths or what stands for them, and what sharing depends on."""
        words = {"scaling", "length" if self.lengths else "attained service"}
        return frozenset(words | ({"interference", "memory"} if self.share else set()))

    @property
    def powers(self) -> frozenset[str]:
        """Returns the powers that it was given."""
        powers = {"preempt", "migrate"} if self.preempt else set()
        powers |= {"resize"} if self.resize else set()
        return frozenset(powers | ({"share"} if self.share else set()))

    @property
    def order(self) -> Order:
        """Returns the shortest first, or as submitted without lengths."""
        return BY_LENGTH if self.lengths else BY_SUBMISSION

    def decide(self, view: View, memory: object) -> Decision:
        """Sells the GPUs anew after each event."""
        assert isinstance(memory, Memory)
        memory = replace(memory, pace=memory.pace.at(view))
        if self.share and self.lengths and not self._may_change(view):
            decision = share_without_stopping(view, memory.looked, BestBenefit(by_benefit=False))
            return replace(decision, memory=replace(memory, looked=decision.memory))
        if not churned(view.changes):
            return Decision(None, memory)
        pool = pool_of(view)
        market = self._market(view, self._within_powers(view, contenders(view, pool)), memory.pace)
        sale = sell_shared(view, market, pool.gpus) if self.share else sell_alone(market, pool.gpus)
        draft = arrange(view, sale.units, market.stakes(), named=self.share)
        return Decision(draft, replace(memory, looked=None), because=waits(view, draft))

    def _may_change(self, view: View) -> bool:
        """Returns whether any job may be stopped or resized once it runs."""
        if self.preempt:
            jobs = [*view.running, *view.waiting]
            return not jobs or bool(view.jobs.preemptible[jobs].any())
        return self.resize and bool(view.jobs.elastic.any())

    def _within_powers(self, view: View, who: Contenders) -> Contenders:
        """Returns the contenders with the ranges of GPUs that the powers leave them."""
        if self.resize:
            return who
        requested = view.jobs.gpus[who.jobs]
        return replace(who, low=requested, cap=requested)

    def _market(self, view: View, who: Contenders, pace: Pace) -> Market:
        left_s, best = self._left_s(view, who.jobs), speeds_of(who)
        weights = weights_of(view, who, left_s, best, self.order_power)
        held = np.minimum(np.maximum(who.held, who.low), best.shape[1] - 1)
        rate = best[np.arange(len(held)), held]
        rate = np.where(np.isfinite(rate) & (rate > 0), rate, 1.0)
        costs = costs_of(view, who)
        horizon_s = np.maximum(
            np.maximum(costs.stop_s, SHORTEST_HORIZON_S), np.minimum(left_s / rate, pace.gap_s)
        )
        grow_s = np.minimum(costs.grow_s, horizon_s)
        return Market(
            who, weights, best, horizon_s, stop=costs.stop_s / horizon_s, grow=grow_s / horizon_s
        )

    def _left_s(self, view: View, jobs: Ints) -> Floats:
        if self.lengths:
            return left_s_of(view, jobs)
        return np.maximum(np.array(view.progress.done_s(jobs.tolist())), LEAST_DONE_S)
