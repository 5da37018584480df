"""Generates arrival times: a daily and weekly cycle with bursts, a Poisson process, or a burst."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.core.job import Floats, Ints
from dovetail.core.units import DAY_S, HOUR_S

WEEKDAYS = (1.01, 1.16, 1.30, 1.28, 1.27, 0.50, 0.47)
"""Jobs per day relative to the mean, Monday to Sunday; measured on ten Philly clusters (99,040
jobs)."""

DAY_SWING = 0.28
"""Relative amplitude of the hourly rate over a day: the first harmonic of the same jobs."""

BUSIEST_HOUR = 15.0
"""Local hour of the peak. Assumption, as the users in the log are in several time zones."""

BATCH_SHARE, BATCH_TAIL = 0.173, 1.06
"""A submission is a batch with this probability; of batches, P(size >= k) = (k / 2) ** -tail.

Measured on Philly as runs of jobs of one cluster at most 30 s apart.
"""

BATCH_MAX_HOURS = 20.0
"""Largest batch, in hours of mean arrivals: Philly's busiest hour had 20 times the mean."""

BATCH_GAP_S = 5.0
"""Mean time between the jobs of a batch. Assumption (half of all Philly gaps are under 10 s)."""

_GRID_S = 900.0


@dataclass(frozen=True, slots=True)
class ArrivalTimes:
    """Sorted submission times, and the batch number of each."""

    submit_s: Floats
    batch: Ints


def at_once(jobs: int) -> ArrivalTimes:
    """Returns a burst: all jobs at second 0, each in its own batch."""
    return ArrivalTimes(np.zeros(jobs), np.arange(jobs))


def poisson(jobs: int, days: float, rng: np.random.Generator) -> ArrivalTimes:
    """Returns `jobs` arrivals of a Poisson process over `days`: independent, uniform, sorted."""
    return ArrivalTimes(np.sort(rng.uniform(0.0, days * DAY_S, jobs)), np.arange(jobs))


def cyclic(
    jobs: int, days: float, rng: np.random.Generator, *, bursts: float = 1.0
) -> ArrivalTimes:
    """Returns arrivals with Philly's daily and weekly cycle and batches; second 0 is a Monday.

    `bursts` scales the share of submissions that are batches: 0 for none, 1 as measured.
    """
    longest = max(2.0, BATCH_MAX_HOURS * jobs / (days * 24.0))
    sizes = _batch_sizes(jobs, min(BATCH_SHARE * bursts, 1.0), longest, rng)
    starts = _by_rate(rng.uniform(size=len(sizes)), days)
    batch = np.repeat(np.arange(len(sizes)), sizes)
    gaps = rng.exponential(BATCH_GAP_S, jobs)
    first = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    gaps[first] = 0.0
    elapsed = np.cumsum(gaps)
    submit = np.minimum(starts[batch] + elapsed - elapsed[first][batch], days * DAY_S)
    order = np.lexsort((batch, submit))
    return ArrivalTimes(submit[order], batch[order])


def spread(jobs: int, days: float, rng: np.random.Generator) -> Floats:
    """Returns sorted arrivals with the daily and weekly cycle but no batches."""
    return np.sort(_by_rate(rng.uniform(size=jobs), days))


def rate(at_s: Floats) -> Floats:
    """Returns the arrival rate relative to its mean at given seconds since a Monday 00:00."""
    day = (at_s // DAY_S % 7).astype(np.int64)
    angle = 2.0 * np.pi * (at_s / HOUR_S % 24.0 - BUSIEST_HOUR) / 24.0
    return np.asarray(WEEKDAYS)[day] * (1.0 + DAY_SWING * np.cos(angle))


def _by_rate(uniform: Floats, days: float) -> Floats:
    """Returns times distributed as the rate, from uniform numbers."""
    steps = max(1, int(np.ceil(days * DAY_S / _GRID_S)))
    edges = np.linspace(0.0, days * DAY_S, steps + 1)
    weight = np.concatenate(([0.0], np.cumsum(rate((edges[:-1] + edges[1:]) / 2))))
    return np.interp(uniform, weight / weight[-1], edges)


def _batch_sizes(jobs: int, share: float, longest: float, rng: np.random.Generator) -> Ints:
    """Returns batch sizes that add up to `jobs`; the last one is truncated."""
    sizes = np.empty(0, np.int64)
    while sizes.sum() < jobs:
        n = max(16, jobs // 2)
        tail = np.minimum(2.0 * rng.uniform(size=n) ** (-1.0 / BATCH_TAIL), longest)
        drawn = np.where(rng.uniform(size=n) < share, tail, 1.0).astype(np.int64)
        sizes = np.concatenate((sizes, drawn))
    ends = np.cumsum(sizes)
    count = int(np.searchsorted(ends, jobs)) + 1
    sizes = sizes[:count].copy()
    sizes[-1] -= int(ends[count - 1]) - jobs
    return sizes
