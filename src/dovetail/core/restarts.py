"""When a restart pays: for jobs whose program is ended and started anew to change its GPUs.

Such a job has a price of its own (`JobRequest.restart_s`). Growing costs one restart, and another
when the GPUs are taken again. How long it will keep them nobody knows, so it grows once it has kept
those that it has for as long as both restarts need to pay (ski rental: it then never pays much more
than it gains). Where lengths are known, the work that is left must gain more than one restart
costs. It shrinks only for a job that waits, never so that another running job may grow.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dovetail.core.job import Floats, Ints
from dovetail.core.units import LONG_AGO_S, NEVER_S
from dovetail.core.view import View

RESTARTS_TO_PAY = 2
"""One to grow, one to shrink again."""


def growth_due_s(view: View, job: int) -> float:
    """Returns from when on a running job may grow: LONG_AGO_S if its resizes are not restarts."""
    price_s = float(view.jobs.restart_s[job])
    if not price_s:
        return LONG_AGO_S
    held, rates = view.running[job].gpus, _rates(view, job)
    larger = rates[held + 1 : int(view.jobs.most_gpus[job]) + 1]
    if held >= len(rates) or not larger.size or rates[held] <= 0:
        return LONG_AGO_S
    # Per GPU, so that a job is not held to what only its largest size would gain.
    gain = float(((larger / rates[held] - 1) / np.arange(1, larger.size + 1)).max())
    if gain <= 0:
        return NEVER_S
    return view.progress.running_since_s(job) + RESTARTS_TO_PAY * price_s / gain


def next_growth_s(view: View) -> float:
    """Returns when the next of the running jobs may grow that may not yet; NEVER_S without one."""
    if not view.jobs.any_restart:
        return NEVER_S
    most = view.jobs.most_gpus
    due = (growth_due_s(view, j) for j, p in view.running.items() if p.gpus < most[j])
    return min((due_s for due_s in due if due_s > view.now), default=NEVER_S)


def may_grow(view: View, job: int) -> bool:
    """Returns whether more GPUs are worth what they cost a running job."""
    if view.now < growth_due_s(view, job):
        return False
    price_s = float(view.jobs.restart_s[job])
    if not price_s or not view.progress.knows_lengths:
        return True
    held, rates = view.running[job].gpus, _rates(view, job)
    best = float(rates[held : int(view.jobs.most_gpus[job]) + 1].max(initial=0.0))
    if held >= len(rates) or rates[held] <= 0 or best <= 0:
        return True
    left_s = view.progress.left_s((job,))[0]
    return left_s / float(rates[held]) - left_s / best > price_s


def most_now(view: View, jobs: Ints, most: Ints) -> Ints:
    """Returns the largest shares of jobs, for which a restart does not pay what they hold."""
    if not view.jobs.any_restart:
        return most
    now = most.copy()
    for row, job in enumerate(jobs.tolist()):
        placement = view.running.get(job)
        if placement is not None and not may_grow(view, job):
            now[row] = min(placement.gpus, now[row])
    return now


def worth_a_restart(view: View, changed: Mapping[int, int]) -> Mapping[int, int]:
    """Returns the new shares without those of running jobs that are not worth their restart."""
    if not view.jobs.any_restart:
        return changed
    return {job: share for job, share in changed.items() if _is_worth(view, job, share)}


def _is_worth(view: View, job: int, share: int) -> bool:
    placement = view.running.get(job)
    if placement is None or not share or not view.jobs.restart_s[job]:
        return True
    return may_grow(view, job) if share > placement.gpus else bool(view.waiting)


def _rates(view: View, job: int) -> Floats:
    """Returns the believed speed of a job by its number of GPUs."""
    width = max(1, min(view.jobs.widest_gpus, view.cluster.installed_gpus))
    rates: Floats = view.physics.speed.rates(width)[view.physics.kind_of[job]]
    return rates
