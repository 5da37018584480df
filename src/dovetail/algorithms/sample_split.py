"""Splits of a batch that balance the workers of a job (GIMBAL section 4.1, LISS).

A forward pass of worker w takes `fixed_s + per_sample_s * b_w`. The global batch stays, so the
gradient does: `sum_w (b_w / B) * mean gradient_w`. A worker of W that average their gradients
scales its own by `W * b_w / B` before the all-reduce.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace

Line = tuple[float, float]
"""Seconds of a worker for no sample, and for each sample."""


def real_split(workers: Sequence[Line], batch: float) -> tuple[float, tuple[float, ...]]:
    """Returns the seconds until all workers are done with fractional samples, and the samples.

    `T = (B + sum a / b) / sum 1 / b`, `b_w = (T - a_w) / b_w` (ALGORITHMS section 3.1), over the
    workers with a < T; the others get none.
    """
    if not workers or not min(slope for _, slope in workers) > 0:
        raise ValueError("each worker must take some time for a sample")
    rate, offset, done_s = 0.0, 0.0, float("inf")
    for fixed_s, slope in sorted(workers):
        if fixed_s >= done_s:
            break
        rate += 1 / slope
        offset += fixed_s / slope
        done_s = (batch + offset) / rate
    return done_s, tuple(max(0.0, (done_s - fixed_s) / slope) for fixed_s, slope in workers)


def split(workers: Sequence[Line], batch: int) -> tuple[int, ...]:
    """Returns whole samples for each worker, at least 1, whose slowest worker is done soonest.

    Exact: each sample beyond the first of a worker goes where it would be done first (ties: to the
    lower rank), which minimises the maximum of increasing times. Most samples of the fractional
    solution are handed out at once.
    """
    spare = batch - len(workers)
    if spare < 0:
        raise ValueError(f"{batch} samples cannot be split over {len(workers)} workers")
    _, shares = real_split([(fixed_s + slope, slope) for fixed_s, slope in workers], spare)
    # One less than the fractional share: too few is never wrong, too many by rounding would be.
    more = [max(0, int(share) - 1) for share in shares]
    if sum(more) > spare:
        more = [0] * len(workers)
    heap = [(fixed_s + slope * (more[w] + 2), w) for w, (fixed_s, slope) in enumerate(workers)]
    heapify(heap)
    for _ in range(spare - sum(more)):
        _, w = heap[0]
        more[w] += 1
        fixed_s, slope = workers[w]
        heapreplace(heap, (fixed_s + slope * (more[w] + 2), w))
    return tuple(1 + m for m in more)
