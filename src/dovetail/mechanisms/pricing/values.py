"""What each job makes of each number of GPUs, for a market that sells to the highest gain.

The value of n GPUs to a job is its weight times its speed on them, the best of up to n. Its weight
is a power of the time that it has left at its efficient scale, over that scale: short jobs count
more, as in SRTF, and a job that uses GPUs well gets more of them, as in AFS. Both are one number in
solo seconds, whatever the size that its owner asked for.
"""

from __future__ import annotations

import numpy as np

from dovetail.core.job import Floats, Ints
from dovetail.core.view import View
from dovetail.mechanisms.elastic.shares import Contenders

LEAST_S = 1.0
"""A job counts as having at least this long left."""


def speeds_of(who: Contenders) -> Floats:
    """Returns the best speed of each contender on up to n GPUs, -inf outside its range."""
    counts = np.arange(who.rates.shape[1])
    usable = (counts >= who.low[:, None]) & (counts <= who.cap[:, None])
    rates = np.where(usable, who.rates[who.kind], 0.0)
    best = np.maximum.accumulate(rates, axis=1)
    best = np.where(usable, best, -np.inf)
    best[:, 0] = 0.0
    return np.asarray(best)


def one_ahead(speeds: Floats, low: Ints) -> Floats:
    """Returns speeds by which a sale sees one GPU ahead of what a job has, as AFS does.

    From its least GPUs on no GPU adds more than the one before: who gains nothing from the next
    gets none of those behind it.
    """
    counts, rows = np.arange(speeds.shape[1]), np.arange(len(low))
    usable, first = np.isfinite(speeds), speeds[rows, low]
    gains = np.diff(np.where(usable, speeds, 0.0), axis=1, prepend=0.0)
    gains[rows, low] = first / low
    gains = np.where(counts >= low[:, None], gains, np.inf)
    gains = np.minimum.accumulate(gains, axis=1)
    more = np.where(counts > low[:, None], gains, 0.0).cumsum(axis=1)
    return np.where(usable & (counts >= low[:, None]), first[:, None] + more, speeds)


def weights_of(view: View, who: Contenders, left_s: Floats, speeds: Floats, order: float) -> Floats:
    """Returns what a solo second of each contender is worth.

    `order` is how strongly short jobs go first. With rigid jobs among the contenders it rises to 1,
    where all are rigid, and the size counts less: then jobs are in the order of SRTF.
    """
    counts = np.maximum(np.arange(speeds.shape[1]), 1)
    peak = np.maximum(speeds.max(axis=1, initial=0.0), 1e-9)
    efficient = np.maximum((speeds / counts).max(axis=1, initial=0.0), 1e-12)
    scale = np.sqrt(peak * efficient)
    rigid = float((who.low >= who.cap).mean()) if len(who.jobs) else 0.0
    power = order + (1.0 - order) * rigid
    size = view.jobs.gpus[who.jobs] ** rigid
    return np.asarray(np.maximum(left_s / scale, LEAST_S) ** -power / scale * size)


def urgency(fastest_s: Floats, to_deadline_s: Floats, weight: float) -> Floats:
    """Returns the factors of weights for deadlines: 1 + weight * (share of the time needed)^2.

    The share is the time that a job needs at its fastest over the time to its deadline: it grows
    while the job waits or runs on few GPUs. A deadline that is lost, or none, counts nothing.
    """
    open_yet = (to_deadline_s > 0.0) & (fastest_s <= to_deadline_s)
    share = np.divide(fastest_s, to_deadline_s, out=np.zeros(len(fastest_s)), where=open_yet)
    return np.asarray(1.0 + weight * share**2)


def with_hysteresis(values: Floats, held: Ints, *, grow: Floats, saved: Floats) -> Floats:
    """Returns the values less what changes cost the jobs that hold GPUs.

    `grow` is the share of what more GPUs gain that is lost until they train, `saved` what a job
    would lose by being stopped.
    """
    runs = np.flatnonzero(held > 0)
    if not runs.size:
        return values
    priced, mine = values.copy(), values[runs]
    now = at_held(values, held)[runs][:, None]
    larger = (np.arange(values.shape[1]) > held[runs][:, None]) & np.isfinite(mine)
    mine = mine - np.where(larger, mine - now, 0.0) * grow[runs][:, None]
    mine[:, 1:] += saved[runs][:, None]
    priced[runs] = mine
    return priced


def at_held(values: Floats, held: Ints) -> Floats:
    """Returns what each job makes of the GPUs that it holds, 0 where it cannot run on them."""
    now = values[np.arange(len(values)), np.minimum(held, values.shape[1] - 1)]
    return np.where(np.isfinite(now), now, 0.0)
