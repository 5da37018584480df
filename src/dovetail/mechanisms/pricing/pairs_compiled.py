"""The loops of `pairs` over all pairs of candidates and numbers of GPUs, compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.algorithms.compiled import compiled
from dovetail.core.job import Floats, Ints

if TYPE_CHECKING:
    from dovetail.mechanisms.pricing.pairs import Candidates


@compiled
def pair_values(
    rates: Floats, other_way: Ints, counts: Ints, who: Candidates
) -> tuple[Floats, Ints]:
    """Returns the values and the best variants of pairs i < j [jobs, jobs, counts].

    The rest of both arrays is not set. `rates` and `other_way` are those of `PairRates`.
    """
    jobs = len(who.rows)
    values = np.empty((jobs, jobs, len(counts)))
    variants = np.empty((jobs, jobs, len(counts)), np.int64)
    for i in range(jobs):
        for j in range(i + 1, jobs):
            values[i, j] = -np.inf
            together = who.partner[i] == j
            if who.wish[i] != who.wish[j] and not together:
                continue
            low, cap = max(who.low[i], who.low[j]), min(who.cap[i], who.cap[j])
            one, two = who.kinds[i], who.kinds[j]
            for at in range(len(counts)):
                if not low <= counts[at] <= cap:
                    continue
                best = -np.inf
                for variant in range(len(other_way)):
                    rate = rates[variant, one, two, at]
                    if rate <= 0.0:
                        continue
                    theirs = rates[other_way[variant], two, one, at]
                    both = rate * who.weights[i] + theirs * who.weights[j]
                    if both > best:
                        best, variants[i, j, at] = both, variant
                if best > -np.inf:
                    values[i, j, at] = _less_changes(best, counts[at], who, i, j)
    return values, variants


@compiled
def _less_changes(best: float, gpus: int, who: Candidates, i: int, j: int) -> float:
    """Takes off what it costs that jobs grow or move, and adds what it saves that they stay.

    The GPUs are those of the job that makes more of its own, unless the two share already.
    """
    saved, other = who.now[i] * who.stop[i], who.now[j] * who.stop[j]
    own = saved if who.keeps[i] else 0.0
    theirs = other if who.keeps[j] else 0.0
    first = i if own >= theirs else j
    now = who.now[first]
    bonus = max(own, theirs)
    if who.partner[i] == j:
        now, bonus = who.now[i] + who.now[j], saved + other
    if gpus > who.held[first] > 0:
        best -= max(best - now, 0.0) * who.grow[first]
    return best + bonus


@compiled
def gains(
    values: Floats, counts: Ints, apart: Floats, price: float, partner: Ints, worth: float
) -> tuple[Ints, Ints, Floats]:
    """Returns the pairs that gain at a price, and by how much; see `pairs.matched`."""
    jobs, found = len(apart), 0
    first = np.empty(jobs * (jobs - 1) // 2, np.int64)
    second, gain = np.empty_like(first), np.empty(len(first))
    for i in range(jobs):
        for j in range(i + 1, jobs):
            together = -np.inf
            for at in range(len(counts)):
                together = max(together, values[i, j, at] - price * counts[at])
            more = together - (apart[i] + apart[j])
            least = 0.0 if partner[i] == j else worth * abs(together)
            if together > -np.inf and more > least:
                first[found], second[found], gain[found] = i, j, more
                found += 1
    return first[:found], second[:found], gain[:found]
