"""Brings the scheduler's memory up to the present, and back after a decision.

Usage is booked, priorities are computed where they are due, the queue is put in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from dovetail.core.units import NEVER_S
from dovetail.core.view import View
from dovetail.mechanisms.slurm.completing import Completing
from dovetail.mechanisms.slurm.fair_share import FairShares
from dovetail.mechanisms.slurm.parameters import SlurmParameters
from dovetail.mechanisms.slurm.ranked_queue import RankedQueue
from dovetail.mechanisms.slurm.scheduling_pass import SchedulingPass
from dovetail.mechanisms.slurm.site import Site
from dovetail.mechanisms.slurm.state import SlurmState, last_backfill_s


def caught_up(p: SlurmParameters, view: View, state: SlurmState) -> SlurmState:
    """Returns the memory as of now."""
    now = view.now
    site = state.site
    if site is None or site.cluster is not view.cluster:
        site = Site.of(view.cluster)
    last_s, news_s = last_backfill_s(state, p.bf_interval, now)
    shares = state.shares.at(p, now)
    computed = p.ranks_by_time and shares.calculated_s != state.shares.calculated_s
    shares = _with_running(p, site, view, shares)
    queue, fresh = _with_waiting(view, state.queue)
    if p.priority_weight_fairshare:
        shares = shares.joined(site, view.jobs, fresh)
    since = [(job, view.progress.pending_since_s(job)) for job in fresh]
    queue = queue.joined(p, site, view.jobs, shares, since)
    moved = False
    if fresh or computed:
        unranked, queue = queue.jobs, queue.ranked(p, site, view.jobs, shares)
        moved = computed and not np.array_equal(unranked, queue.jobs)
    happened = _happened(view, site, state)
    begun = any(begin_s <= now for begin_s in state.begins.values())
    news = happened or begun or moved or bool(fresh)
    due_s = _main_due_s(p, state, now, fresh=bool(fresh), happened=happened, later=moved or begun)
    return SlurmState(
        site=site,
        cycles=state.cycles,
        shares=shares,
        queue=queue,
        begins=_begins(p, view, state.begins),
        completing=_completing(p, view, state),
        decided_s=now,
        backfilled_s=last_s,
        news_s=min(news_s, now) if news else news_s,
        main_s=state.main_s,
        main_due_s=min(state.main_due_s, due_s),
        dirty=state.dirty or news,
    )


def in_turn(view: View, state: SlurmState) -> SlurmState:
    """Returns the memory with the queue in the order of the view's, if somebody gave it one.

    Slurm's own order has one key for all jobs; tenants take turns by keys of their own.
    """
    key, jobs = view.waiting.key, state.queue.jobs
    if len(jobs) < 2 or key(int(jobs[0])) == key(int(jobs[-1])):
        return state
    turns = np.array([key(job) for job in jobs.tolist()])
    return replace(state, queue=state.queue.in_order(np.argsort(turns, kind="stable")))


def _completing(p: SlurmParameters, view: View, state: SlurmState) -> Completing:
    if not p.completing:
        return state.completing
    return state.completing.at(view.now, view.running, p.completing)


def _main_due_s(
    p: SlurmParameters, state: SlurmState, now: float, *, fresh: bool, happened: bool, later: bool
) -> float:
    """Returns when the main scheduler runs; `later`: what the next pass over all jobs may start."""
    if happened and p.epilog:
        return now + p.completing
    cycles, due_s = state.cycles, NEVER_S
    if later:
        due_s = cycles.full_pass_from_s(p.sched_interval, now)
    if fresh or happened:
        asked_s = now if fresh else now + p.completing
        due_s = min(due_s, cycles.look_s(max(asked_s, state.main_s + p.batch_sched_delay)))
    return due_s


def after(p: SlurmParameters, view: View, c: SchedulingPass, state: SlurmState) -> SlurmState:
    """Returns the memory with the jobs that a decision started and stopped."""
    if not c.started:
        return state
    assert state.site is not None
    now, shares = view.now, state.shares
    queue = state.queue.without(set(c.started))
    if p.priority_weight_fairshare:
        shares = shares.without(p, c.stopped, now)
        shares = shares.with_running(p, state.site, view.jobs, [(job, now) for job in c.started])
    begins = state.begins
    if c.stopped:
        begins = _later(begins, c.stopped, now + p.requeue_delay)
        stopped = [(job, now) for job in c.stopped]
        queue = queue.joined(p, state.site, view.jobs, shares, stopped)
        queue = queue.ranked(p, state.site, view.jobs, shares)
    return replace(
        state, shares=shares, queue=queue, begins=begins, news_s=min(state.news_s, now), dirty=True
    )


def _happened(view: View, site: Site, state: SlurmState) -> bool:
    """True if jobs ended, or nodes or reservations changed."""
    changes = view.changes
    return (
        bool(len(changes.ended) or len(changes.evicted))
        or changes.capacity
        or (state.decided_s >= 0 and site.boundary_since(state.decided_s, view.now))
    )


def _with_running(p: SlurmParameters, site: Site, view: View, shares: FairShares) -> FairShares:
    """Returns the shares with the usage of jobs that stopped, and of those met running."""
    if not p.priority_weight_fairshare:
        return shares
    running = view.running
    shares = shares.without(p, [job for job in shares.running if job not in running], view.now)
    if len(shares.running) == len(running):
        return shares
    met = [(j, view.progress.running_since_s(j)) for j in running if j not in shares.running]
    return shares.with_running(p, site, view.jobs, met)


def _with_waiting(view: View, queue: RankedQueue) -> tuple[RankedQueue, list[int]]:
    """Returns the queue without jobs that left it, and the jobs that joined."""
    changes, waiting = view.changes, view.waiting
    queue = queue.without(changes.ended)
    fresh = list(dict.fromkeys([*changes.arrived, *changes.evicted]))
    if len(queue) + len(fresh) != len(waiting) or any(job not in waiting for job in fresh):
        known = queue.jobs.tolist()
        queue = queue.without([job for job in known if job not in waiting])
        known = set(known)
        fresh = [job for job in waiting if job not in known]
    return queue, sorted(fresh)


def _begins(p: SlurmParameters, view: View, begins: Mapping[int, float]) -> Mapping[int, float]:
    """Returns when requeued jobs may begin: not yet, or lost their nodes just now."""
    left = {job: begin_s for job, begin_s in begins.items() if begin_s > view.now}
    if len(left) == len(begins) and not len(view.changes.evicted):
        return begins
    return _later(left, view.changes.evicted, view.now + p.requeue_delay)


def _later(begins: Mapping[int, float], jobs: Sequence[int], begin_s: float) -> Mapping[int, float]:
    return MappingProxyType({**begins, **dict.fromkeys(jobs, begin_s)})
