"""Network packing: allowed shares, placed so that jobs do not share the network of a machine.

Machines have 1, 2, 4, ... GPUs. A share is 1/2, 1/4, ... of a machine or whole machines; each job
uses the fewest machines it can, and no machine has two jobs that use the network. Both are asserted
at every decision. Jobs keep as many of their GPUs as possible; a job that can keep none migrates.

A rigid gang of another size books the next allowed share, and its unused GPUs stay idle. Closed
machines, and machines with a job that may not be stopped, are left out. The placement rule of the
run does not apply.

Source: AFS section 4.4 and appendix E; ALGORITHMS section 2.6.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dovetail.algorithms.machine_packing import pack
from dovetail.algorithms.regulation import regulate
from dovetail.core.errors import InputError
from dovetail.core.job import Ints
from dovetail.core.node_sets import demands
from dovetail.core.placement import Placement, Spans
from dovetail.core.plan import Draft
from dovetail.core.view import View
from dovetail.mechanisms.elastic.budget import Pool, limits, staying
from dovetail.mechanisms.elastic.shares import Contenders
from dovetail.mechanisms.sharing.named_gpus import try_place


def machine_pool(view: View) -> Pool:
    """Returns the machines to share out. Raises InputError unless they are identical.

    And unless every job may use all of them.
    """
    cluster = view.cluster
    _check_open(view)
    sizes = {(g.gpus_per_node, g.gpu_type) for g in cluster.groups if g.nodes}
    per_machine = max(size for size, _ in sizes)
    if len(sizes) > 1 or per_machine & (per_machine - 1):
        raise InputError(
            "packing=network",
            "it needs identical machines of 1, 2, 4, 8, ... GPUs",
            "as in --cluster 16x4, or packing=none",
        )
    taken = {n for j in staying(view) for n, _ in view.running[j].spans}
    machines = tuple(
        n for n in range(cluster.nodes) if n not in taken and not cluster.state_of.get(n)
    )
    return Pool(per_machine * len(machines), per_machine, machines)


def _check_open(view: View) -> None:
    """Raises InputError unless every job may use every machine."""
    occupancy, why = view.plan.occupancy, ""
    if occupancy.node_sets.groups_of:
        why = f"queue {min(occupancy.node_sets.groups_of)} owns nodes of its own"
    elif any(level != "node" for level in view.jobs.topology.names if demands(level)):
        why = "some jobs demand a level of the topology other than node"
    elif occupancy.tenants is not None and occupancy.tenants.has_reservations:
        why = "it needs machines that are open to every job, without reservations"
    if why:
        raise InputError("packing=network", why, "use packing=none")


def regulated(view: View, pool: Pool, who: Contenders, shares: Ints) -> Ints:
    """Returns allowed shares, nearest in sum to the given ones, none below its guarantee."""
    caps = np.maximum(who.cap, shares)
    for limit in limits(view):
        # Growth could break the limit; lower shares cannot.
        if not limit.counts_jobs:
            members = limit.members(who.jobs)
            caps[members] = shares[members]
    return regulate(shares, caps, pool.per_machine, len(pool.machines))


def packed(view: View, pool: Pool, who: Contenders, shares: Ints) -> Draft | None:
    """Returns the draft with the regulated shares; None if nothing changes."""
    jobs = who.jobs.tolist()
    running = view.running
    booked: list[int] = regulated(view, pool, who, shares).tolist()
    places = pack(booked, _bookings(view, pool, jobs), pool.per_machine, pool.machines)
    most = view.jobs.most_gpus
    wanted = {
        job: _used(place, int(most[job])) for job, place in zip(jobs, places, strict=True) if place
    }
    leaving = [*who.stopped, *(j for j in jobs if j in running and j not in wanted)]
    changed = {
        j: spans
        for j, spans in wanted.items()
        if j not in running or running[j].by_node() != dict(spans)
    }
    if not leaving and not changed:
        assert_unshared(view.plan.placed, pool.per_machine)
        return None
    draft = view.plan.draft()
    for job in sorted([*leaving, *(j for j in changed if j in running)]):
        draft.remove(job)
    for job, spans in sorted(changed.items()):
        # Where CPUs, memory or a quota refuse the job, it waits.
        try_place(draft, job, Placement(spans))
    assert_unshared(draft.placed, pool.per_machine)
    return draft


def _bookings(view: View, pool: Pool, jobs: list[int]) -> list[dict[int, int]]:
    """Returns the GPUs that each job books now, by machine."""
    running = view.running
    booked = pool.booked(np.arange(pool.per_machine + 1)).tolist()
    return [
        {node: booked[gpus] for node, gpus in running[j].by_node().items()} if j in running else {}
        for j in jobs
    ]


def _used(place: Spans, most_gpus: int) -> Spans:
    """Returns the used part of the booked GPUs: at most the job's limit."""
    spans: list[tuple[int, int]] = []
    for node, gpus in place:
        take = min(gpus, most_gpus)
        if take:
            spans.append((node, take))
        most_gpus -= take
    return tuple(spans)


def assert_unshared(placed: Mapping[int, Placement], per_machine: int) -> None:
    """Asserts both guarantees of appendix E, Proposition 1, for all running jobs."""
    spread: set[int] = set()
    for job, placement in placed.items():
        assert placement.nodes == -(-placement.gpus // per_machine), f"job {job} is scattered"
        if placement.nodes > 1:
            nodes = placement.by_node()
            assert spread.isdisjoint(nodes), f"job {job} meets another on the network"
            spread.update(nodes)
