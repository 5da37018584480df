"""Elastic shares after "Elastic Resource Sharing for Distributed Deep Learning" (AFS), compiled.

Stage one gives every job its least share, the shortest first. Stage two gives one GPU at a time to
the job that scans out on top, by inequality (3) of section 3.2: of two jobs the longer one gets it
if its gain, relative to its speed afterwards, exceeds the gain of the shorter one, relative to its
speed now. Jobs are positions in (submission, id) order. `papers/afs/plain_shares.py` has the
definition as plain loops; these shares are the same to the last GPU and take milliseconds for
10,000 GPUs.

Two observations keep the scan short. The stars before the winner do not change when the winner
grows, so the next scan resumes at the winner's position. And a block of jobs can be skipped in a
few steps if none of them beats the star: its jobs are sorted by length, and for every split the
block stores the greatest loss among the shorter and the greatest gain among the longer jobs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dovetail.algorithms.arrays import Floats, Ints
from dovetail.algorithms.compiled import compiled
from dovetail.core.units import RELATIVE_TOLERANCE

TIE = 1.0 + RELATIVE_TOLERANCE
"""Inequality (3) must hold by this factor; an exact tie leaves the GPU with the shorter job."""

BLOCK = 32
"""Jobs per block: 64 was 10 to 30 % slower in most rows of benchmarks/afs_kernel.py."""
LENGTH, GAIN, LOSS = 0, 1, 2
"""Columns of a job: seconds left on its share, and the two sides of (3) with the tie's factor."""
SHORTER_LOSS, LONGER_GAIN = 1, 2
"""Columns of a split: after the length of job k of a block by length, the greatest loss among
the k jobs before it, and the greatest gain among it and those after it."""
NOBODY = -1.0
"""Gain and loss of a job that cannot grow: it beats no star, not even the first."""
OPENING = -0.5
"""Gain and loss of the star before the first candidate, infinitely long: any candidate beats it."""


@dataclass(frozen=True, slots=True)
class GpuDemand:
    """Lengths of the jobs, speeds by GPU count, and the range of GPUs that each can use.

    `rates[kind[j], c]` is the speed of job j on c GPUs, `left_s[j]` its work in seconds at speed
    one, infinite where length plays no part. A job runs on `low[j]` to `cap[j]` GPUs or not at
    all. NOTE: speeds (none negative) are not checked, because the table is large and used often.
    """

    left_s: Floats
    rates: Floats
    kind: Ints
    cap: Ints
    low: Ints

    def __post_init__(self) -> None:
        columns = (self.left_s, self.kind, self.cap, self.low)
        if any(c.ndim != 1 or c.size != self.kind.size for c in columns):
            raise ValueError("every job needs a length, a kind, a least and a greatest share")
        if self.rates.ndim != 2:
            raise ValueError("speeds come as a table: a row for each kind, a column for each count")
        if not self.kind.size:
            return
        if bool((self.low < 1).any() or (self.cap < self.low).any()):
            raise ValueError("shares must allow 1 <= least <= greatest")
        if int(self.cap.max()) >= self.rates.shape[1]:
            raise ValueError("the table of speeds must reach the greatest share of every job")
        if int(self.kind.min()) < 0 or int(self.kind.max()) >= self.rates.shape[0]:
            raise ValueError("the table of speeds must have a row for the kind of every job")
        if not bool((self.left_s >= 0).all()):
            raise ValueError("lengths must be numbers, none negative")


def checked_demand(
    left_s: npt.ArrayLike,
    rates: npt.ArrayLike,
    kind: npt.ArrayLike,
    cap: npt.ArrayLike,
    low: npt.ArrayLike | None = None,
) -> GpuDemand:
    """Returns the demand of plain lists; without `low`, every job can run on one GPU."""
    caps = np.ascontiguousarray(cap, dtype=np.int64)
    return GpuDemand(
        np.ascontiguousarray(left_s, dtype=np.float64),
        np.ascontiguousarray(rates, dtype=np.float64),
        np.ascontiguousarray(kind, dtype=np.int64),
        caps,
        np.ones_like(caps) if low is None else np.ascontiguousarray(low, dtype=np.int64),
    )


