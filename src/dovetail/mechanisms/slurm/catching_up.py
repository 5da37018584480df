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
from dovetail.mechanisms.slurm.cycles import ROUNDING_S
from dovetail.mechanisms.slurm.fair_share import FairShares
from dovetail.mechanisms.slurm.parameters import SlurmParameters, slurm_seconds
from dovetail.mechanisms.slurm.ranked_queue import RankedQueue
from dovetail.mechanisms.slurm.scheduling_pass import SchedulingPass
from dovetail.mechanisms.slurm.site import Site
from dovetail.mechanisms.slurm.state import SlurmState, last_backfill_s


def caught_up(p: SlurmParameters, view: View, state: SlurmState) -> SlurmState:
    """Returns the memory as of now."""
    now = view.now
    site = _site(view, state)
    last_s, news_s = last_backfill_s(state, p.bf_interval, now)
    before = _counted(p, site, state)
    shares = before.at(p, now)
    computed = p.ranks_by_time and shares.calculated_s != before.calculated_s
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
    begun = _due_again(p, site, view, state)
    news = happened or begun or moved or bool(fresh)
    ending, graceless = _ending(view, state.ending)
    due_s = _main_due_s(
        p, state, now, fresh=bool(fresh), happened=happened or graceless, later=moved or begun
    )
    news = news or graceless
    return SlurmState(
        site=site,
        cycles=state.cycles,
        shares=shares,
        queue=queue,
        begins=_begins(p, view, state.begins),
        completing=_completing(p, view, state),
        ending=ending,
        partitions=_still_running(view, state.partitions),
        decided_s=now,
        backfilled_s=last_s,
        news_s=min(news_s, now) if news else news_s,
        main_s=state.main_s,
        main_due_s=min(state.main_due_s, due_s),
        dirty=state.dirty or news,
    )


def _ending(view: View, ending: Mapping[int, float]) -> tuple[Mapping[int, float], bool]:
    """Returns the running jobs in their grace, and whether that of one is over now."""
    if not ending:
        return ending, False
    left = {job: end_s for job, end_s in ending.items() if job in view.running}
    return left, any(end_s <= view.now + ROUNDING_S for end_s in left.values())


def _due_again(p: SlurmParameters, site: Site, view: View, state: SlurmState) -> bool:
    """True if a requeued job may begin, or a running one may be stopped, from now on."""
    if any(begin_s <= view.now for begin_s in state.begins.values()):
        return True
    return any(state.decided_s < until_s <= view.now for until_s in exemptions_s(p, site, view))


def exemptions_s(p: SlurmParameters, site: Site, view: View) -> list[float]:
    """Returns when running jobs may be stopped first, none if all may from their start."""
    usual_s = slurm_seconds(p.preempt_exempt_time)
    if not p.preempts or not (usual_s or any(qos.exempt_s for qos in site.qos.values())):
        return []
    qos, since_s = view.jobs.qos, view.progress.running_since_s
    return [site.exempt_until_s(qos[job], since_s(job), usual_s) for job in view.running]


def _still_running(view: View, partitions: Mapping[int, str]) -> Mapping[int, str]:
    if not partitions:
        return partitions
    return {job: name for job, name in partitions.items() if job in view.running}


def _site(view: View, state: SlurmState) -> Site:
    """Returns the site of the memory, a new one if nodes changed."""
    if state.site is None or state.site.cluster is not view.cluster:
        return Site.of(view.cluster)
    return state.site


def _counted(p: SlurmParameters, site: Site, state: SlurmState) -> FairShares:
    """Returns the usage of the memory, or that which an earlier controller kept."""
    if state.recalled is None or not p.priority_weight_fairshare:
        return state.shares
    return state.recalled.shares(p, site)


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
    if c.ending != state.ending:
        state = replace(state, ending=MappingProxyType(c.ending))
    if not c.started and not c.stopped:
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
    partitions = {job: name for job, name in c.partitions.items() if job in c.draft.placed}
    return replace(
        state,
        shares=shares,
        queue=queue,
        begins=begins,
        partitions=partitions,
        news_s=min(state.news_s, now),
        dirty=True,
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
    if queue.job_count + len(fresh) != len(waiting) or any(job not in waiting for job in fresh):
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
