"""The least area of jobs whose stages may interleave on the same GPUs.

A GPU comes with one of each resource (storage, CPU, GPU, network) and each serves one job at a
time. A job keeps resource r of each of its GPUs busy for a known time, whatever the schedule.
So for any weights y >= 0 with sum 1 the weighted busy time is an area, of which M GPUs supply M
per second. Any weights give a bound; a search finds good ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dovetail.algorithms.arrays import Floats
from dovetail.algorithms.bounds import mean_busy_flow_s, squashed_area_flow_s
from dovetail.algorithms.demand import JobDemand, plain_demand
from dovetail.algorithms.speed import SpeedTimeline
from dovetail.core.units import RELATIVE_TOLERANCE

SEARCH_JOBS = 2000
"""Of longer traces every k-th job, on a k-th of the capacity, decides the weights."""
FINEST_STEP = 1 / 32


@dataclass(frozen=True, slots=True)
class InterleavedDemand:
    """The demand of interleaved jobs under one weight per resource."""

    weights: tuple[float, ...]
    demand: JobDemand


def weighted_demand(
    release_s: npt.ArrayLike,
    shortest_s: npt.ArrayLike,
    busy_gpu_s: npt.ArrayLike,
    weights: npt.ArrayLike,
) -> JobDemand:
    """Returns the demand under given weights.

    `busy_gpu_s[j, r]` is stage time x iterations x GPUs of job j on resource r; `shortest_s`
    the job's time alone, which no interleaving shortens.
    """
    busy = np.asarray(busy_gpu_s, dtype=np.float64)
    share = np.asarray(weights, dtype=np.float64)
    if busy.ndim != 2 or share.shape != busy.shape[1:]:
        raise ValueError("interleaving needs one weight per resource")
    if bool((share < 0).any()) or abs(float(share.sum()) - 1) > RELATIVE_TOLERANCE:
        raise ValueError("the weights of resources must not be negative and have sum 1")
    return plain_demand(release_s, shortest_s, busy @ share)


def interleaved_demand(
    release_s: npt.ArrayLike,
    shortest_s: npt.ArrayLike,
    busy_gpu_s: npt.ArrayLike,
    capacity: SpeedTimeline,
) -> InterleavedDemand:
    """Returns the demand under the weights with the largest bound on the mean JCT found.

    A local search: starts from the best single resource or equal weights, then moves weight
    between pairs of resources in ever smaller steps. Any result is valid.
    """
    release = np.asarray(release_s, dtype=np.float64)
    shortest = np.asarray(shortest_s, dtype=np.float64)
    busy = np.asarray(busy_gpu_s, dtype=np.float64)
    if busy.ndim != 2 or busy.shape[1] < 1 or busy.shape[0] != release.size:
        raise ValueError("interleaving needs a row per job and a column per resource")
    every = max(1, -(-release.size // SEARCH_JOBS))
    sample = np.argsort(release, kind="stable")[every // 2 :: every]
    slower = SpeedTimeline(capacity.start_s, capacity.speed / every)

    def worth(weights: Floats) -> float:
        demand = weighted_demand(release[sample], shortest[sample], busy[sample], weights)
        return max(squashed_area_flow_s(demand, slower), mean_busy_flow_s(demand, slower))

    resources = busy.shape[1]
    starts = [*np.eye(resources), np.full(resources, 1 / resources)]
    values = [worth(start) for start in starts]
    best, value = starts[int(np.argmax(values))], max(values)
    step = 0.25
    while step >= FINEST_STEP:
        tried = [(worth(moved), moved) for moved in _moves(best, step)]
        top = max(tried, key=lambda pair: pair[0], default=(value, best))
        if top[0] > value:
            value, best = top
        else:
            step /= 2
    return InterleavedDemand(tuple(best.tolist()), weighted_demand(release, shortest, busy, best))


def _moves(weights: Floats, step: float) -> list[Floats]:
    """Returns the weights after moving up to `step` from one resource to another, each way."""
    moved = []
    for giver in range(weights.size):
        for taker in range(weights.size):
            part = min(step, float(weights[giver]))
            if giver != taker and part > 0:
                after = weights.copy()
                after[giver] -= part
                after[taker] += part
                moved.append(after / after.sum())
    return moved
