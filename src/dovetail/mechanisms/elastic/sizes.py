"""Which sizes elastic jobs have under a queue policy: as requested, at their peak, or left over.

`requested`: every job runs on its requested GPUs. `peak`: an elastic job runs on the fewest GPUs on
which it is fastest, or waits (the `-max` policies: AFS section 5.2, Figure 6). `left-over`: jobs
run at the requested sizes, and GPUs that no waiting job can use go to running elastic jobs (the
`-e` policies: AFS section 5.5; the idea is Carbyne's), spread ones brought together where that pays
if so wanted (`packing=defragment`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dovetail.core.job import Floats, Ints
from dovetail.core.order import Order
from dovetail.core.passes import Because, Keys, check_bypass, rank
from dovetail.core.plan import Draft
from dovetail.core.policy import Decision
from dovetail.core.resizing import reshare
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import View
from dovetail.mechanisms.elastic.budget import admitted_within, limits, limits_tenants
from dovetail.mechanisms.elastic.by_count import by_key, place_whole, pool_gpus
from dovetail.mechanisms.elastic.defragmenting import (
    DEFRAGMENT,
    SPREAD,
    check_packing,
    defragmented,
)
from dovetail.mechanisms.elastic.marginal_shares import grown, speeds
from dovetail.mechanisms.elastic.shares import waits, widest

REQUESTED, PEAK, LEFT_OVER = "requested", "peak", "left-over"
SIZES = (REQUESTED, PEAK, LEFT_OVER)

Key = Callable[[Floats, Floats | Ints], Floats]
"""Ranks jobs by the seconds left at a size and that size in GPUs; the smallest goes first."""


@dataclass(frozen=True, slots=True)
class RankedPolicy:
    """What SRTF and SRSF share: all jobs are ranked anew at each event; preemptive.

    A policy sets `key`, and the orders of waiting jobs at their requested and at their peak sizes.
    """

    bypass: str = "skip"
    sizes: str = REQUESTED
    packing: str = SPREAD

    initial: ClassVar[None] = None
    key: ClassVar[Key]
    order_as_requested: ClassVar[Order]
    order_at_peak: ClassVar[Order]

    def __post_init__(self) -> None:
        check_bypass(self.bypass)
        check_sizes(self.sizes)
        check_packing(self.packing)
        if self.packing != SPREAD and self.sizes != LEFT_OVER:
            raise ValueError(f"packing={self.packing} goes with sizes={LEFT_OVER} only")

    @property
    def knows(self) -> frozenset[str]:
        """Returns length, and scaling where sizes differ from the request."""
        return declared(frozenset({"length"}), self.sizes, "scaling")

    @property
    def powers(self) -> frozenset[str]:
        """Returns preempt and migrate, and resize where sizes differ from the request."""
        return declared(frozenset({"preempt", "migrate"}), self.sizes, "resize")

    @property
    def takes_parts(self) -> bool:
        """Returns whether every size is as requested, also a part of a GPU."""
        return self.sizes == REQUESTED

    @property
    def order(self) -> Order:
        """Returns the order of waiting jobs at the sizes that they would get."""
        return self.order_at_peak if self.sizes == PEAK else self.order_as_requested

    def decide(self, view: View, memory: object) -> Decision:
        """Ranks waiting and running jobs and stops running jobs that no longer fit."""
        draft, because = rank_at(view, self.sizes, type(self).key, self.bypass)
        if self.packing == DEFRAGMENT:
            draft = defragmented(view, draft)
        return Decision(draft, because=because)


def check_sizes(sizes: str, allowed: Sequence[str] = SIZES) -> None:
    """Raises ValueError for sizes that a policy does not know."""
    if sizes not in allowed:
        raise ValueError(f"sizes is {' or '.join(allowed)}, not '{sizes}'")


def declared(words: frozenset[str], sizes: str, besides: str) -> frozenset[str]:
    """Returns the declarations of a policy, with `besides` unless every size is as requested."""
    return words if sizes == REQUESTED else words | {besides}


def order_at_peak(key: Key) -> Order:
    """Returns the order of waiting jobs by the time left at their peak sizes."""

    def keys(view: View, jobs: Sequence[int]) -> list[float]:
        left_s = np.array(view.progress.left_s(jobs), dtype=np.float64)
        ranked: list[float] = key(*_left_at_peak(view, np.array(jobs, np.int64), left_s)).tolist()
        return ranked

    return Order(keys)


def rank_at(view: View, sizes: str, key: Key, bypass: str) -> tuple[Draft | None, Because]:
    """Ranks all jobs by the time left at these sizes, and serves the first."""
    match sizes:
        case "peak":
            return serve_at_peak(
                view, lambda r: key(*_left_at_peak(view, r.jobs, r.left_s)), bypass
            )
        case "left-over":
            requested = view.jobs.gpus
            return _share_left_over(view, lambda r: key(r.left_s, requested[r.jobs]), bypass)
        case _:
            return rank(view, lambda r: key(r.left_s, r.gpus), bypass)


def serve_at_peak(view: View, keys: Keys, bypass: str) -> tuple[Draft, Because]:
    """Gives peak sizes to the jobs of smallest key; a job runs at its peak or waits.

    GPU counts decide which jobs run. While nodes are down no size exceeds the GPUs that are up, and
    none the limits of its tenant, if the job can run on fewer.
    """
    line, pool = by_key(view, keys), pool_gpus(view)
    sizes = np.minimum(peak_gpus(view, line), pool)
    for limit in limits(view) if limits_tenants(view) else ():
        if not limit.counts_jobs:
            members = limit.members(line)
            sizes[members] = np.minimum(sizes[members], limit.most)
    sizes = np.maximum(sizes, view.jobs.least_gpus[line])
    runs = admitted_within(view, line, sizes, pool, strict=bypass == "strict")
    return place_whole(view, line[runs], sizes[runs])


def peak_gpus(view: View, jobs: Ints) -> Ints:
    """Returns the fewest GPUs on which each job is fastest, within its limits and the cluster.

    A job that is not elastic, or may not be stopped, keeps its requested size.
    """
    table = view.jobs
    kinds, row = np.unique(view.physics.kind_of[jobs], return_inverse=True)
    rates = view.physics.speed.rates(widest(view))[kinds]
    before = np.maximum.accumulate(rates, axis=1)[:, :-1]
    faster = rates[:, 1:] > before * (1 + RELATIVE_TOLERANCE)
    best = np.where(faster, np.arange(1, rates.shape[1]), 0)
    best_up_to = np.maximum.accumulate(np.pad(best, ((0, 0), (1, 0))), axis=1)
    most = np.minimum(table.most_gpus[jobs], rates.shape[1] - 1)
    return np.asarray(np.maximum(best_up_to[row, most], table.least_gpus[jobs]))


def _left_at_peak(view: View, jobs: Ints, left_s: Floats) -> tuple[Floats, Ints]:
    """Returns the seconds left of jobs at their peak sizes, and these sizes."""
    sizes = peak_gpus(view, jobs)
    return left_s / speeds(view, jobs, sizes[:, None])[:, 0], sizes


def _share_left_over(view: View, keys: Keys, bypass: str) -> tuple[Draft, Because]:
    """Gives requested sizes to the jobs of smallest key, then the rest one GPU at a time.

    Each goes to the running elastic job that gains most, `(p(c+1) - p(c)) / p(1)`, up to its
    limit; equal gains go to the smallest key. No job starts by it.
    """
    line, pool = by_key(view, keys), pool_gpus(view)
    sizes = view.jobs.gpus[line]
    runs = admitted_within(view, line, sizes, pool, strict=bypass == "strict")
    jobs, shares = line[runs], sizes[runs]
    shares = grown(view, jobs, shares, pool - int(shares.sum()), _gains_over_one)
    draft = reshare(view, dict(zip(jobs.tolist(), shares.tolist(), strict=True)))
    return draft, waits(view, draft)


def _gains_over_one(view: View, jobs: Ints, speed: Floats) -> Floats:
    alone = speeds(view, jobs, np.ones((len(jobs), 1), np.int64))
    return np.asarray(np.diff(speed, axis=1) / alone)
