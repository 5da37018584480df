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
from dovetail.mechanisms.tenancy.gate import first_turns
from dovetail.mechanisms.tenancy.standing import TenantStanding
from dovetail.mechanisms.tenancy.turns import turns


@dataclass(frozen=True, slots=True)
class Lineup:
    """Waiting jobs with a turn, running jobs without one, and waiting ones without; in order.

    `first` are those, running or waiting, whose turns fill the cluster once.
    """

    shown: list[int]
    displaced: list[int]
    others: list[int]
    first: frozenset[int] = frozenset()


def line_up(
    standing: TenantStanding, keys: Mapping[int, float], powers: Collection[str], width: int = 1
) -> Lineup:
    """Returns who has a turn. `keys` rank the running jobs that may be stopped.

    Under a policy that resizes, elastic jobs count with their fewest GPUs. One that interleaves
    sees `width` clusters full of turns.
    """
    view = standing.view
    if _of_one_tenant(standing, keys):
        return Lineup(list(view.waiting), [], [])
    turned = turns(standing.without(keys), width * view.cluster.gpus, running=keys)
    order = [turn.job for turn in turned]
    first = runs = _filled(view, order, keys, powers)
    if width > 1:
        runs = runs.union(first_turns(view, order, width))
    waiting = [job for job in order if job in view.waiting]
    shown = [job for job in waiting if job in runs]
    displaced = [job for job in order if job in keys and job not in runs]
    others = [job for job in waiting if job not in runs]
    return Lineup(shown, displaced if shown else [], others, frozenset(first))


def _of_one_tenant(standing: TenantStanding, running: Mapping[int, float]) -> bool:
    """Returns whether all jobs are of one tenant that ranks them as the inner policy does."""
    view = standing.view
    rows = np.append(view.waiting.columns()[0], np.fromiter(running, np.int64, len(running)))
    alike = len({standing.leaf_of[job] for job in rows.tolist()}) <= 1
    ranked = view.jobs.priority[rows].any() or any(q.priority for q in view.cluster.qos)
    return alike and not ranked


def _filled(
    view: View, jobs: Sequence[int], movable: Collection[int], powers: Collection[str]
) -> set[int]:
    """Returns the jobs that find room in this order on the GPUs that are not settled."""
    resizes, stays = "resize" in powers, not {"resize", "interleave"} & set(powers)
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
        if stays and job in movable and _put_back(view, draft, job):
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


def completed(view: View, decision: Decision, found: Lineup, powers: Collection[str]) -> Decision:
    """Returns a decision with the displaced jobs that may stay, and others that still fit.

    An inner policy that resizes or interleaves hands out all GPUs by itself.
    """
    draft = decision.draft
    if draft is None:
        # It is not its time, as between two ticks: all stays as it is.
        view.plan.discard()
        return decision
    for job in () if "interleave" in powers else found.displaced:
        _put_back(view, draft, job)
    failed: set[int] = set()
    for job in () if {"resize", "interleave"} & set(powers) else found.others:
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
