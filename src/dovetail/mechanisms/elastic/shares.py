"""The jobs that share GPUs elastically, the ranges of their shares, and drafts of new shares.

A job that may not be stopped is left out: it starts on its requested GPUs and keeps them. A job
that is not elastic gets its requested GPUs or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.core.job import Floats, Ints
from dovetail.core.passes import NO_ROOM, Because
from dovetail.core.plan import Draft
from dovetail.core.resizing import adjust
from dovetail.core.restarts import most_now
from dovetail.core.view import Changes, View
from dovetail.mechanisms.elastic.budget import Pool, limits


@dataclass(frozen=True, slots=True)
class Contenders:
    """The jobs that run from now on, in (submission, id) order, and their ranges.

    `held` are the GPUs of each now, `low` to `cap` the range of its share, `rates[kind]` its
    believed speed by GPU count. `stopped` are running jobs to stop. `present` counts all running
    and waiting jobs.
    """

    jobs: Ints
    held: Ints
    kind: Ints
    low: Ints
    cap: Ints
    rates: Floats
    stopped: tuple[int, ...]
    present: int


def churned(changes: Changes) -> bool:
    """Returns whether anything happened that requires new shares."""
    return bool(
        changes.arrived or changes.ended or changes.evicted or changes.capacity or changes.woke
    )


def widest(view: View) -> int:
    """Returns the most GPUs that any job can get on the whole cluster, nodes that are down too."""
    return max(1, min(view.jobs.widest_gpus, view.cluster.installed_gpus))


def movable(view: View) -> Ints | slice:
    """Returns the rows of the running table whose jobs may be stopped."""
    if view.all_preemptible:
        return slice(None)
    return np.flatnonzero(view.preemptible[view.progress.running().jobs])


def contenders(view: View, pool: Pool, served: Sequence[int] | None = None) -> Contenders:
    """Returns the jobs in `served` as contenders; None means all jobs present."""
    running, rows = view.progress.running(), movable(view)
    runners, held = running.jobs[rows], running.gpus[rows]
    present = len(runners) + len(view.waiting)
    if served is None:
        jobs = np.concatenate([runners, np.array(list(view.waiting), np.int64)])
    else:
        jobs = np.array(served, np.int64)
    jobs.sort()
    place = np.minimum(np.searchsorted(jobs, runners), max(0, len(jobs) - 1))
    stay = jobs[place] == runners if len(jobs) else np.zeros(len(runners), bool)
    holds = np.zeros(len(jobs), np.int64)
    holds[place[stay]] = held[stay]
    stopped = tuple(np.sort(runners[~stay]).tolist())
    low, cap = _range(view, pool, jobs)
    # A booking can be larger than any job: a gang of three books four.
    width = widest(view)
    if pool.per_machine:
        width = max(width, int(pool.booked(np.array([width]))[0]))
    kind, rates = view.physics.kind_of[jobs], view.physics.speed.rates(width)
    return Contenders(jobs, holds, kind, low, cap, rates, stopped, present)


def _range(view: View, pool: Pool, jobs: Ints) -> tuple[Ints, Ints]:
    """Returns the least and the greatest share of each job."""
    low = pool.booked(view.jobs.least_gpus[jobs])
    most = most_now(view, jobs, view.jobs.most_gpus[jobs])
    cap = np.minimum(most, min(widest(view), max(1, pool.gpus)))
    for limit in limits(view):
        if not limit.counts_jobs:
            members = limit.members(jobs)
            cap[members] = np.minimum(cap[members], limit.most)
    return low, np.maximum(low, pool.allowed(cap))


def satisfied(who: Contenders, gpus: int) -> Ints | None:
    """Returns the shares beyond which no job gains, if the pool has enough GPUs, else None.

    Every rule that hands out GPUs until no job gains from another ends with these shares.
    """
    idle = gpus - int(who.low.sum())
    if idle <= 0:
        return None if idle else who.low.copy()
    rates = who.rates
    stalls = np.ones(rates.shape, bool)
    stalls[:, :-1] = rates[:, 1:] <= rates[:, :-1]
    counts = np.where(stalls, np.arange(rates.shape[1]), rates.shape[1])
    useful = np.minimum.accumulate(counts[:, ::-1], axis=1)[:, ::-1]
    shares = np.minimum(useful[who.kind, who.low], who.cap)
    return shares if int(shares.sum()) <= gpus else None


def best_counts(who: Contenders) -> Ints:
    """Returns the fewest GPUs, within its range, on which each contender is fastest."""
    rates = who.rates
    fastest = np.maximum.accumulate(rates, axis=1)
    better = np.zeros(rates.shape, np.int64)
    better[:, 1:] = np.where(rates[:, 1:] > fastest[:, :-1], np.arange(1, rates.shape[1]), 0)
    best = np.maximum.accumulate(better, axis=1)
    return np.asarray(np.maximum(who.low, best[who.kind, who.cap]))


def drafted(view: View, who: Contenders, shares: Ints) -> Draft | None:
    """Returns the draft with the share of every contender; None if nothing changes."""
    changed = np.flatnonzero(shares != who.held)
    if not changed.size and not who.stopped and view.placing.running == "keep":
        return None
    orders = dict.fromkeys(who.stopped, 0)
    orders.update(zip(who.jobs[changed].tolist(), shares[changed].tolist(), strict=True))
    return adjust(view, orders)


def waits(view: View, draft: Draft | None) -> Because:
    """Returns the reason of waiting jobs, if there are any: too few GPUs."""
    running = len(view.running if draft is None else draft.placed)
    return () if running == len(view.running) + len(view.waiting) else NO_ROOM
