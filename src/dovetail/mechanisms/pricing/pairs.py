"""Which two jobs share GPUs: those that are worth more together at the price than apart.

A pair is one buyer. On n GPUs it makes what both make of them together, or what the better of the
two makes of them alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.core.job import Bools, Floats, Ints
from dovetail.mechanisms.pricing.pair_rates import OTHER_WAY, STEPS, PairRates

WORTH = 0.02
"""A pair must be worth more by this share than its two jobs apart."""


class Candidates(NamedTuple):
    """Jobs that may share: their rows among the buyers, kinds and ranges of GPUs.

    `weights` are per solo second; `now` is what each makes of its GPUs as it runs, 0 if it waits;
    `held` are these GPUs, `partner` the candidate beside it, -1 for none; of two that share only
    one `keeps` the GPUs if they part. `stop` and `grow` are the shares of `now`, and of what more
    GPUs gain, that a change costs.
    """

    rows: Ints
    kinds: Ints
    low: Ints
    cap: Ints
    weights: Floats
    now: Floats
    held: Ints
    partner: Ints
    keeps: Bools
    stop: Floats
    grow: Floats


class PairValues(NamedTuple):
    """What pairs make of GPUs: `values` and the best `variant` of steps [jobs, jobs, counts]."""

    values: Floats
    variant: Ints


def values_of_pairs(tables: PairRates, who: Candidates) -> PairValues:
    """Returns what every two candidates make together of each number of GPUs; -inf if they cannot.

    What a change costs them is taken off.
    """
    rates = tables.rates[:, who.kinds[:, None], who.kinds[None, :]]
    mine = rates * who.weights[None, :, None, None]
    both = np.empty_like(mine)
    for variant in range(len(STEPS)):
        both[variant] = mine[variant] + mine[OTHER_WAY[variant]].transpose(1, 0, 2)
    both[rates <= 0] = -np.inf
    variant = both.argmax(axis=0)
    best = both.max(axis=0)
    low = np.maximum(who.low[:, None], who.low[None, :])
    cap = np.minimum(who.cap[:, None], who.cap[None, :])
    counts = tables.counts
    usable = (counts >= low[:, :, None]) & (counts <= cap[:, :, None])
    best = np.where(usable, best, -np.inf)
    diagonal = np.arange(len(who.rows))
    best[diagonal, diagonal] = -np.inf
    return PairValues(_less_changes(best, counts, who), variant)


def _less_changes(best: Floats, counts: Ints, who: Candidates) -> Floats:
    """Takes off what it costs that jobs grow or move, and adds what it saves that they stay.

    The GPUs are those of the job that makes more of its own, unless the two share already.
    """
    saved = who.now * who.stop
    together = who.partner[:, None] == np.arange(len(who.rows))[None, :]
    own = np.where(who.keeps, saved, 0.0)
    anchored = np.maximum(own[:, None], own[None, :])
    bonus = np.where(together, saved[:, None] + saved[None, :], anchored)
    first = own[:, None] >= own[None, :]
    held = np.where(first, who.held[:, None], who.held[None, :])
    now = np.where(first, who.now[:, None], who.now[None, :])
    now = np.where(together, who.now[:, None] + who.now[None, :], now)
    grow = np.where(first, who.grow[:, None], who.grow[None, :])
    grows = (counts > held[:, :, None]) & (held > 0)[:, :, None] & np.isfinite(best)
    gain = np.where(grows, np.maximum(best - now[:, :, None], 0.0), 0.0)
    return np.asarray(best - gain * grow[:, :, None] + bonus[:, :, None])


def matched(
    pairs: Floats, counts: Ints, apart: Floats, price: float, fresh: Bools
) -> list[tuple[int, int]]:
    """Returns disjoint pairs by the largest gain at a price.

    `pairs` [jobs, jobs, counts]; `apart` is what each job gains at the price by itself. Pairs that
    do not share yet (`fresh`) must gain more than `WORTH` of what they are worth apart.
    """
    together = (pairs - price * counts).max(axis=2)
    alone = apart[:, None] + apart[None, :]
    gain = together - alone
    worth = np.abs(np.where(np.isfinite(together), together, 0.0))
    gain = np.where(gain > WORTH * worth * fresh, gain, -np.inf)
    upper = np.triu_indices(len(apart), 1)
    order = np.argsort(-gain[upper], kind="stable")
    taken: set[int] = set()
    found: list[tuple[int, int]] = []
    for at in order.tolist():
        i, j = int(upper[0][at]), int(upper[1][at])
        if not np.isfinite(gain[i, j]):
            break
        if i not in taken and j not in taken:
            taken |= {i, j}
            found.append((i, j))
    return found
