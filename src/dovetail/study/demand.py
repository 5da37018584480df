"""More or fewer jobs as a change: seeded copies of the log's own jobs, in its own pattern.

+20 % copies a fifth of the jobs, drawn without replacement; a copy has the user, queue, size,
length and limit of its job and is submitted up to half an hour from it, so nights, bursts and
deadlines stay where they are. -20 % leaves a fifth out. Each draw is one run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import exp, log, sqrt

import numpy as np

from dovetail.core.errors import InputError
from dovetail.core.job import Ints
from dovetail.core.trace import Trace
from dovetail.core.units import HOUR_S
from dovetail.study.uncertainty import Interval, student

DRAWS = 5
"""Runs of a row with another demand."""
NEAR_S = HOUR_S / 2
"""A copy is submitted at most so long before or after its job."""
MOST = 9.0
_DEMAND = re.compile(r"(?P<change>[+-]\d{1,3}(?:\.\d+)?) ?%", re.ASCII)


def parse_demand(text: str) -> float:
    """Returns the jobs of a text like `+20%` over those of the log. Raises InputError."""
    match = _DEMAND.fullmatch(text)
    change = float(match["change"]) / 100 if match else 0.0
    if not change or not -1 < change <= MOST:
        raise InputError("--demand", f"'{text}' is not another demand", "as in +20%, +100%, -10%")
    return 1.0 + change


def with_demand(trace: Trace, factor: float, seed: int) -> tuple[Trace, Ints]:
    """Returns a draw of the trace, and the row there of each job here, -1 for one left out."""
    rng, own = np.random.default_rng(seed), np.arange(len(trace))
    if factor < 1:
        lost = rng.choice(own, round((1 - factor) * len(own)), replace=False)
        kept = np.setdiff1d(own, lost)
        where = np.full(len(own), -1, np.int64)
        where[kept] = np.arange(len(kept))
        return replace(trace.take(kept), recorded=None), where
    whole, part = divmod(factor - 1, 1.0)
    drawn = rng.choice(own, round(part * len(own)), replace=False)
    rows = np.concatenate((own, *[own] * int(whole), np.sort(drawn)))
    copy = np.arange(len(rows)) // len(own)
    by_row = np.argsort(rows, kind="stable")
    rows, copy = rows[by_row], copy[by_row]
    submit_s = trace.jobs.submit_s[rows]
    shift_s = np.where(copy > 0, rng.uniform(-NEAR_S, NEAR_S, len(rows)), 0.0)
    moved_s = np.clip(submit_s + shift_s, submit_s[0], submit_s[-1])
    copies = trace.take(rows)
    numbered = zip(copies.jobs.job_id, copy.tolist(), strict=True)
    jobs = replace(
        copies.jobs,
        job_id=tuple(f"{job_id}~{number}" if number else job_id for job_id, number in numbered),
        submit_s=moved_s,
        deadline_s=copies.jobs.deadline_s + (moved_s - submit_s),
    )
    order = np.argsort(moved_s, kind="stable")
    where = np.flatnonzero(copy[order] == 0)
    return replace(copies, jobs=jobs, recorded=None).take(order), where


def widened(interval: Interval, of_draws: Sequence[float]) -> Interval:
    """Returns the interval of a mean over draws, with the error that the draws add."""
    if interval.low is None or interval.high is None or len(of_draws) < 2:
        return interval
    error = float(np.std(np.log(of_draws), ddof=1)) / sqrt(len(of_draws)) * student(len(of_draws))
    centre = log(interval.value)
    low = sqrt((centre - log(interval.low)) ** 2 + error**2)
    high = sqrt((log(interval.high) - centre) ** 2 + error**2)
    return Interval(interval.value, exp(centre - low), exp(centre + high))
