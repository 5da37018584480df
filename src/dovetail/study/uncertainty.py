"""Confidence intervals of mean JCTs. Jobs of one run are dependent, so blocks are resampled.

Within one run, submissions are cut into ten blocks of time, and whole blocks are resampled. A
backlog carries over from block to block, so blocks must be long compared with its memory. A policy
gets no interval if the autocorrelation of its run (Politis and White 2004, corrected by Patton,
Politis and White 2009) requires longer blocks. Each replicate (window of the trace, seed) is one
unit.

Both use a log scale, since mean JCTs are skewed, and are paired: a ratio is computed block by
block, with the same blocks for every policy. With few units plain percentiles are too narrow, so
blocks are resampled by the bootstrap-t (with bounded quantiles) and replicates get Student's t.
Measured coverage and its limits: docs/concepts/uncertainty.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, exp, log, sqrt

import numpy as np

from dovetail.core.job import Floats

LEVEL = 0.95
RESAMPLES = 4000
BINS = 512
"""Bins of the series whose autocorrelation measures the memory of a run."""
JOBS_PER_BIN_MIN = 4
"""Bins with fewer jobs are too noisy, so short traces get fewer bins."""
BLOCKS = 10
"""NOTE: with 16 or 24 blocks intervals missed more often (docs/concepts/uncertainty.md)."""
BLOCKS_MIN = 8
"""Requiring more blocks selects runs with an underestimated memory and lowers the coverage."""
REPLICATES_MIN = 4
EVEN_MIN = 4.0
"""The fewest blocks that jobs must be spread over, counted as (sum n)^2 / sum n^2."""
TAIL = 0.005
"""The share of the first and of the last submissions that may lie far from the others."""
T_LEAST, T_MOST = 0.5, 1.5
"""NOTE: with ten blocks, bootstrap-t quantiles are at times many times those of Student's t.
Bounded by these multiples of them, intervals cover as often, and the widest tenth is half as wide.
"""
CERTAIN = 2.0
"""Autocorrelations within `CERTAIN * sqrt(log10(n) / n)` count as zero (Politis and White)."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its 95 % interval; low and high are None with too little data."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """The sum of JCTs and the number of jobs of each policy, per block or replicate.

    `resampled` is True for blocks of one run, False for replicates. `silent` are the policies
    without an interval, `why_not` the reason. `unit_s` is the length of a block.
    """

    flow_s: Mapping[str, Floats]
    jobs: Mapping[str, Floats]
    resampled: bool
    silent: frozenset[str] = frozenset()
    why_not: str = ""
    unit_s: float = 0.0

    @property
    def units(self) -> int:
        """Returns the number of blocks or replicates."""
        return len(next(iter(self.flow_s.values())))


