"""What an inner policy sees: the jobs whose turn it is, and what happened to the jobs it knows.

An inner policy that only starts jobs sees the waiting ones in the order of their turns. One that
also stops, resizes or shares ranks jobs by keys of its own, among about a cluster full of the first
turns. A job that it no longer sees has ended for it, and arrives again with its next turn.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from dovetail.core.queue_part import QueuePart
from dovetail.core.tenants import installed_by_type
from dovetail.core.view import Changes, View
from dovetail.mechanisms.tenancy.ledger import TenantLedger
from dovetail.mechanisms.tenancy.reclaim import Terms, reach
from dovetail.mechanisms.tenancy.standing import TenantStanding

MAKES_ROOM = frozenset({"preempt", "migrate", "resize", "share", "interleave", "delay"})
"""Powers of policies that do not simply start waiting jobs in the order of the queue."""
SHARES = frozenset({"share", "interleave", "delay"})
"""Powers of policies whose jobs use more or less than a cluster full of GPUs."""


def in_order(view: View, jobs: Sequence[int]) -> QueuePart:
    """Returns waiting jobs in an order."""
    return QueuePart(
        view.waiting, {job: float(n) for n, job in enumerate(jobs)}, view.progress.length_s
    )


def by_own_key(view: View, jobs: Sequence[int]) -> QueuePart:
    """Returns waiting jobs with the keys of the inner policy."""
    key = view.waiting.key
    return QueuePart(view.waiting, {job: key(job) for job in jobs}, view.progress.length_s)


def first_turns(view: View, jobs: Sequence[int], width: int = 1) -> list[int]:
    """Returns the first jobs that together ask for `width` times the GPUs of each type.

    Jobs that wait for a limit of their tenant do not count.
    """
    left: dict[str, float] = {
        kind: width * gpus for kind, gpus in installed_by_type(view.cluster.groups).items()
    }
    tenants = view.plan.occupancy.tenants
    found: list[int] = []
    for job in jobs:
        shape = view.shape(job)
        if not shape.asked_gpus:
            found.append(job)
        elif left.get(shape.gpu_type, 0) > 0:
            found.append(job)
            if tenants is None or tenants.room(shape, shape.asked_gpus):
                left[shape.gpu_type] -= shape.asked_gpus
    return found


def beside(view: View, jobs: Sequence[int], blocked: Collection[int]) -> list[int]:
    """Returns the jobs that take no GPUs from blocked ones: those that use other nodes."""
    kept = nodes_of(view, blocked)
    return [job for job in jobs if not reach(view, job) & kept]


def apart(view: View, jobs: Sequence[int]) -> list[int]:
    """Returns the jobs that use other nodes than all before them."""
    kept, found = 0, list[int]()
    for job in jobs:
        nodes = reach(view, job)
        if not nodes & kept:
            found.append(job)
        kept |= nodes
    return found


def nodes_of(view: View, jobs: Collection[int]) -> int:
    """Returns the bit set of the nodes that some jobs may use."""
    nodes = 0
    for job in jobs:
        nodes |= reach(view, job)
    return nodes


def changes_of(
    view: View,
    known: frozenset[int],
    shown: Collection[int],
    displaced: Collection[int] = (),
    *,
    woke: bool,
) -> Changes:
    """Returns what happened to the jobs that the inner policy knows or sees now."""
    gone = (job for job in known if job in view.waiting and job not in shown)
    hidden = sorted([*gone, *(job for job in displaced if job in known)])
    return Changes(
        arrived=sorted(job for job in shown if job not in known),
        ended=[*(job for job in view.changes.ended if job in known), *hidden],
        evicted=[job for job in view.changes.evicted if job in shown and job in known],
        capacity=view.changes.capacity,
        woke=woke,
    )


def protected(view: View, terms: Terms, memory: TenantLedger) -> set[int]:
    """Returns the running jobs that may not be stopped now.

    They ran too short, were stopped too often, or the guard started them just now.
    """
    since_s, stops = view.progress.running_since_s, dict(memory.stops)
    relieved = {job for job, until_s in memory.relieved if until_s > view.now}
    return {
        job
        for job in view.running
        if job in relieved
        or since_s(job) + terms.min_run_s > view.now
        or terms.spent(stops.get(job, 0))
    }


def settled(
    standing: TenantStanding, shown: Collection[int], terms: Terms, memory: TenantLedger
) -> list[int]:
    """Returns the running jobs that the inner policy may not stop, to make room for `shown`.

    Those that are protected, and for jobs of other queues also those within what is guaranteed to
    their own.
    """
    view, holdings = standing.view, standing.holdings
    queues = {standing.queue_of(standing.leaf_of[job]) for job in shown}
    found, safe = [], protected(view, terms, memory)
    for job, placement in view.running.items():
        leaf = standing.leaf_of[job]
        kept = job in safe
        if not kept and holdings.promises and queues - {standing.queue_of(leaf)}:
            kept = not holdings.is_lent(leaf, placement, frozenset())
        if kept:
            found.append(job)
    return found


def with_settled(view: View, settled: Collection[int]) -> View:
    """Returns a view in which some running jobs may not be stopped."""
    if not settled:
        return view
    preemptible = view.jobs.preemptible.copy()
    preemptible[np.fromiter(settled, np.int64, len(settled))] = False
    return replace(view, jobs=replace(view.jobs, preemptible=preemptible))


def settled_until_s(view: View, memory: TenantLedger, min_run_s: float) -> float:
    """Returns when the next running job has run long enough to be stopped."""
    if not len(view.waiting):
        return inf
    ends = list(dict(memory.relieved).values())
    if min_run_s:
        since_s = view.progress.running_since_s
        ends += [since_s(job) + min_run_s for job in view.running]
    return min((end_s for end_s in ends if end_s > view.now), default=inf)
