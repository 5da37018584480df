"""Themis: GPUs are leased by auction to the jobs that are furthest behind a fair share.

`rho` is the finish time of a job here over that on one N-th of the cluster
(`mechanisms.elastic.finish_time`). A job keeps its GPUs for a lease; free GPUs, and GPUs whose
lease is over, are auctioned at every event. They are offered to the worst fraction 1 - f of all
jobs: jobs without GPUs first, then by rho. The auction maximises the product of 1/rho greedily:
each bidder, worst first, gets its least share, then one GPU at a time goes to the elastic bidder
whose rho falls most in proportion. The rest goes to the other jobs at random: least shares first,
then one GPU at a time. A job gives no GPUs back before its lease ends.

Source: Themis (NSDI 2020, arXiv 1907.01484) sections 3 and 4, simplified; ALGORITHMS section 6.
Knows: length, scaling. Stops running jobs: yes, when a lease has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import ClassVar

import numpy as np

from dovetail.algorithms.draws import uniform_draws
from dovetail.core.job import Bools, Floats, Ints
from dovetail.core.order import Order
from dovetail.core.parameters import check_period, check_seed
from dovetail.core.policy import Decision, register
from dovetail.core.resizing import reshare
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import View
from dovetail.mechanisms.elastic.budget import admitted_within
from dovetail.mechanisms.elastic.by_count import by_submission
from dovetail.mechanisms.elastic.finish_time import Ledger, Standing, standing
from dovetail.mechanisms.elastic.marginal_shares import Worth, grown, speeds
from dovetail.mechanisms.elastic.shares import churned, waits


@register("themis")
@dataclass(frozen=True, slots=True)
class Themis:
    """Finish-time fairness by auction; elastic and preemptive. `lease` in seconds."""

    f: float = 0.8
    lease: float = 1200.0
    seed: int = 0

    knows: ClassVar[frozenset[str]] = frozenset({"length", "scaling"})
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate", "resize"})
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[Ledger] = Ledger()

    def __post_init__(self) -> None:
        if not 0 <= self.f < 1:
            raise ValueError(f"f is a share in [0, 1), not {self.f:g}")
        check_period("lease", self.lease)
        check_seed(self.seed)

    def decide(self, view: View, memory: object) -> Decision:
        """Auctions free GPUs and those whose lease is over; wakes when the next lease ends."""
        assert isinstance(memory, Ledger)
        ledger = memory.carried_to(view.now, by_submission(view))
        running = view.progress.running()
        gpus_of = np.zeros(len(view.jobs), np.int64)
        gpus_of[running.jobs] = running.gpus
        held = gpus_of[ledger.jobs]
        # If a switch took longer than a lease, jobs would make no progress.
        lease_s = max(self.lease, 2 * max(view.switch_s.values(), default=0.0))
        ledger = ledger.held_until(held > 0, view.now + lease_s)
        expired = (held > 0) & (ledger.lease_end_s <= view.now)
        pool = view.plan.free_gpus + int(held[expired].sum())
        if not pool or not churned(view.changes):
            return Decision(memory=ledger, wake_at=_next_end_s(ledger, held > 0))
        shares = self._auctioned(view, ledger, np.where(expired, 0, held), pool)
        draft = reshare(view, dict(zip(ledger.jobs.tolist(), shares.tolist(), strict=True)))
        placed = np.isin(ledger.jobs, np.fromiter(draft.placed, np.int64), assume_unique=True)
        begun = placed & (expired | (held == 0))
        ledger = ledger.leased(ledger.jobs[begun], view.now + lease_s)
        return Decision(draft, ledger, _next_end_s(ledger, placed), waits(view, draft))

    def _auctioned(self, view: View, ledger: Ledger, held: Ints, pool: int) -> Ints:
        """Returns the shares of all jobs of the ledger after `pool` more GPUs are handed out."""
        stand, jobs, table = standing(view, ledger), ledger.jobs, view.jobs
        least = np.where(table.elastic, table.min_gpus, table.gpus)[jobs]
        bidders = self._worst(view, stand, held)
        shares = _begun(view, jobs, held, least, bidders, pool)
        pool -= int((shares - held).sum())
        bids = np.sort(bidders[shares[bidders] > 0])
        before = int(shares[bids].sum())
        rest = np.setdiff1d(np.flatnonzero(shares), bids)
        beside = (jobs[rest], shares[rest])
        shares[bids] = grown(view, jobs[bids], shares[bids], pool, _bids(stand), beside)
        pool -= int(shares[bids].sum()) - before
        keys = table.draw_keys(jobs)
        lots = np.argsort(uniform_draws(self.seed, ledger.auctions, keys), kind="stable")
        begun = _begun(view, jobs, shares, least, lots, pool)
        pool -= int((begun - shares).sum())
        some = np.flatnonzero(begun)
        begun[some] = grown(view, jobs[some], begun[some], pool, self._lots(ledger.auctions))
        return begun

    def _worst(self, view: View, stand: Standing, held: Ints) -> Ints:
        """Returns the rows of the worst fraction 1 - f of all jobs, worst first."""
        has: Bools = held > 0
        now = speeds(view, stand.jobs, held[:, None])[:, 0]
        rho = stand.rho(np.where(has, now, stand.fair_speed))
        count = ceil((1 - self.f) * len(held) - RELATIVE_TOLERANCE)
        return np.asarray(np.lexsort((stand.jobs, -rho, has))[: max(1, count)])

    def _lots(self, auction: int) -> Worth:
        def worth(view: View, jobs: Ints, speed: Floats) -> Floats:
            steps = np.arange(1, speed.shape[1])
            keys = view.jobs.draw_keys(jobs)
            lots = uniform_draws(self.seed, auction, keys[:, None], steps)
            return np.where(np.diff(speed, axis=1) > 0, lots, 0.0)

        return worth


def _begun(view: View, jobs: Ints, shares: Ints, least: Ints, rows: Ints, pool: int) -> Ints:
    """Returns the shares after rows without any got their least from the pool, in order."""
    idle = rows[shares[rows] == 0]
    beside = (jobs, shares)
    begin = idle[admitted_within(view, jobs[idle], least[idle], pool, beside=beside)]
    begun = shares.copy()
    begun[begin] = least[begin]
    return begun


def _bids(stand: Standing) -> Worth:
    def worth(view: View, jobs: Ints, speed: Floats) -> Floats:
        """The product of 1/rho grows most where log rho falls most."""
        own = stand.of(jobs)
        shared_s = own.elapsed_s[:, None] + own.left_s[:, None] / speed
        return np.asarray(-np.diff(np.log(np.maximum(shared_s, 1e-9)), axis=1))

    return worth


def _next_end_s(ledger: Ledger, running: Bools) -> float:
    """Returns when the next lease ends."""
    return float(ledger.lease_end_s[running].min(initial=inf))
