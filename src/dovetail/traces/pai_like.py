"""Generates recurrent jobs like those of Alibaba PAI (Weng et al., NSDI'22).

About 65 % of jobs belong to groups of five or more. "Published" numbers are from the cluster
summary that comes with the Acme traces: mean 0.683 and median 0.5 GPUs, at most 8; run times with
mean 4,787 s, median 481 s, longest 626,371 s.
"""

from __future__ import annotations

import numpy as np

from dovetail.core.job import Floats, Ints
from dovetail.core.trace import COMPLETED, FAILED
from dovetail.traces.arrivals import spread
from dovetail.traces.generated_jobs import GeneratedJobs, numbered, zipf_weights
from dovetail.traces.rows import adjusted

GPUS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
GPU_SHARES = (0.12, 0.20, 0.30, 0.345, 0.02, 0.01, 0.005)
"""Requests before rounding up. Assumption: they match the published mean, median and maximum."""

DURATION_MEDIAN_S, DURATION_MEAN_S, DURATION_MAX_S = 480.667, 4787.109, 626_371.0
"""Published."""

DURATION_SIGMA = float(np.sqrt(2.0 * np.log(DURATION_MEAN_S / DURATION_MEDIAN_S)))
"""Spread of the log-normal with that median and mean."""

GROUP_SIGMA = 0.2
"""Spread of log run times within a group. Assumption: repeats of a job run within about 20 %."""

RECURRENT_SHARE, RECURRENT_MIN, RECURRENT_MAX = 0.65, 5, 1000
"""Share of jobs in groups of at least five (published), and the largest group (assumption)."""

GROUP_TAIL = 1.2
"""P(group of at least k) = (k / 5) ** -tail for the recurrent ones. Assumption."""

USERS, USER_POWER = 1200, 1.0
"""Number of users, and the exponent of their activity by rank. Assumption."""

FAILED_SHARE = 0.17
"""Share of jobs that fail, independent of the group. Assumption."""

GROUP_LIFE = 0.25
"""Mean time over which a group recurs, as a share of the trace. Assumption."""


def pai_like(
    jobs: int, days: float, rng: np.random.Generator, recurrent: float = RECURRENT_SHARE
) -> GeneratedJobs:
    """Returns recurrent jobs with a daily and weekly cycle; fractions of a GPU are rounded up.

    `recurrent` is the share of jobs in groups of five or more; the others are in smaller groups.
    """
    sizes = _group_sizes(jobs, recurrent, rng)
    group = _in_time(np.repeat(np.arange(len(sizes)), sizes), len(sizes), rng)
    user = rng.choice(USERS, size=len(sizes), p=zipf_weights(USERS, USER_POWER))
    requested = rng.choice(GPUS, size=len(sizes), p=GPU_SHARES)[group]
    duration = _durations(group, len(sizes), rng)
    failed = rng.uniform(size=jobs) < FAILED_SHARE
    fractions = int((requested < 1.0).sum())
    return GeneratedJobs(
        spread(jobs, days, rng),
        np.ceil(requested).astype(np.int64),
        duration,
        np.where(failed, FAILED, COMPLETED).astype(np.int8),
        numbered("user", user[group]),
        numbered("queue", np.zeros(jobs, dtype=np.int64)),
        numbered("group", group),
        DURATION_MAX_S,
        {adjusted("fraction of a GPU rounded up"): fractions} if fractions else {},
    )


def _group_sizes(jobs: int, recurrent: float, rng: np.random.Generator) -> Ints:
    """Returns the sizes of the recurrent groups, then those of groups of 1 to 4 jobs."""
    wanted = round(jobs * recurrent)
    sizes: list[int] = []
    total = 0
    while wanted - total >= RECURRENT_MIN:
        drawn = int(RECURRENT_MIN * (1.0 - rng.uniform()) ** (-1.0 / GROUP_TAIL))
        size = min(drawn, RECURRENT_MAX, wanted - total)
        if wanted - total - size < RECURRENT_MIN:
            size = wanted - total
        sizes.append(size)
        total += size
    while total < jobs:
        size = min(int(rng.integers(1, RECURRENT_MIN)), jobs - total)
        sizes.append(size)
        total += size
    return np.asarray(sizes, dtype=np.int64)


def _in_time(group: Ints, groups: int, rng: np.random.Generator) -> Ints:
    """Returns the group of each job in order of arrival; a group recurs over part of the trace."""
    begin, life = rng.uniform(size=groups), rng.exponential(GROUP_LIFE, groups)
    key = begin[group] * (1.0 - np.minimum(life, 1.0))[group]
    key += np.minimum(life, 1.0)[group] * rng.uniform(size=len(group))
    return group[np.argsort(key, kind="stable")]


def _durations(group: Ints, groups: int, rng: np.random.Generator) -> Floats:
    between = np.sqrt(DURATION_SIGMA**2 - GROUP_SIGMA**2)
    log_s = np.log(DURATION_MEDIAN_S) + between * rng.standard_normal(groups)[group]
    log_s += GROUP_SIGMA * rng.standard_normal(len(group))
    return np.asarray(np.clip(np.round(np.exp(log_s)), 1.0, DURATION_MAX_S), dtype=np.float64)
