"""Left-over GPUs, one at a time, for the job that gains most by a policy's measure."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dovetail.algorithms.marginal_gain import marginal_gain
from dovetail.core.job import Floats, Ints
from dovetail.core.restarts import most_now
from dovetail.core.view import View
from dovetail.mechanisms.elastic.budget import cut_to_limits, limits_tenants
from dovetail.mechanisms.elastic.shares import widest

Worth = Callable[[View, Ints, Floats], Floats]
"""Returns the gains of jobs from their speeds: row i has the speeds of job i on its share of
GPUs, on one more, and so on; the result has one column less."""

NOBODY: Ints = np.zeros(0, np.int64)


def speeds(view: View, jobs: Ints, gpus: Ints) -> Floats:
    """Returns the believed speeds alone, well placed; `gpus` has one row of counts per job."""
    table = view.physics.speed.rates(widest(view))
    return np.asarray(table[view.physics.kind_of[jobs][:, None], gpus])


def grown(
    view: View,
    jobs: Ints,
    shares: Ints,
    left: int,
    worth: Worth,
    beside: tuple[Ints, Ints] = (NOBODY, NOBODY),
) -> Ints:
    """Returns the shares after `left` GPUs went to elastic jobs by `worth`, up to their limits.

    `beside` are other jobs and their shares, which count to the same limits of tenants.
    """
    most = np.minimum(most_now(view, jobs, view.jobs.max_gpus[jobs]), widest(view))
    larger = _grown(view, jobs, shares, left, worth, most)
    if not limits_tenants(view):
        return larger
    everybody, theirs = np.concatenate([jobs, beside[0]]), beside[1]
    low = np.concatenate([shares, theirs])
    # GPUs that a limit takes from its jobs go to others, in another round with lower caps.
    while True:
        wanted = np.concatenate([larger, theirs])
        fitting = cut_to_limits(view, everybody, low, wanted)[: len(jobs)]
        if not (fitting < larger).any():
            return larger
        most = np.where(fitting < larger, fitting, most)
        larger = _grown(view, jobs, shares, left, worth, most)


def _grown(view: View, jobs: Ints, shares: Ints, left: int, worth: Worth, most: Ints) -> Ints:
    rows = np.flatnonzero(view.jobs.elastic[jobs] & (most > shares))
    if not left or not len(rows):
        return shares
    width = int(min(left, (most - shares)[rows].max()))
    steps = shares[rows, None] + np.arange(width + 1)
    # Beyond a job's limit the gain is zero, so it gets no more.
    counts = np.minimum(steps, most[rows, None])
    gains = worth(view, jobs[rows], speeds(view, jobs[rows], counts))
    larger = shares.copy()
    larger[rows] += marginal_gain(gains, left)
    return larger
