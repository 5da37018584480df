"""Throughput by overestimate first and re-adjust later (CoDDL, section 4.5 of the AFS paper).

A new job is assumed to scale linearly, and gets at most its fair share of the pool. While it runs
it measures every allocatable unit (1, 2, 4, ... GPUs, then whole machines) up to its share, by
shrinking, as part of its training; then it reports and shares are computed anew. Between measured
units throughput is interpolated; beyond the largest it is linear again.

`Measured` is (job, number of measured units) of the present jobs. Measurements read the believed
physics and cost the job no time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dovetail.core.job import Floats, Ints
from dovetail.core.placement import Placement
from dovetail.core.plan import Draft
from dovetail.core.view import View
from dovetail.mechanisms.elastic.budget import Pool
from dovetail.mechanisms.elastic.shares import Contenders

Measured = tuple[tuple[int, int], ...]


def units_up_to(most: int, per_machine: int) -> Ints:
    """Returns the allocatable units of at most `most` GPUs: powers of two, then whole machines."""
    parts = [1 << k for k in range(per_machine.bit_length()) if 1 << k < per_machine]
    wholes = range(per_machine, most + 1, per_machine)
    return np.array([unit for unit in (*parts, *wholes) if unit <= most], np.int64)


def remeasured(view: View, measured: Measured, measure_s: float) -> Measured:
    """Returns the measurements by now: a job measures all units up to a share that it keeps."""
    known = dict(measured)
    for job in view.changes.ended:
        known.pop(job, None)
    for job, due_s, number in _measuring(view, view.running, known, measure_s):
        if due_s <= view.now:
            known[job] = number
    return tuple(known.items())


def next_report_s(view: View, draft: Draft | None, measured: Measured, measure_s: float) -> float:
    """Returns when the next report of a measuring job is due."""
    placed = view.running if draft is None else draft.placed
    due = (due_s for _, due_s, _ in _measuring(view, placed, dict(measured), measure_s))
    return min(due, default=float("inf"))


def believed(view: View, pool: Pool, who: Contenders, measured: Measured) -> Contenders:
    """Returns the contenders with speeds as measured so far; new jobs get at most fair shares."""
    known = dict(measured)
    count = np.array([known.get(j, 0) for j in who.jobs.tolist()], np.int64)
    units = units_up_to(who.rates.shape[1] - 1, _machine(view))
    fair = max(1, pool.gpus // max(1, who.present))
    first = np.maximum(who.low, np.minimum(who.cap, pool.allowed(np.array([fair]))))
    cases, case_of = np.unique(
        np.stack([who.kind, np.maximum(count, 1)]), axis=1, return_inverse=True
    )
    rows = [_belief(who.rates[k], units[:n]) for k, n in cases.T.tolist()]
    return replace(
        who,
        kind=case_of.reshape(-1).astype(np.int64),
        cap=np.where(count == 0, first, who.cap),
        rates=np.array(rows).reshape(len(rows), who.rates.shape[1]),
    )


def _belief(rates: Floats, units: Ints) -> Floats:
    """Returns the believed speeds of a kind by GPU count, with these units measured."""
    counts = np.arange(len(rates))
    known = np.concatenate([[0], units])
    largest = int(known[-1])
    measured = np.interp(counts, known, rates[known])
    return np.asarray(np.where(counts <= largest, measured, rates[largest] * counts / largest))


def _measuring(
    view: View, placed: Mapping[int, Placement], known: Mapping[int, int], measure_s: float
) -> list[tuple[int, float, int]]:
    """Returns (job, time of its report, units known then) of jobs with units to measure."""
    units = units_up_to(max(1, view.jobs.widest_gpus), _machine(view)).tolist()
    number_of = np.searchsorted(units, np.arange(units[-1] + 2), side="right").tolist()
    cost_s = max(view.switch_s.values(), default=0.0) + measure_s
    running, since_s = view.running, view.progress.running_since_s
    reports: list[tuple[int, float, int]] = []
    for job, placement in placed.items():
        number = number_of[min(placement.gpus, units[-1] + 1)]
        if number > known.get(job, 0):
            stays = running.get(job) is placement or running.get(job) == placement
            reports.append((job, (since_s(job) if stays else view.now) + cost_s, number))
    return reports


def _machine(view: View) -> int:
    return max(g.gpus_per_node for g in view.cluster.groups)
