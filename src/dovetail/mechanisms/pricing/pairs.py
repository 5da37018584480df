"""Which two jobs share GPUs: those that are worth more together at the price than apart.

A pair is one buyer. On n GPUs it makes what both make of them together, or what the better of the
two makes of them alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.core.job import Bools, Floats, Ints
from dovetail.mechanisms.pricing.pair_rates import OTHER_WAY, PairRates

WORTH = 0.02
"""A pair must be worth more by this share than its two jobs apart."""


class Candidates(NamedTuple):
    """Jobs that may share: their rows among the buyers, kinds and ranges of GPUs.

    `weights` are per solo second; `now` is what each makes of its GPUs as it runs, 0 if it waits;
    `held` are these GPUs, `partner` the candidate beside it, -1 for none; of two that share only
    one `keeps` the GPUs if they part. Those that `wish` for other nodes may not share newly. `stop`
    and `grow` are the shares of `now`, and of what more GPUs gain, that a change costs.
    """

    rows: Ints
    kinds: Ints
    low: Ints
    cap: Ints
    weights: Floats
    now: Floats
    held: Ints
    partner: Ints
    wish: Ints
    keeps: Bools
    stop: Floats
    grow: Floats


class PairValues(NamedTuple):
    """What pairs i < j make of GPUs, and the best `variant` of steps [jobs, jobs, counts]."""

    values: Floats
    variant: NDArray[np.int8]


def values_of_pairs(tables: PairRates, who: Candidates) -> PairValues:
    """Returns what every two candidates make together of each number of GPUs; -inf if they cannot.

    What a change costs them is taken off.
    """
    from dovetail.mechanisms.pricing.pairs_compiled import pair_values

    return PairValues(*pair_values(tables.rates, np.array(OTHER_WAY), tables.counts, who))


def matched(
    pairs: Floats, counts: Ints, apart: Floats, price: float, partner: Ints
) -> list[tuple[int, int]]:
    """Returns disjoint pairs by the largest gain at a price.

    `pairs` [jobs, jobs, counts]; `apart` is what each job gains at the price by itself. Pairs that
    do not share yet must gain more than `WORTH` of what they are worth together.
    """
    from dovetail.mechanisms.pricing.pairs_compiled import gains

    first, second, gain = gains(pairs, counts, apart, price, partner, WORTH)
    order = np.argsort(-gain, kind="stable")
    taken = bytearray(len(apart))
    found: list[tuple[int, int]] = []
    for i, j in zip(first[order].tolist(), second[order].tolist(), strict=True):
        if not (taken[i] or taken[j]):
            taken[i] = taken[j] = 1
            found.append((i, j))
    return found