def shares_by_length(
    left_s: npt.ArrayLike,
    rates: npt.ArrayLike,
    kind: npt.ArrayLike,
    cap: npt.ArrayLike,
    gpus: int,
    low: npt.ArrayLike | None = None,
) -> Ints:
    """Returns the shares of AFS-L (Algorithm 1); GPUs that speed up no job stay idle."""
    return _shares(checked_demand(left_s, rates, kind, cap, low), gpus)


def shares_without_length(
    rates: npt.ArrayLike,
    kind: npt.ArrayLike,
    cap: npt.ArrayLike,
    gpus: int,
    low: npt.ArrayLike | None = None,
) -> Ints:
    """Returns the shares of AFS-P when all jobs run (section 3.3): no job is ever the shorter one.

    With more jobs than GPUs the caller chooses which run; here the first in order would.
    """
    return _shares(checked_demand(np.full(np.shape(kind), np.inf), rates, kind, cap, low), gpus)


def _shares(demand: GpuDemand, gpus: int) -> Ints:
    if gpus < 0:
        raise ValueError("a pool has no fewer than 0 GPUs")
    shares = np.zeros_like(demand.kind)
    before = demand.rates[demand.kind, demand.low]
    lengths_s = np.full(shares.size, np.inf)
    np.divide(demand.left_s, before, out=lengths_s, where=before > 0)
    # Stable: jobs of equal length are served in order of position.
    idle = _stage_one(np.argsort(lengths_s, kind="stable"), demand.low, shares, gpus)
    if idle:
        after = demand.rates[demand.kind, np.minimum(shares + 1, demand.cap)]
        growing = np.flatnonzero((shares > 0) & (after > before))
        if growing.size:
            shares[growing] = _grown(demand, growing, shares[growing], idle)
    return shares


