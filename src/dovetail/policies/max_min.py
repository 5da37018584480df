"""Max-Min fairness: whole GPUs for all jobs, one at a time to the job with the fewest.

At every event the shares are computed anew, up to each job's largest useful number of GPUs.
With more jobs than GPUs, `overflow=earliest` serves the earliest submitted with one GPU each, so
running jobs stay, as in the AFS authors' simulator; `least-recent` serves the jobs that have waited
longest, so jobs take turns at every decision. A job that is not elastic gets its requested GPUs or
waits: it is served in order of submission from the same pool. GPUs that are left because types or
node groups keep a job from its share go to jobs without any.

Source: ALGORITHMS section 6; AFS section 5. Knows: no lengths. Stops running jobs: yes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np

from dovetail.algorithms.water_filling import water_filling
from dovetail.core.errors import IllegalPlan
from dovetail.core.order import Order
from dovetail.core.plan import Draft
from dovetail.core.policy import Decision, register
from dovetail.core.resizing import reshare
from dovetail.core.restarts import most_now
from dovetail.core.view import View
from dovetail.mechanisms.elastic.budget import (
    LimitsLeft,
    admitted_within,
    cut_to_limits,
    is_limited,
    limits_tenants,
    pool_of,
)

OVERFLOW = ("earliest", "least-recent")


@register("max-min")
@dataclass(frozen=True, slots=True)
class MaxMin:
    """Integer water filling over elastic jobs; preemptive."""

    overflow: str = "earliest"

    knows: ClassVar[frozenset[str]] = frozenset()
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate", "resize"})
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[None] = None

    def __post_init__(self) -> None:
        if self.overflow not in OVERFLOW:
            raise ValueError(f"overflow is earliest or least-recent, not '{self.overflow}'")

    def decide(self, view: View, memory: object) -> Decision:
        """Computes the shares of all jobs anew."""
        stay = {j: p.gpus for j, p in view.running.items() if not view.preemptible[j]}
        pool = pool_of(view).gpus
        many = self.overflow == "earliest" and len(view.waiting) > pool
        if many and _all_take_one(view) and not limits_tenants(view):
            # NOTE: 30 times as fast where thousands of jobs wait.
            movable = (j for j in view.running if j not in stay)
            first = sorted([*movable, *islice(view.waiting, pool)])
            return Decision(reshare(view, dict.fromkeys(first[:pool], 1) | stay))
        jobs = [j for j in self._ranked(view) if j not in stay]
        draft = reshare(view, _within_limits(view, jobs, pool) | stay)
        if is_limited(view):
            _fill_beside(view, draft, jobs)
        return Decision(draft)

    def _ranked(self, view: View) -> list[int]:
        """Returns all jobs in the order in which ties are broken and overflow is served."""
        all_jobs = sorted([*view.running, *view.waiting])
        if self.overflow == "earliest":
            return all_jobs
        progress, now = view.progress, view.now
        last_s = {j: progress.pending_since_s(j) for j in view.waiting}
        return sorted(all_jobs, key=lambda j: (last_s.get(j, now), j not in view.running, j))


def _fill_beside(view: View, draft: Draft, jobs: list[int]) -> None:
    """Gives free GPUs to jobs that got none, in order, each its fewest.

    Shares are counted over all GPUs. A job whose type or nodes are taken leaves its share free, and
    without this a job that could use it would wait.
    """
    for job in jobs:
        if job in draft.placed:
            continue
        if not draft.free_gpus:
            return
        kept = view.running.get(job)
        if kept is not None:
            with suppress(IllegalPlan):
                draft.place(job, kept)
                continue
        least = int(view.jobs.least_gpus[job])
        spans = view.placing.find(draft.occupancy, view.shape(job), least)
        if spans is not None:
            draft.place(job, spans)


def _all_take_one(view: View) -> bool:
    """Returns whether every job is elastic and may run on a single GPU."""
    return bool(view.jobs.elastic.all()) and int(view.jobs.min_gpus.max(initial=1)) == 1


def _within_limits(view: View, jobs: list[int], pool: int) -> dict[int, int]:
    """Returns the shares; GPUs that a limit of a tenant takes from its jobs go to others.

    In each round the jobs whose least shares exceed a limit leave, the later ones first, and the
    others get no more than the limit leaves them.
    """
    most: dict[int, int] = {}
    left_out: list[int] = []
    least = view.jobs.least_gpus
    while True:
        shares = _shares(view, jobs, pool, most)
        if not limits_tenants(view):
            return shares
        room = LimitsLeft(view)
        over = {j for j in jobs if j in shares and not room.take(j, int(least[j]))}
        rows = np.array([j for j in shares if j not in over], np.int64)
        wanted = np.array([shares[j] for j in rows.tolist()], np.int64)
        fitting = cut_to_limits(view, rows, least[rows], wanted)
        cut = fitting < wanted
        if not over and not cut.any():
            return shares | _added(view, sorted(left_out), shares, pool)
        left_out += over
        jobs = [j for j in jobs if j not in over]
        most |= dict(zip(rows[cut].tolist(), fitting[cut].tolist(), strict=True))


def _added(view: View, jobs: list[int], shares: Mapping[int, int], pool: int) -> dict[int, int]:
    """Returns the least shares of jobs that left, where those that others left now allow them."""
    served = [j for j in shares if shares[j]]
    beside = np.array(served, np.int64), np.array([shares[j] for j in served], np.int64)
    least = view.jobs.least_gpus[np.array(jobs, np.int64)]
    left = pool - sum(shares.values())
    rows = np.array(jobs, np.int64)
    fits = admitted_within(view, rows, least, left, beside=beside)
    return dict(zip(rows[fits].tolist(), least[fits].tolist(), strict=True))


def _shares(view: View, jobs: list[int], pool: int, most: Mapping[int, int]) -> dict[int, int]:
    """Returns the share of each job that runs, no larger than its entry in `most`.

    Rigid jobs count for the fair share. A rigid job that requests more than that waits until the
    elastic jobs are served, and runs if they leave enough GPUs.
    """
    elastic, gpus_of = view.jobs.elastic, view.jobs.gpus
    shares: dict[int, int] = {}
    fair = max(1, pool // max(1, len(jobs)))
    left = pool
    rigid = [(int(gpus_of[j]), j) for j in jobs if not elastic[j]]
    modest = [(gpus, j) for gpus, j in rigid if gpus <= fair]
    greedy = [(gpus, j) for gpus, j in rigid if gpus > fair]
    for gpus, job in modest:
        if gpus <= left:
            shares[job] = gpus
            left -= gpus
    shares |= _poured(view, [j for j in jobs if elastic[j]], left, most)
    left = pool - sum(shares.values())
    for gpus, job in greedy:
        if gpus <= left:
            shares[job] = gpus
            left -= gpus
    return shares


def _poured(view: View, jobs: list[int], pool: int, most: Mapping[int, int]) -> dict[int, int]:
    """Returns the shares of elastic jobs by water filling.

    While a job would get less than its least share, the last such job is set aside and the shares
    are computed again. Then the jobs set aside get their least shares, in order, while they fit.
    """
    low, rows = view.jobs.min_gpus, np.array(jobs, np.int64)
    high = dict(zip(jobs, most_now(view, rows, view.jobs.max_gpus[rows]).tolist(), strict=True))
    aside: list[int] = []
    while True:
        poured = water_filling([min(high[j], most.get(j, pool)) for j in jobs], pool).tolist()
        short = [j for j, share in zip(jobs, poured, strict=True) if 0 < share < int(low[j])]
        if not short:
            break
        aside.append(short[-1])
        jobs = [j for j in jobs if j != short[-1]]
    shares = {j: share for j, share in zip(jobs, poured, strict=True) if share}
    left = pool - sum(shares.values())
    for job in sorted([*aside, *(j for j in jobs if j not in shares)]):
        if int(low[job]) <= left:
            shares[job] = int(low[job])
            left -= shares[job]
    return shares
