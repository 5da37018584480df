"""Allocations as tables of GPUs, jobs by nodes, for policies that search over whole clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dovetail.core.beliefs import BestBatches
from dovetail.core.job import Ints
from dovetail.core.placement import Placement
from dovetail.core.plan import Draft
from dovetail.core.view import View
from dovetail.mechanisms.sharing.named_gpus import try_place


class Room(NamedTuple):
    """GPUs that jobs hold and may hold at most [jobs, nodes], and the capacity of each node."""

    held: Ints
    limit: Ints
    capacity: Ints


def room_for(view: View, jobs: Sequence[int]) -> Room:
    """Returns the room for jobs, which must include all running ones.

    On a node closed for new work or to its tenant, and on GPUs of a type it did not request, a job
    may only keep its GPUs.
    """
    cluster = view.cluster
    held = np.zeros((len(jobs), cluster.nodes), np.int64)
    for row, job in enumerate(jobs):
        placement = view.running.get(job)
        for node, gpus in placement.by_node().items() if placement else ():
            held[row, node] = gpus
    is_open = np.array([cluster.is_open(n) for n in range(cluster.nodes)])
    capacity = np.where(is_open, np.array(cluster.capacity, np.int64), held.sum(axis=0))
    kinds = np.array([cluster.group_of(n).gpu_type for n in range(cluster.nodes)])
    wanted = [view.jobs.gpu_type.text(job) for job in jobs]
    fits = np.array([is_open & ((kinds == kind) | (not kind)) for kind in wanted])
    tenants = view.plan.occupancy.tenants
    if tenants is not None:
        for row, job in enumerate(jobs):
            bits = tenants.nodes(view.shape(job), 0)
            fits[row] &= [bool(bits >> node & 1) for node in range(cluster.nodes)]
    return Room(held, np.where(fits, capacity, held), capacity)


def drafted(
    view: View, jobs: Sequence[int], tables: Sequence[BestBatches], held: Ints, chosen: Ints
) -> Draft:
    """Returns a draft of the chosen allocation, elastic jobs with their best batches.

    The tables know no quotas and no CPUs or memory of hosts: a job that these refuse waits.
    """
    draft = view.plan.draft()
    moved = (held != chosen).any(axis=1)
    for row in np.flatnonzero(moved & (held.sum(axis=1) > 0)).tolist():
        draft.remove(jobs[row])
    for row in np.flatnonzero(chosen.sum(axis=1) > 0).tolist():
        job, runs = jobs[row], None if moved[row] else view.running[jobs[row]]
        spans = runs.spans if runs else tuple((n, int(g)) for n, g in enumerate(chosen[row]) if g)
        placement = Placement(spans)
        if view.jobs.elastic[job]:
            placement = _with_batch(placement, tables[row])
        if placement != runs:
            try_place(draft, job, placement)
    return draft


def _with_batch(plain: Placement, table: BestBatches) -> Placement:
    at = min(plain.nodes, len(table.batch) - 1), plain.gpus
    batch, steps = int(table.batch[at]), int(table.steps[at])
    return Placement(plain.spans, accumulation_steps=steps, batch_size=batch) if batch else plain
