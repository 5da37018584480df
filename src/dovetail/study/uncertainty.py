"""Honest intervals: jobs of one run are not independent, so they are never resampled one by one.

Within one run, time is cut into blocks of submissions and whole blocks are resampled (block
bootstrap); the same blocks are drawn for every policy, so that ratios are paired. Over
replicates (windows of the trace, assignment seeds) the replicates are resampled, also paired.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.core.job import Floats

RESAMPLES = 2000
BLOCKS_MIN = 8
"""Fewer blocks or replicates than this say too little: no interval is given."""
BLOCKS_MAX = 40
REPLICATES_MIN = 4


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval; low and high are None where there is too little to say."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """Per unit (block or replicate): the sum of JCTs of each policy, and the number of jobs."""

    flow_s: dict[str, Floats]
    jobs: dict[str, Floats]
    enough: bool


def blocks(submit_s: Floats, jct_s: dict[str, Floats]) -> Samples:
    """Returns sums over blocks of submissions: equal spans of time, at least a day if possible.

    `jct_s` is per policy, NaN for a job that did not finish; all align with `submit_s`.
    """
    span_s = float(submit_s[-1] - submit_s[0]) if len(submit_s) else 0.0
    days = int(span_s // 86400)
    count = min(BLOCKS_MAX, max(days, BLOCKS_MIN) if days < BLOCKS_MIN else days)
    edges = np.linspace(0.0, span_s, count + 1)[1:-1]
    block = np.searchsorted(edges, submit_s - submit_s[0], side="right") if len(submit_s) else []
    flow: dict[str, Floats] = {}
    jobs: dict[str, Floats] = {}
    for policy, jct in jct_s.items():
        done = np.isfinite(jct)
        flow[policy] = np.bincount(block, np.where(done, jct, 0.0), count).astype(np.float64)
        jobs[policy] = np.bincount(block, done, count).astype(np.float64)
    filled = int((np.bincount(block, minlength=count) > 0).sum()) if len(submit_s) else 0
    return Samples(flow, jobs, span_s > 0 and filled >= BLOCKS_MIN)


def replicates(flow_s: dict[str, Floats], jobs: dict[str, Floats]) -> Samples:
    """Returns samples of which each unit is a whole run of every policy."""
    count = len(next(iter(flow_s.values())))
    return Samples(flow_s, jobs, count >= REPLICATES_MIN)


def intervals(
    samples: Samples, baseline: str, seed: int
) -> tuple[dict[str, Interval], dict[str, Interval]]:
    """Returns, per policy, its mean JCT and the ratio of that to the baseline's."""
    policies = list(samples.flow_s)
    count = len(samples.flow_s[baseline])
    draws = np.random.default_rng(seed).integers(0, count, (RESAMPLES, count))
    drawn = {
        p: _ratio(samples.flow_s[p][draws].sum(axis=1), samples.jobs[p][draws].sum(axis=1))
        for p in policies
    }
    means, ratios = {}, {}
    base = samples.flow_s[baseline].sum() / max(samples.jobs[baseline].sum(), 1.0)
    for p in policies:
        mean = float(samples.flow_s[p].sum() / max(samples.jobs[p].sum(), 1.0))
        means[p] = _interval(mean, drawn[p], samples.enough)
        ratio = mean / base if base else float("nan")
        ratios[p] = _interval(ratio, _ratio(drawn[p], drawn[baseline]), samples.enough)
    return means, ratios


def _ratio(top: Floats, bottom: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(top / bottom)


def _interval(value: float, drawn: Floats, enough: bool) -> Interval:
    usable = drawn[np.isfinite(drawn)]
    if not enough or not len(usable):
        return Interval(value)
    low, high = np.quantile(usable, (0.025, 0.975))
    return Interval(value, float(low), float(high))
