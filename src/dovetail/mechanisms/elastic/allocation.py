"""Allocations as tables of GPUs, jobs by nodes, for policies that search over whole clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dovetail.core.beliefs import BestBatches
from dovetail.core.job import Bools, Ints
from dovetail.core.node_sets import ALL_NODES
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

    On a node closed for new work or to its tenant, and on nodes that its queue or its type of GPU
    excludes, a job may only keep its GPUs.
    """
    cluster = view.cluster
    held = np.zeros((len(jobs), cluster.nodes), np.int64)
    for row, job in enumerate(jobs):
        placement = view.running.get(job)
        for node, gpus in placement.by_node().items() if placement else ():
            held[row, node] = gpus
    is_open = np.array([cluster.is_open(n) for n in range(cluster.nodes)])
    capacity = np.where(is_open, np.array(cluster.capacity, np.int64), held.sum(axis=0))
    columns: dict[int, Bools] = {}
    for nodes in (chosen := [_nodes_for(view, job) for job in jobs]):
        if nodes not in columns:
            columns[nodes] = np.array([nodes >> node & 1 for node in range(cluster.nodes)], bool)
    fits = np.array([is_open & columns[nodes] for nodes in chosen])
    return Room(held, np.where(fits, capacity, held), capacity)


def _nodes_for(view: View, job: int) -> int:
    """Returns the set of nodes for a job: where it runs, else the first with GPUs to spare."""
    occupancy, shape = view.plan.occupancy, view.shape(job)
    open_to = ALL_NODES if occupancy.tenants is None else occupancy.tenants.nodes(shape, 0)
    sets = [one & open_to for one in occupancy.node_sets.near(shape)]
    if len(sets) == 1:
        return sets[0]
    if job in view.running:
        used = [node for node, _ in view.running[job].spans]
        whole = (one for one in sets if all(one >> node & 1 for node in used))
        return next(whole, sets[0])
    least = int(view.jobs.least_gpus[job])
    free = [sum(occupancy.free[n] for n in range(view.cluster.nodes) if s >> n & 1) for s in sets]
    return next((s for s, gpus in zip(sets, free, strict=True) if gpus >= least), sets[0])


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
            placement = with_best_batch(placement, tables[row])
        if placement != runs:
            try_place(draft, job, placement)
    return draft


def with_best_batch(plain: Placement, table: BestBatches) -> Placement:
    """Returns a placement with the batch that is best on its nodes and GPUs."""
    at = min(plain.nodes, len(table.batch) - 1), plain.gpus
    batch, steps = int(table.batch[at]), int(table.steps[at])
    return Placement(plain.spans, accumulation_steps=steps, batch_size=batch) if batch else plain
