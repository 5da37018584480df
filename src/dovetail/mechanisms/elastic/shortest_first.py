"""Stage one of AFS when not all jobs fit: least shares for the shortest jobs.

The queue is sorted by time left on the least share, so only its head is read, however many wait.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.core.job import Floats, Ints
from dovetail.core.view import View
from dovetail.mechanisms.elastic.budget import Budget, Pool, is_limited
from dovetail.mechanisms.elastic.shares import movable, widest


def lengths_on_least(view: View, jobs: Ints, left_s: Floats) -> Floats:
    """Returns the seconds jobs have left on their least shares, `len(1)` of AFS section 3.2."""
    low = view.jobs.least_gpus[jobs]
    table = view.physics.speed.rates(widest(view))
    # A job that needs more GPUs than there are makes no progress, as in column 0.
    rate = table[view.physics.kind_of[jobs], np.where(low < table.shape[1], low, 0)]
    lengths_s = np.full(len(jobs), np.inf)
    np.divide(left_s, rate, out=lengths_s, where=rate > 0)
    return lengths_s


def left_s_of(view: View, jobs: Ints) -> Floats:
    """Returns the forecast lengths less the progress of jobs in ascending order."""
    running = view.progress.running()
    left_s = np.empty(len(jobs))
    place = np.minimum(np.searchsorted(jobs, running.jobs), len(jobs) - 1)
    runs = jobs[place] == running.jobs
    left_s[place[runs]] = running.left_s[runs]
    waits = np.ones(len(jobs), bool)
    waits[place[runs]] = False
    left_s[waits] = view.progress.left_s(jobs[waits].tolist())
    return left_s


def least_lengths(view: View, jobs: Sequence[int]) -> list[float]:
    """Returns the keys of waiting jobs: their lengths on their least shares."""
    left_s = np.array(view.progress.left_s(jobs))
    lengths: list[float] = lengths_on_least(view, np.asarray(jobs, np.int64), left_s).tolist()
    return lengths


def shortest_first(view: View, pool: Pool) -> list[int] | None:
    """Returns the jobs that get their least shares, the shortest first; None means all jobs.

    A job that does not fit the rest of the pool is skipped. The queue must be in order of
    `least_lengths`.
    """
    running = view.progress.running()
    rows = movable(view)
    jobs = running.jobs[rows]
    if not is_limited(view) and len(jobs) + len(view.waiting) <= pool.gpus:
        all_jobs = np.concatenate([jobs, np.array(list(view.waiting), np.int64)])
        if int(pool.booked(view.jobs.least_gpus[all_jobs]).sum()) <= pool.gpus:
            return None
    lengths_s = lengths_on_least(view, jobs, running.left_s[rows])
    order = np.lexsort((jobs, lengths_s))
    runners = list(zip(lengths_s[order].tolist(), jobs[order].tolist(), strict=True))
    return _served(view, runners, Budget(view, pool))


def _served(view: View, runners: list[tuple[float, int]], budget: Budget) -> list[int]:
    """Serves running and waiting jobs in one line until the pool is used up."""
    all_alike = not view.jobs.elastic.any() and not is_limited(view)
    served: list[int] = []
    scan = view.waiting.scan()
    head = scan.next()
    position = 0
    while budget.gpus and (head is not None or position < len(runners)):
        if head is None or (position < len(runners) and runners[position] < (scan.key(), head)):
            job = runners[position][1]
            position += 1
            if budget.take(job):
                served.append(job)
            continue
        if budget.take(head):
            served.append(head)
        elif all_alike:
            scan.drop()  # jobs of one shape need equally many GPUs
        head = scan.next()
    return served
