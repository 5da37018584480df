"""Who shares the cluster under an inner policy that stops jobs: those whose turn it would be.

Running jobs that may be stopped stand in line with the waiting ones, each tenant's jobs in the
order of the inner policy, and the turns fill an empty cluster. The inner policy sees these jobs
alone; a running job without a turn keeps its GPUs as long as none of them needs them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.core.errors import IllegalPlan
from dovetail.core.plan import Draft
from dovetail.core.plan_part import PlanPart, ProgressPart
from dovetail.core.policy import Decision
from dovetail.core.view import View
from dovetail.mechanisms.tenancy.standing import TenantStanding
from dovetail.mechanisms.tenancy.turns import turns


@dataclass(frozen=True, slots=True)
class Lineup:
    """Waiting jobs with a turn, running jobs without one, and waiting ones without; in order."""

    shown: list[int]
    displaced: list[int]
    others: list[int]


def line_up(standing: TenantStanding, keys: Mapping[int, float], *, resizes: bool) -> Lineup:
    """Returns who has a turn. `keys` rank the running jobs that may be stopped.

    Under a policy that resizes, elastic jobs count with their fewest GPUs.
    """
    view = standing.view
    if _of_one_tenant(standing, keys):
        return Lineup(list(view.waiting), [], [])
    order = turns(standing.without(keys), view.cluster.gpus, running=keys)
    runs = _filled(view, [turn.job for turn in order], keys, resizes=resizes)
    waiting = [turn.job for turn in order if turn.job in view.waiting]
    shown = [job for job in waiting if job in runs]
    displaced = [turn.job for turn in order if turn.job in keys and turn.job not in runs]
    others = [job for job in waiting if job not in runs]
    return Lineup(shown, displaced if shown else [], others)


def _of_one_tenant(standing: TenantStanding, running: Mapping[int, float]) -> bool:
    """Returns whether all jobs are of one tenant that ranks them as the inner policy does."""
    view = standing.view
    rows = np.append(view.waiting.columns()[0], np.fromiter(running, np.int64, len(running)))
    alike = len({standing.leaf_of[job] for job in rows.tolist()}) <= 1
    ranked = view.jobs.priority[rows].any() or any(q.priority for q in view.cluster.qos)
    return alike and not ranked


def _filled(
    view: View, jobs: Sequence[int], movable: Collection[int], *, resizes: bool
) -> set[int]:
    """Returns the jobs that find room in this order on the GPUs that are not settled."""
    draft = view.plan.repack()
    for job, placement in view.running.items():
        if job not in movable:
            draft.place(job, placement)
    failed: set[tuple[int, int]] = set()
    runs: set[int] = set()
    for job in jobs:
        if not draft.free_gpus:
            break
        shape = view.shape_of[job]
        gpus = int(view.jobs.least_gpus[job]) if resizes else view.shape(job).gpus
        if not resizes and job in movable and _put_back(view, draft, job):
            runs.add(job)
            continue
        if (shape, gpus) in failed:
            continue
        spans = view.placing.find(draft.occupancy, view.shape(job), gpus)
        if spans is None:
            failed.add((shape, gpus))
        else:
            draft.place(job, spans)
            runs.add(job)
    view.plan.discard()
    return runs


def _put_back(view: View, draft: Draft, job: int) -> bool:
    """Puts a job where it runs; False if its GPUs are taken."""
    try:
        draft.place(job, view.running[job])
    except IllegalPlan:
        return False
    return True


def as_shown(view: View, displaced: Sequence[int]) -> View:
    """Returns a view in which some running jobs have been stopped."""
    if not displaced:
        return view
    part = PlanPart(view.plan, displaced)
    return replace(view, plan=part, progress=ProgressPart(view.progress, displaced))


def completed(view: View, decision: Decision, found: Lineup, *, resizes: bool) -> Decision:
    """Returns a decision with the displaced jobs that may stay, and others that still fit.

    An inner policy that resizes hands out all GPUs by itself.
    """
    draft = decision.draft
    if draft is None:
        # It is not its time, as between two ticks: all stays as it is.
        view.plan.discard()
        return decision
    for job in found.displaced:
        _put_back(view, draft, job)
    failed: set[int] = set()
    for job in () if resizes else found.others:
        shape = view.shape_of[job]
        if not draft.free_gpus:
            break
        spans = None if shape in failed else view.placing.find(draft.occupancy, view.shape(job))
        if spans is None:
            failed.add(shape)
        else:
            draft.place(job, spans)
    return replace(decision, draft=draft if draft.changes() else None)


def unseen_in(found: Lineup | None) -> tuple[int, ...]:
    """Returns the jobs that may run, but not for all that the inner policy knows."""
    return () if found is None else (*found.displaced, *found.others)