def _grown(demand: GpuDemand, growing: Ints, shares: Ints, idle: int) -> Ints:
    """Returns the shares after stage two of the jobs that can use more GPUs."""
    blocks = -(-growing.size // BLOCK)
    jobs = np.full((blocks * BLOCK, 3), NOBODY)  # padded with jobs that cannot grow
    jobs[:, LENGTH] = np.inf
    left_s, kind, cap = demand.left_s[growing], demand.kind[growing], demand.cap[growing]
    before, after = demand.rates[kind, shares], demand.rates[kind, shares + 1]
    running = before > 0
    real = jobs[: growing.size]
    np.divide(left_s, before, out=real[:, LENGTH], where=running)
    real[:, GAIN] = (after - before) / after
    real[:, LOSS] = np.inf
    np.divide(after - before, before, out=real[:, LOSS], where=running)
    real[:, LOSS] *= TIE
    member, split = _splits(jobs.reshape(blocks, BLOCK, 3))
    _stage_two(jobs, member, split, left_s, demand.rates, kind, cap, shares, idle, TIE)
    return shares


def _splits(blocks: Floats) -> tuple[Ints, Floats]:
    """Returns the jobs of each block by length, and its table of splits."""
    by_length = np.argsort(blocks[:, :, LENGTH], axis=1)
    sorted_jobs = np.take_along_axis(blocks, by_length[:, :, None], axis=1)
    split = np.full((len(blocks), BLOCK + 1, 3), NOBODY)
    split[:, :-1, LENGTH] = sorted_jobs[:, :, LENGTH]
    split[:, 1:, SHORTER_LOSS] = np.maximum.accumulate(sorted_jobs[:, :, LOSS], axis=1)
    split[:, -2::-1, LONGER_GAIN] = np.maximum.accumulate(sorted_jobs[:, ::-1, GAIN], axis=1)
    return by_length + np.arange(len(blocks))[:, None] * BLOCK, split


@compiled
def _stage_one(order: Ints, low: Ints, shares: Ints, gpus: int) -> int:
    """Gives the least shares in order while they fit; returns the rest of the pool."""
    for j in order:
        if low[j] <= gpus:
            shares[j] = low[j]
            gpus -= low[j]
    return gpus


@compiled
def _stage_two(
    jobs: Floats,
    member: Ints,
    split: Floats,
    left_s: Floats,
    rates: Floats,
    kind: Ints,
    cap: Ints,
    shares: Ints,
    gpus: int,
    tie: float,
) -> None:
    """Hands out the rest of the pool; `stars` is the stack of stars of the last scan."""
    stars = np.empty(len(jobs), dtype=np.int64)
    depth, position = 0, 0
    while gpus > 0:
        depth = _scan(jobs, split, stars, depth, position)
        if depth == 0:
            return
        # The winner leaves the stack: the stars below it are unchanged, so the scan resumes here.
        depth -= 1
        position = stars[depth]
        shares[position] += 1
        gpus -= 1
        share = shares[position]
        before = rates[kind[position], share]
        jobs[position, LENGTH] = left_s[position] / before
        after = rates[kind[position], share + 1] if share < cap[position] else before
        grows = after > before
        jobs[position, GAIN] = (after - before) / after if grows else NOBODY
        jobs[position, LOSS] = (after - before) / before * tie if grows else NOBODY
        _resort(jobs, member, split, position)


@compiled
def _scan(jobs: Floats, split: Floats, stars: Ints, depth: int, position: int) -> int:
    """Resumes the scan at a position; pushes every job that beats the top of the stars."""
    length_s, gain, loss = np.inf, OPENING, OPENING
    if depth > 0:
        star = stars[depth - 1]
        length_s, gain, loss = jobs[star, LENGTH], jobs[star, GAIN], jobs[star, LOSS]
    while position < len(jobs):
        end = position - position % BLOCK + BLOCK
        if position == end - BLOCK:
            block = position // BLOCK
            if split[block, BLOCK, SHORTER_LOSS] < gain:
                position = end  # a gain is never above its loss: nobody beats the star
                continue
            low, high = 0, BLOCK
            while low < high:
                middle = (low + high) // 2
                if split[block, middle, LENGTH] < length_s:
                    low = middle + 1
                else:
                    high = middle
            if split[block, low, SHORTER_LOSS] < gain and split[block, low, LONGER_GAIN] <= loss:
                position = end
                continue
        for j in range(position, end):
            shorter = jobs[j, LENGTH] < length_s
            if (shorter and jobs[j, LOSS] >= gain) or (not shorter and jobs[j, GAIN] > loss):
                stars[depth] = j
                depth += 1
                length_s, gain, loss = jobs[j, LENGTH], jobs[j, GAIN], jobs[j, LOSS]
        position = end
    return depth


@compiled
def _resort(jobs: Floats, member: Ints, split: Floats, j: int) -> None:
    """Moves a job that has grown, and so has no more seconds left, to its place in its block."""
    block = j // BLOCK
    old = 0
    while member[block, old] != j:
        old += 1
    new = old
    while new > 0 and split[block, new - 1, LENGTH] > jobs[j, LENGTH]:
        member[block, new] = member[block, new - 1]
        split[block, new, LENGTH] = split[block, new - 1, LENGTH]
        new -= 1
    member[block, new] = j
    split[block, new, LENGTH] = jobs[j, LENGTH]
    # Running maxima are updated until they no longer change beyond the moved job.
    for k in range(new, BLOCK):
        value = max(split[block, k, SHORTER_LOSS], jobs[member[block, k], LOSS])
        if k >= old and value == split[block, k + 1, SHORTER_LOSS]:
            break
        split[block, k + 1, SHORTER_LOSS] = value
    for k in range(old, -1, -1):
        value = max(split[block, k + 1, LONGER_GAIN], jobs[member[block, k], GAIN])
        if k <= new and value == split[block, k, LONGER_GAIN]:
            break
        split[block, k, LONGER_GAIN] = value