def blocks(submit_s: Floats, jct_s: Mapping[str, Floats]) -> Samples:
    """Returns the blocks of one run: equal spans of submissions.

    `jct_s` has the JCTs of each policy, NaN for a job that does not count, in the order of
    `submit_s`, which ascends. Where a few jobs lie far from the others, blocks cut the time of the
    others; policies get no interval if most jobs are in few blocks all the same.
    """
    submit_s = _without_tails(submit_s)
    span_s = float(submit_s[-1] - submit_s[0]) if len(submit_s) else 0.0
    bins = min(BINS, len(submit_s) // JOBS_PER_BIN_MIN) if span_s > 0 else 0
    needed = _block_lengths(submit_s, jct_s, bins)
    is_even = _spread(submit_s) >= EVEN_MIN
    silent = frozenset(
        p for p in jct_s if bins < BLOCKS or not is_even or bins // needed[p] < BLOCKS_MIN
    )
    count = min([BLOCKS, *(bins // needed[p] for p in jct_s if p not in silent)])
    sums = {p: _binned(submit_s, jct, count) for p, jct in jct_s.items()}
    why_not = ""
    if bins < BLOCKS:
        why_not = "too few jobs, or all at once"
    elif not is_even:
        why_not = "most jobs were submitted in a small part of the time"
    elif silent:
        longest = max(needed[p] for p in silent) / bins
        why_not = (
            f"the backlog is felt over {longest:.0%} of the run, which is too short to tell how "
            "typical it is; replicate over windows of a longer trace"
        )
    return Samples(
        {p: flow for p, (flow, _) in sums.items()},
        {p: jobs for p, (_, jobs) in sums.items()},
        resampled=True,
        silent=silent,
        why_not=why_not,
        unit_s=span_s / count,
    )


def _without_tails(submit_s: Floats) -> Floats:
    """Returns the submissions; the first and last few come closer if they lie far apart."""
    if _spread(submit_s) >= EVEN_MIN:
        return submit_s
    tail = int(TAIL * len(submit_s))
    kept = submit_s[tail : len(submit_s) - tail]
    return np.clip(submit_s, kept[0], kept[-1]) if len(kept) else submit_s


def _spread(submit_s: Floats) -> float:
    """Returns the number of equal blocks of time that jobs are spread over."""
    _, jobs = _binned(submit_s, submit_s, BLOCKS)
    squares = float((jobs**2).sum())
    return float(jobs.sum()) ** 2 / squares if squares else 0.0


def _block_lengths(submit_s: Floats, jct_s: Mapping[str, Floats], bins: int) -> dict[str, int]:
    """Returns the bins that a block of each policy needs; 1 if the run is too short to tell."""
    if bins < BLOCKS:
        return dict.fromkeys(jct_s, 1)
    sums = {p: _binned(submit_s, jct, bins) for p, jct in jct_s.items()}
    return {p: block_length(_residuals(flow, jobs)) for p, (flow, jobs) in sums.items()}


def replicates(flow_s: Mapping[str, Floats], jobs: Mapping[str, Floats]) -> Samples:
    """Returns samples with one unit per replicate under every policy."""
    count = len(next(iter(flow_s.values())))
    why_not = "" if count >= REPLICATES_MIN else f"{count} replicates are too few for intervals"
    silent = frozenset(flow_s) if why_not else frozenset()
    return Samples(flow_s, jobs, resampled=False, silent=silent, why_not=why_not)


def _binned(submit_s: Floats, jct_s: Floats, bins: int) -> tuple[Floats, Floats]:
    """Returns the sum of JCTs and the number of jobs in equal bins of submission."""
    done = np.isfinite(jct_s)
    if not len(submit_s):
        return np.zeros(bins), np.zeros(bins)
    edges = np.linspace(submit_s[0], submit_s[-1], bins + 1)[1:-1]
    which = np.searchsorted(edges, submit_s, side="right")
    flow = np.bincount(which, np.where(done, jct_s, 0.0), bins)
    return flow.astype(np.float64), np.bincount(which, done, bins).astype(np.float64)


def _residuals(flow_s: Floats, jobs: Floats) -> Floats:
    """Returns the contribution of each unit to the error of the mean."""
    return np.asarray(flow_s - _mean(flow_s.sum(), jobs.sum()) * jobs)


def block_length(values: Floats) -> int:
    """Returns the block length, in bins, at which blocks of a series are nearly independent.

    The automatic choice of Politis and White (2004, equations 9 to 11, with the correction of
    2009 for the circular bootstrap): b = (2 G^2 / D)^(1/3) n^(1/3), where G and D come from
    autocovariances up to twice the lag M, beyond which they do not differ from zero. A block is at
    least M long, since shorter blocks are dependent.
    """
    n = len(values)
    spread = float(np.var(values)) if n else 0.0
    if n < BLOCKS_MIN or spread <= 0.0:
        return 1
    covariance = _autocovariances(values, n // 2)
    memory = _memory(covariance / covariance[0], n)
    lags = np.arange(1, min(2 * memory, n // 2) + 1)
    taper = np.clip(2.0 * (1.0 - lags / (2.0 * memory)), 0.0, 1.0) if memory else lags * 0.0
    tapered = taper * covariance[lags]
    long_run = float(covariance[0] + 2.0 * tapered.sum())
    tilt = float(2.0 * (lags * tapered).sum())
    if long_run <= 0.0:
        return max(1, memory)
    best = (2.0 * tilt**2 / (4.0 / 3.0 * long_run**2)) ** (1 / 3) * n ** (1 / 3)
    return int(max(1, memory, ceil(best)))


def _memory(correlation: Floats, n: int) -> int:
    """Returns the lag after which a run of autocorrelations does not differ from zero."""
    quiet = max(5, ceil(sqrt(np.log10(n))))
    small = np.abs(correlation[1:]) < CERTAIN * sqrt(np.log10(n) / n)
    run = 0
    for lag, is_small in enumerate(small.tolist(), start=1):
        run = run + 1 if is_small else 0
        if run == quiet:
            return lag - quiet
    return len(small)


def _autocovariances(values: Floats, lags: int) -> Floats:
    """Returns the autocovariances at lags 0 to `lags`, by one Fourier transform."""
    n = len(values)
    centred = values - values.mean()
    power = np.abs(np.fft.rfft(centred, 2 * n)) ** 2
    return np.asarray(np.fft.irfft(power)[: lags + 1] / n)


def intervals(
    samples: Samples, baseline: str, seed: int
) -> tuple[dict[str, Interval], dict[str, Interval]]:
    """Returns the mean JCT of each policy, and its ratio to that of the baseline."""
    rng = np.random.default_rng(seed)
    draws = rng.integers(0, samples.units, (RESAMPLES, samples.units))
    flow, jobs = samples.flow_s, samples.jobs
    base = (flow[baseline], jobs[baseline])
    means, ratios = {}, {}
    for p in flow:
        quiet = p in samples.silent
        means[p] = _interval(samples, draws, (flow[p], jobs[p]), None, quiet)
        quiet |= baseline in samples.silent
        ratios[p] = _interval(samples, draws, (flow[p], jobs[p]), base, quiet)
    return means, ratios


Sums = tuple[Floats, Floats]
"""Sums of JCTs and numbers of jobs; the last axis is the unit."""


def _interval(
    samples: Samples, draws: np.ndarray, of: Sums, to: Sums | None, quiet: bool
) -> Interval:
    """Returns the mean JCT, or its ratio to that of `to`, with its interval."""
    value = _mean(of[0].sum(), of[1].sum())
    if to is not None:
        below = _mean(to[0].sum(), to[1].sum())
        value = value / below if below else float("nan")
    if quiet or not value > 0:
        return Interval(value)
    centre, error = (float(x) for x in _log_estimate(of, to))
    if not error > 0:
        return Interval(value, value, value)
    low_t, high_t = -student(samples.units), student(samples.units)
    if samples.resampled:
        drawn = (of[0][draws], of[1][draws])
        drawn_to = None if to is None else (to[0][draws], to[1][draws])
        low, high = _studentized(drawn, drawn_to, centre)
        low_t = min(max(low, T_MOST * low_t), T_LEAST * low_t)
        high_t = max(min(high, T_MOST * high_t), T_LEAST * high_t)
    return Interval(value, exp(log(value) - high_t * error), exp(log(value) - low_t * error))


def _studentized(drawn: Sums, to: Sums | None, centre: float) -> tuple[float, float]:
    """Returns the bootstrap-t quantiles of (estimate - truth) / standard error."""
    estimate, error = _log_estimate(drawn, to)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (estimate - centre) / error
    cut = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(t[np.isfinite(t)], (cut, 1.0 - cut))
    return float(low), float(high)


def _log_estimate(of: Sums, to: Sums | None) -> tuple[Floats, Floats]:
    """Returns the log of the mean (or ratio of means) and its standard error over the units."""
    centre, pull = _log_mean(of)
    if to is not None:
        below, pull_below = _log_mean(to)
        centre, pull = centre - below, pull - pull_below
    units = pull.shape[-1]
    return centre, np.sqrt(np.square(pull).sum(axis=-1) * units / (units - 1))


def _log_mean(sums: Sums) -> tuple[Floats, Floats]:
    """Returns the log of a mean JCT, and the influence of each unit on it (delta method)."""
    flow, jobs = sums
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = flow.sum(axis=-1, keepdims=True) / jobs.sum(axis=-1, keepdims=True)
        pull = (flow - mean * jobs) / (mean * jobs.sum(axis=-1, keepdims=True))
        return np.log(mean[..., 0]), pull


def student(units: int) -> float:
    """Returns the quantile of Student's t for an interval over so many units."""
    # NOTE: scipy.stats takes 0.4 s to import.
    from scipy.special import stdtrit

    return float(stdtrit(units - 1, 0.5 + LEVEL / 2.0))


def _mean(flow_s: float, jobs: float) -> float:
    return float(flow_s) / float(jobs) if jobs else float("nan")
