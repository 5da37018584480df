"""Elastic shares after "Elastic Resource Sharing for Distributed Deep Learning" (AFS), plainly.

One GPU at a time goes to the job that scans out on top, by inequality (3) of section 3.2: with
two jobs, the longer one gets it if what it gains, relative to its speed afterwards, is more
than what the shorter one would gain relative to its speed now. This file is the definition;
`dovetail.algorithms.afs` computes the same shares fast. Jobs are positions in (submission, id)
order.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dovetail.algorithms.afs import TIE, GpuDemand, checked_demand
from dovetail.algorithms.arrays import Ints


def shares_by_length(
    left_s: npt.ArrayLike,
    rates: npt.ArrayLike,
    kind: npt.ArrayLike,
    cap: npt.ArrayLike,
    gpus: int,
    low: npt.ArrayLike | None = None,
) -> Ints:
    """Returns the shares of AFS-L (Algorithm 1): stage one for the shortest, then by (3).

    GPUs that nobody gains from stay idle. Cost O(gpus x jobs).
    """
    jobs = checked_demand(left_s, rates, kind, cap, low)

    def wins(star: int, j: int, shares: list[int]) -> bool:
        """Says whether j takes the place of the star; they are ordered by length first."""
        if _length_s(jobs, j, shares[j]) < _length_s(jobs, star, shares[star]):
            return not _longer_first(jobs, star, j, shares)
        return _longer_first(jobs, j, star, shares)

    return _handed_out(jobs, gpus, wins)


def shares_without_length(
    rates: npt.ArrayLike,
    kind: npt.ArrayLike,
    cap: npt.ArrayLike,
    gpus: int,
    low: npt.ArrayLike | None = None,
) -> Ints:
    """Returns the shares of AFS-P when all jobs run (section 3.3): (3) either way round.

    The star stays unless (3) holds for the other as the longer job. With more jobs than GPUs
    the caller chooses who runs; here the first in order would.
    """
    jobs = checked_demand(np.full(np.shape(kind), math.inf), rates, kind, cap, low)
    return _handed_out(jobs, gpus, lambda star, j, shares: _longer_first(jobs, j, star, shares))


def _handed_out(jobs: GpuDemand, gpus: int, wins: Callable[[int, int, list[int]], bool]) -> Ints:
    """Returns the shares after stage one and stage two, `wins` saying who is on top of two."""
    shares, idle = _stage_one(jobs, gpus)
    while idle:
        candidates = [j for j in range(jobs.kind.size) if _can_grow(jobs, j, shares[j])]
        if not candidates:
            break
        star = candidates[0]
        for j in candidates[1:]:
            if wins(star, j, shares):
                star = j
        shares[star] += 1
        idle -= 1
    return np.array(shares, dtype=np.int64)


def _stage_one(jobs: GpuDemand, gpus: int) -> tuple[list[int], int]:
    """Gives every job its least share, the shortest on it first (FIX-6: a stage of its own).

    A job whose least share no longer fits is passed over.
    """
    if gpus < 0:
        raise ValueError("a pool has no fewer than 0 GPUs")
    shares = [0] * jobs.kind.size
    idle = gpus
    lengths_s = [_length_s(jobs, j, int(jobs.low[j])) for j in range(jobs.kind.size)]
    for j in sorted(range(jobs.kind.size), key=lambda j: (lengths_s[j], j)):
        if jobs.low[j] <= idle:
            shares[j] = int(jobs.low[j])
            idle -= shares[j]
    return shares, idle


def _can_grow(jobs: GpuDemand, j: int, share: int) -> bool:
    """Says whether a running job would be faster with one GPU more and may have it."""
    return 0 < share < jobs.cap[j] and _rate(jobs, j, share + 1) > _rate(jobs, j, share)


def _longer_first(jobs: GpuDemand, longer: int, shorter: int, shares: list[int]) -> bool:
    """Says whether inequality (3) gives the next GPU to the longer of two jobs."""
    before, after = (_rate(jobs, longer, shares[longer] + more) for more in (0, 1))
    gain = (after - before) / after
    before, after = (_rate(jobs, shorter, shares[shorter] + more) for more in (0, 1))
    loss = (after - before) / before if before > 0 else math.inf
    return gain > loss * TIE


def _length_s(jobs: GpuDemand, j: int, share: int) -> float:
    """Returns how long a job still takes on a share, infinite if it makes no progress."""
    rate = _rate(jobs, j, share)
    return float(jobs.left_s[j]) / rate if rate > 0 else math.inf


def _rate(jobs: GpuDemand, j: int, share: int) -> float:
    return float(jobs.rates[jobs.kind[j], share])
