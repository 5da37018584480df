"""The best of all orderings of an interleave set, tried one after another, and its efficiency."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.algorithms.arrays import Floats, Ints
from dovetail.algorithms.stage_cycle import BARRIER, Row, cycle_s, cycles, orderings


def best_ordering(
    rows: Sequence[Row], cycle: str = BARRIER, *, consecutive: bool = False
) -> tuple[float, tuple[int, ...]]:
    """Returns the shortest cycle over all orderings, and the first ordering that has it."""
    tried = orderings(len(rows), len(rows[0]), cycle, consecutive=consecutive)
    return min((cycle_s(rows, offsets, cycle), offsets) for offsets in tried)


def best_cycles(stage_s: Floats, sets: Ints, cycle: str = BARRIER) -> Floats:
    """Returns the shortest cycle of each of many sets of equally many jobs.

    `stage_s` [kinds, resources]; `sets` [n, members] holds rows of it. Each entry of the answer
    [n] is `best_ordering(...)[0]` of that set, up to rounding.
    """
    tried = orderings(sets.shape[1], stage_s.shape[1], cycle)
    best = np.full(len(sets), np.inf)
    for offsets in tried:
        np.minimum(best, cycles(stage_s, sets, offsets, cycle), out=best)
    return best


def efficiency(rows: Sequence[Row], cycle_of_set_s: float) -> float:
    """Returns gamma: the mean over resources of the share of the cycle it is busy (equation 4)."""
    if cycle_of_set_s <= 0:
        return 0.0
    return sum(map(sum, rows)) / (len(rows[0]) * cycle_of_set_s)
