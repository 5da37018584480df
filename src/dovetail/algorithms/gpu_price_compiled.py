"""The loops of `gpu_price`, compiled: jumps along concave hulls, and the best jump of all."""

import numpy as np

from dovetail.algorithms.arrays import Floats, Ints
from dovetail.algorithms.compiled import compiled

ROUNDING = 1.0 - 1e-12
"""A product that is less by more than this is less whatever was rounded."""


@compiled
def best_step(row: Floats, at: int, most: int) -> tuple[int, float]:
    """Returns the jump of at most `most` from `at` with the largest gain for each, and that gain.

    Of equal gains the larger jump. Both are 0 if no jump gains.

    NOTE: most jumps are ruled out without a division, the slow step: a third of the time.
    """
    step, slope, least = 0, 0.0, 0.0
    for n in range(1, min(most, len(row) - 1 - at) + 1):
        more = row[at + n] - row[at]
        if more < least * n:
            continue
        gain = more / n
        if gain >= slope and gain > 0.0:
            step, slope = n, gain
            least = slope * ROUNDING
    return step, slope


@compiled
def hulls(values: Floats) -> tuple[Ints, Ints, Floats]:
    """Returns buyer, size and slope of all jumps along the hulls: all first jumps, then all second.

    The slopes of a row never rise, also where rounding would have it.
    """
    rows, width = values.shape
    sizes = np.empty((rows, width), np.int64)
    slopes = np.empty((rows, width), np.float64)
    count = np.zeros(rows, np.int64)
    for i in range(rows):
        most = width - 1
        while most and values[i, most] == -np.inf:
            most -= 1
        row, at, last = values[i, : most + 1], 0, np.inf
        step, slope = best_step(row, at, most)
        while step:
            last = min(last, slope)
            sizes[i, count[i]], slopes[i, count[i]] = step, last
            count[i] += 1
            at += step
            step, slope = best_step(row, at, most)
    return _in_rounds(sizes, slopes, count)


@compiled
def _in_rounds(sizes: Ints, slopes: Floats, count: Ints) -> tuple[Ints, Ints, Floats]:
    found = count.sum()
    buyer, size = np.empty(found, np.int64), np.empty(found, np.int64)
    slope = np.empty(found, np.float64)
    at, most = 0, count.max() if len(count) else 0
    for k in range(most):
        for i in range(len(count)):
            if count[i] > k:
                buyer[at], size[at], slope[at] = i, sizes[i, k], slopes[i, k]
                at += 1
    return buyer, size, slope


@compiled
def best_jump(values: Floats, held: Ints, most: int) -> tuple[int, int]:
    """Returns the row whose jump of at most `most` gains most for each GPU, and that jump, or 0."""
    row, size, best = 0, 0, 0.0
    for i in range(len(values)):
        step, slope = best_step(values[i], held[i], most)
        if slope > best:
            row, size, best = i, step, slope
    return row, size
