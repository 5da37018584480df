"""Admission by GPU counts, for policies whose jobs run on other sizes than requested.

A queue pass (`core.passes`) relies on jobs of one shape fitting alike, which ends where the policy
chooses sizes. Here all jobs form one line, are admitted by count, and then placed.
"""

from __future__ import annotations

import numpy as np

from dovetail.core.job import Ints
from dovetail.core.passes import Because, Keys
from dovetail.core.plan import Draft
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import View
from dovetail.mechanisms.elastic.shares import waits


def pool_gpus(view: View) -> int:
    """Returns the GPUs that are free or held by running jobs that may be stopped."""
    held = int(view.progress.running().gpus.sum())
    if not view.all_preemptible:
        held -= sum(p.gpus for j, p in view.running.items() if not view.preemptible[j])
    return view.plan.free_gpus + held


def running_jobs(view: View) -> Ints:
    """Returns the running jobs that may be stopped."""
    jobs = view.progress.running().jobs
    return jobs if view.all_preemptible else jobs[view.preemptible[jobs]]


def by_submission(view: View) -> Ints:
    """Returns all jobs but those that may not be stopped, in order of submission."""
    return np.sort(np.concatenate([running_jobs(view), view.waiting.columns()[0]]))


def by_key(view: View, keys: Keys) -> Ints:
    """Returns all jobs but those that may not be stopped, smallest key first.

    `keys` ranks the running jobs, which win exact ties.
    """
    waiting, keys_waiting = view.waiting.columns()
    running = view.progress.running()
    jobs, keys_running = running.jobs, keys(running)
    if not view.all_preemptible:
        movable = view.preemptible[jobs]
        jobs, keys_running = jobs[movable], keys_running[movable]
    keys_running = keys_running - RELATIVE_TOLERANCE * np.abs(keys_running)
    all_jobs = np.concatenate([jobs, waiting])
    order = np.lexsort((all_jobs, np.concatenate([keys_running, keys_waiting])))
    return all_jobs[order]


def place_whole(view: View, jobs: Ints, sizes: Ints) -> tuple[Draft, Because]:
    """Stops running jobs that are not among `jobs`, and places each new one whole or not at all.

    A running job keeps its GPUs. If even the empty cluster has no room for a size (on one node, or
    on nodes of one type), a job that can run on fewer gets as many GPUs as there is room for.
    """
    draft = view.plan.repack() if view.placing.running == "repack" else view.plan.draft()
    if view.placing.running == "repack":
        for job, placement in view.running.items():
            if not view.preemptible[job]:
                draft.place(job, placement)
    else:
        for job in np.setdiff1d(running_jobs(view), jobs).tolist():
            draft.remove(job)
    find = view.placing.find
    for job, gpus in zip(jobs.tolist(), sizes.tolist(), strict=True):
        if job in draft.placed:
            continue
        spans = find(draft.occupancy, view.shape(job), gpus)
        while spans is None and not draft.placed and gpus > int(view.jobs.least_gpus[job]):
            gpus -= 1
            spans = find(draft.occupancy, view.shape(job), gpus)
        if spans is not None:
            draft.place(job, spans)
    return draft, waits(view, draft)
