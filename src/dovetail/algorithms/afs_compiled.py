"""The shares of `afs`, compiled: the same to the last GPU, in milliseconds for 10,000 GPUs.

Two observations make the scan short. The stars before the winner do not change when the winner
grows, so the next scan resumes where the winner stood. And a block of jobs can be passed in a
few steps if none of them beats the star: its jobs are kept sorted by length, with the greatest
loss among the shorter and the greatest gain among the longer at hand for every split.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dovetail.algorithms.afs import TIE, GpuDemand, claims
from dovetail.algorithms.compiled import compiled

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

BLOCK = 32
"""Jobs per block: 64 measured 10 to 30 % slower in most rows of benchmarks/afs_kernel.py."""
LENGTH, GAIN, LOSS = 0, 1, 2
"""Columns of a job: seconds left on its share, and the two sides of (3) with the tie's factor."""
SHORTER_LOSS, LONGER_GAIN = 1, 2
"""Columns of a split: after the length of job k of a block by length, the greatest loss among
the k jobs before it, and the greatest gain among it and those after it."""
NOBODY = -1.0
"""Gain and loss of a job that cannot grow: it beats no star, not even the first."""
OPENING = -0.5
"""Gain and loss of the star before the first candidate, infinitely long: any candidate beats it."""


def shares_by_length(
    left_s: npt.ArrayLike,
    rates: npt.ArrayLike,
    kind: npt.ArrayLike,
    cap: npt.ArrayLike,
    gpus: int,
    low: npt.ArrayLike | None = None,
) -> Ints:
    """Returns what `afs.shares_by_length` returns."""
    return _shares(claims(left_s, rates, kind, cap, low), gpus)


def shares_without_length(
    rates: npt.ArrayLike,
    kind: npt.ArrayLike,
    cap: npt.ArrayLike,
    gpus: int,
    low: npt.ArrayLike | None = None,
) -> Ints:
    """Returns what `afs.shares_without_length` returns: no job is ever the shorter one."""
    return _shares(claims(np.full(np.shape(kind), np.inf), rates, kind, cap, low), gpus)


def _shares(asked: GpuDemand, gpus: int) -> Ints:
    if gpus < 0:
        raise ValueError("a pool has no fewer than 0 GPUs")
    shares = np.zeros_like(asked.kind)
    before = asked.rates[asked.kind, asked.low]
    lengths_s = np.full(shares.size, np.inf)
    np.divide(asked.left_s, before, out=lengths_s, where=before > 0)
    idle = _stage_one(np.argsort(lengths_s, kind="stable"), asked.low, shares, gpus)
    if idle:
        after = asked.rates[asked.kind, np.minimum(shares + 1, asked.cap)]
        growing = np.flatnonzero((shares > 0) & (after > before))
        if growing.size:
            shares[growing] = _grown(asked, growing, shares[growing], idle)
    return shares


def _grown(asked: GpuDemand, growing: Ints, shares: Ints, idle: int) -> Ints:
    """Returns the shares of those that can use more GPUs after stage two."""
    blocks = -(-growing.size // BLOCK)
    jobs = np.full((blocks * BLOCK, 3), NOBODY)  # filled up with jobs that cannot grow
    jobs[:, LENGTH] = np.inf
    left_s, kind, cap = asked.left_s[growing], asked.kind[growing], asked.cap[growing]
    before, after = asked.rates[kind, shares], asked.rates[kind, shares + 1]
    running = before > 0
    real = jobs[: growing.size]
    np.divide(left_s, before, out=real[:, LENGTH], where=running)
    real[:, GAIN] = (after - before) / after
    real[:, LOSS] = np.inf
    np.divide(after - before, before, out=real[:, LOSS], where=running)
    real[:, LOSS] *= TIE
    member, split = _splits(jobs.reshape(blocks, BLOCK, 3))
    _stage_two(jobs, member, split, left_s, asked.rates, kind, cap, shares, idle, TIE)
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
    """Gives the least shares in order while they fit; returns what is left of the pool."""
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
    """Hands out the rest of the pool; `stars` holds those that were on top in the last scan."""
    stars = np.empty(len(jobs), dtype=np.int64)
    depth, position = 0, 0
    while gpus > 0:
        depth = _scan(jobs, split, stars, depth, position)
        if depth == 0:
            return
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
    """Goes on from a position with the top of the stars; puts those that beat it on top."""
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
    """Moves a job that has grown, and so become no longer, to its place in its block."""
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
