"""Dovetail: each GPU goes to the job that gains most from it, at one price for all.

After every arrival and end all GPUs are sold anew. A job values n GPUs at its speed on them times
its weight, which is larger for short jobs and for jobs that use GPUs well. The next GPUs go to the
largest gain per GPU, over jumps of any size. The price is the gain per GPU of the best jump that
found no room. Two jobs buy together where they are worth more on shared GPUs, at that price, than
apart. What a change costs is taken off its gain over the time until the next event is expected.
Jobs stay where they are, or whole nodes are packed anew, whichever is worth more.

If no job is elastic or shareable this is SRTF; if lengths are known and no job may be stopped,
SJF-BSBF. `order-power` is how strongly short jobs go first. `lengths=false` goes by attained
progress instead of lengths. `preempt=false`, `resize=false` and `share=false` take these powers
away. With `patience-s` the weight of a job grows with its age over that time, so that no job
starves behind shorter ones; 0 switches this off. With `deadline-weight` a job counts up to so many
times more as the time to its deadline gets short, and as before once that is lost; 0 leaves
deadlines out. For ablations: `jumps=false` looks one GPU ahead, and with `packing=none` jobs stay
where they grew.

Source: docs/policies/dovetail.md. Knows: lengths (unless told not to), scaling, interference,
memory. Stops running jobs: yes, if that gains more than it costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dovetail.core.job import Floats, Ints
from dovetail.core.messages import Reason
from dovetail.core.order import Order
from dovetail.core.packing import arrange
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.elastic.budget import pool_of
from dovetail.mechanisms.elastic.defragmenting import DEFRAGMENT, check_packing
from dovetail.mechanisms.elastic.marginal_shares import speeds
from dovetail.mechanisms.elastic.shares import Contenders, churned, contenders
from dovetail.mechanisms.elastic.shortest_first import left_s_of
from dovetail.mechanisms.elastic.sizes import peak_gpus
from dovetail.mechanisms.pricing.costs import costs_of
from dovetail.mechanisms.pricing.market import Market, sell_alone, sell_shared
from dovetail.mechanisms.pricing.pace import NO_PACE, Pace
from dovetail.mechanisms.pricing.values import one_ahead, speeds_of, urgency, weights_of
from dovetail.mechanisms.sharing.net_benefit import NetBenefit
from dovetail.mechanisms.sharing.sharing_pass import decide as share_without_stopping
from dovetail.mechanisms.sharing.sharing_pass import join_those_that_stay

OUTBID = "Outbid"
"""Reason of a waiting job: others make more of each GPU."""
LEAST_DONE_S = 60.0
"""Without lengths a job counts as having as long left as it has run, and at least this long."""
SHORTEST_HORIZON_S = 1.0
"""A decision counts as standing for at least this long."""
NEVER_STOPS = 1e9
"""How many times what it makes of its GPUs a job counts for that may not be stopped."""
LEAST_LEFT_S = 1e-6
"""A job with less than this left has outlived its forecast."""
OUTLIVED = 0.5
"""A job that has outlived its forecast has this share of its progress left."""


def _time_left_at_peak(view: View, jobs: Sequence[int]) -> list[float]:
    left_s = np.array(view.progress.left_s(jobs), dtype=np.float64)
    rows = np.array(jobs, np.int64)
    rate = speeds(view, rows, peak_gpus(view, rows)[:, None])[:, 0]
    keys: list[float] = (left_s / np.maximum(rate, 1e-9)).tolist()
    return keys


BY_LENGTH = Order(_time_left_at_peak)
BY_SUBMISSION = Order(lambda view, jobs: [0.0] * len(jobs))


@dataclass(frozen=True, slots=True)
class PriceMemory:
    """How often things happen."""

    pace: Pace = NO_PACE


@register("dovetail")
@dataclass(frozen=True, slots=True)
class Dovetail:
    """All GPUs at one price; elastic, preemptive, sharing."""

    order_power: float = 0.25
    lengths: bool = True
    preempt: bool = True
    resize: bool = True
    share: bool = True
    patience_s: float = 0.0
    deadline_weight: float = 0.0
    jumps: bool = True
    packing: str = DEFRAGMENT

    initial: ClassVar[PriceMemory] = PriceMemory()

    def __post_init__(self) -> None:
        if not 0.0 <= self.order_power <= 1.0:
            raise ValueError("order-power is between 0 and 1")
        if self.patience_s < 0.0:
            raise ValueError("patience-s is not negative; 0 is without end")
        if self.deadline_weight < 0.0:
            raise ValueError("deadline-weight is not negative; 0 is without deadlines")
        if self.deadline_weight and not self.lengths:
            raise ValueError("deadline-weight needs lengths: leave out lengths=false")
        check_packing(self.packing)
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
        assert isinstance(memory, PriceMemory)
        memory = replace(memory, pace=memory.pace.at(view))
        if self.share and self.lengths and not self._may_change(view):
            return replace(share_without_stopping(view, None, NetBenefit()), memory=memory)
        if not churned(view.changes):
            return Decision(None, memory)
        if self.share and not view.all_preemptible:
            view = _with_guests_settled(view)
        pool = pool_of(view)
        who = self._within_powers(view, contenders(view, pool))
        if not len(who.jobs):
            return Decision(None, memory, because=())
        market = self._market(view, who, memory.pace)
        # Where some stay, two may share a GPU of which one stays: those are not for sale twice.
        gpus = pool.gpus if view.all_preemptible or not self.share else _for_sale(view, who)
        sale = sell_shared(view, market, gpus) if self.share else sell_alone(market, gpus)
        draft = arrange(
            view,
            sale.units,
            market.stakes(),
            named=self.share,
            moves=self.preempt,
            repairs=self.packing == DEFRAGMENT,
        )
        if self.share and self.lengths and not view.all_preemptible:
            join_those_that_stay(view, draft, NetBenefit())
        waits = len(draft.placed) < len(view.running) + len(view.waiting)
        because = (Reason(OUTBID, behind=sale.last_job),) if waits else ()
        return Decision(draft, memory, because=because)

    def _may_change(self, view: View) -> bool:
        """Returns whether any job may be stopped or resized once it runs."""
        jobs = [*view.running, *view.waiting]
        may = not jobs or bool(view.jobs.preemptible[jobs].any())
        return may and (self.preempt or self.resize)

    def _within_powers(self, view: View, who: Contenders) -> Contenders:
        """Returns the contenders with the ranges of GPUs that the powers leave them."""
        if not self.resize:
            requested = view.jobs.gpus[who.jobs]
            who = replace(who, low=requested, cap=requested)
        if not self.preempt:
            # Limits may have changed since it started; it runs on all the same.
            who = replace(who, cap=np.maximum(who.cap, who.held))
        return who

    def _market(self, view: View, who: Contenders, pace: Pace) -> Market:
        left_s, best = self._left_s(view, who.jobs), speeds_of(who)
        if not self.jumps:
            best = one_ahead(best, who.low)
        weights = weights_of(view, who, left_s, best, self.order_power)
        if self.patience_s:
            age_s = view.now - view.jobs.submit_s[who.jobs]
            weights = weights * np.maximum(age_s / self.patience_s, 1.0)
        if self.deadline_weight:
            fastest_s = left_s / np.maximum(best.max(axis=1), 1e-9)
            to_deadline_s = view.jobs.deadline_s[who.jobs] - view.now
            weights = weights * urgency(fastest_s, to_deadline_s, self.deadline_weight)
        held = np.minimum(np.maximum(who.held, who.low), best.shape[1] - 1)
        rate = best[np.arange(len(held)), held]
        rate = np.where(np.isfinite(rate) & (rate > 0), rate, 1.0)
        costs = costs_of(view, who)
        horizon_s = np.maximum(np.minimum(left_s / rate, pace.gap_s), SHORTEST_HORIZON_S)
        stop, grow = (np.minimum(cost / horizon_s, 1.0) for cost in costs)
        if not self.preempt:
            stop = np.full(len(stop), NEVER_STOPS)
        return Market(who, weights, best, horizon_s, stop=stop, grow=grow)

    def _left_s(self, view: View, jobs: Ints) -> Floats:
        if self.lengths:
            left_s = left_s_of(view, jobs)
            outlived = np.flatnonzero(left_s < LEAST_LEFT_S)
            done_s = np.array(view.progress.done_s(jobs[outlived].tolist()))
            left_s[outlived] = np.maximum(left_s[outlived], OUTLIVED * done_s)
            return left_s
        done_s = np.array(view.progress.done_s(jobs.tolist()), dtype=np.float64)
        return np.asarray(np.maximum(done_s, LEAST_DONE_S))


def _with_guests_settled(view: View) -> View:
    """Returns a view in which those who share a GPU with a job that stays may not be stopped.

    Nor may those who share one with these.
    """
    may = view.preemptible
    sharing = [set(jobs) for jobs in view.plan.occupancy.named.values() if len(jobs) > 1]
    stay = {job for jobs in sharing for job in jobs if not may[job]}
    guests: set[int] = set()
    while stay - guests:
        guests |= stay
        stay = {job for jobs in sharing if jobs & guests for job in jobs}
    return replace(view, staying=view.staying | guests) if guests else view


def _for_sale(view: View, who: Contenders) -> int:
    """Returns the GPUs that are free or held by contenders, those that two share counted once."""
    held = view.plan.free_gpus
    closed = view.plan.occupancy.closed
    shared: set[tuple[int, int]] = set()
    for job in who.jobs[who.held > 0].tolist():
        placement = view.running[job]
        if placement.gpu_ids:
            shared.update(gpu for gpu in placement.named() if gpu[0] not in closed)
        else:
            held += sum(gpus for node, gpus in placement.spans if node not in closed)
    return held + len(shared)
