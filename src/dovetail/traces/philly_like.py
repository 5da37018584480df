"""Generates jobs like those of Microsoft Philly (Jeon et al., ATC'19): sizes, run times and ends.

Every number below has its source. "Measured" means computed by us from the ten virtual clusters of
the AFS conversion (99,040 jobs) or, for ends, from 12,000 jobs with a status.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.core.job import Floats, Ints, Labels
from dovetail.core.trace import CANCELLED, COMPLETED, FAILED
from dovetail.traces.arrivals import ArrivalTimes
from dovetail.traces.generated_jobs import GeneratedJobs, numbered, zipf_weights

SIZES = (1, 2, 4, 8, 16, 24, 32)
SIZE_SHARES = (0.8798, 0.0246, 0.0456, 0.0427, 0.0053, 0.0003, 0.0017)
"""Requested GPUs, and shares of jobs. Measured."""

LEVELS = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)
DURATIONS_S = (
    (1, (1, 14, 40, 56, 84, 1018, 3730, 12963, 42377, 376649, 2426561, 4240676)),
    (4, (1, 7, 13, 18, 49, 868, 45516, 180291, 314812, 1079617, 4240676, 4240676)),
    (8, (1, 11, 37, 72, 325, 7530, 74901, 226713, 359579, 868469, 2096727, 3733627)),
    (32, (2, 13, 32, 44, 244, 4485, 31904, 100348, 184584, 610326, 1197262, 1428142)),
)
"""Run-time quantiles by largest size of the class, in s. Measured; the longest is published."""

DURATION_MAX_S = 4_240_676.0
"""The longest Philly job (cluster summary published with the Acme traces)."""

END_EDGES_S = (60.0, 300.0, 1800.0, 10800.0, 86400.0, 604800.0)
END_SHARES = (
    (0.497, 0.448, 0.055),
    (0.798, 0.177, 0.025),
    (0.724, 0.178, 0.098),
    (0.661, 0.199, 0.140),
    (0.206, 0.281, 0.512),
    (0.457, 0.323, 0.220),
    (0.197, 0.289, 0.514),
)
"""Completed, failed, cancelled by run time: short jobs fail, long ones are killed. Measured."""

CLUSTERS = (
    *(("6214e9", 51288), ("11cb48", 19070), ("6c71a0", 14791), ("ee9e8c", 5781), ("103959", 2677)),
    *(("0e4a51", 2465), ("ed69ec", 1401), ("2869ce", 956), ("e13805", 938)),
)
"""Virtual clusters and their jobs (AFS, NSDI'21, Table 3)."""

USERS, USER_POWER = 300, 1.1
"""Number of users, and the exponent of activity by rank. Assumption; the exponent fits the shares
of 125 users."""

BATCH_CORRELATION = 0.8
"""Correlation of log run times within a batch. Assumption: the jobs of a sweep are similar."""


def philly_like(arrivals: ArrivalTimes, rng: np.random.Generator) -> GeneratedJobs:
    """Returns one job for each arrival; jobs of a batch share user, cluster and size."""
    batches = int(arrivals.batch.max()) + 1 if len(arrivals.batch) else 0
    n = len(arrivals.submit_s)
    gpus = rng.choice(SIZES, size=batches, p=SIZE_SHARES / np.sum(SIZE_SHARES))[arrivals.batch]
    weight = np.sqrt(BATCH_CORRELATION)
    normal = weight * rng.standard_normal(batches)[arrivals.batch]
    normal += np.sqrt(1.0 - BATCH_CORRELATION) * rng.standard_normal(n)
    duration = durations(gpus, _normal_cdf(normal))
    cluster = _clusters(batches, rng)
    user = _users(cluster, rng)
    return GeneratedJobs(
        arrivals.submit_s,
        gpus.astype(np.int64),
        duration,
        _ends(duration, rng),
        numbered("user", user[arrivals.batch]),
        Labels(cluster[arrivals.batch].astype(np.int32), tuple(name for name, _ in CLUSTERS)),
        Labels.none(n),
        DURATION_MAX_S,
    )


def durations(gpus: NDArray[np.int64], level: Floats) -> Floats:
    """Returns the run times of size classes at quantile levels in (0, 1), in whole seconds."""
    result = np.empty(len(gpus))
    smallest = 0
    for largest, table in DURATIONS_S:
        rows = (gpus > smallest) & ((gpus <= largest) | (largest == DURATIONS_S[-1][0]))
        result[rows] = np.exp(np.interp(level[rows], LEVELS, np.log(table)))
        smallest = largest
    return np.maximum(np.round(result), 1.0)


def _normal_cdf(x: Floats) -> Floats:
    from scipy.special import ndtr

    return np.asarray(ndtr(x), dtype=np.float64)


def _ends(duration_s: Floats, rng: np.random.Generator) -> NDArray[np.int8]:
    shares = np.asarray(END_SHARES)
    cumulative = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    row = np.searchsorted(END_EDGES_S, duration_s, side="right")
    draw = rng.uniform(size=len(duration_s))
    kind = (draw[:, None] > cumulative[row][:, :2]).sum(axis=1)
    codes = np.array([COMPLETED, FAILED, CANCELLED], dtype=np.int8)
    return np.asarray(codes[kind], dtype=np.int8)


def _clusters(batches: int, rng: np.random.Generator) -> Ints:
    weights = np.array([jobs for _, jobs in CLUSTERS], dtype=np.float64)
    return rng.choice(len(CLUSTERS), size=batches, p=weights / weights.sum()).astype(np.int64)


def _users(cluster: Ints, rng: np.random.Generator) -> Ints:
    """Returns the user of each batch: each virtual cluster has its own, with Zipf activity."""
    each = -(-USERS // len(CLUSTERS))
    rank = rng.choice(each, size=len(cluster), p=zipf_weights(each, USER_POWER))
    return np.asarray(cluster * each + rank, dtype=np.int64)
