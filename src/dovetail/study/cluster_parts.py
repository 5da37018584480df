"""The parts of a cluster that no job crosses, and the bounds of a trace from those of the parts.

Jobs of one part compete for its GPUs alone: what queues own and the types of GPU that jobs request
may cut a cluster into several clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.algorithms.bounds import Bound, LowerBounds, Powers
from dovetail.core.beliefs import Physics
from dovetail.core.cluster import Cluster
from dovetail.core.job import Floats, Ints
from dovetail.core.node_sets import ALL_NODES
from dovetail.core.occupancy import Occupancy, shapes_on
from dovetail.core.placement import Placement
from dovetail.core.trace import Trace


@dataclass(frozen=True, slots=True)
class ClusterPart:
    """Nodes as a bit set, and the jobs of a trace that may use them and no others."""

    nodes: int
    jobs: Ints


def parts_of(trace: Trace, cluster: Cluster) -> tuple[list[ClusterPart], list[int]]:
    """Returns the parts of a cluster that jobs use, and for each job the nodes it may use."""
    occupancy = Occupancy(cluster, trace.jobs)
    shape_of, shapes = shapes_on(occupancy)
    allowed = [occupancy.node_sets.union(shape) for shape in shapes]
    merged: list[int] = []
    for nodes in dict.fromkeys(allowed):
        apart = [one for one in merged if not one & nodes]
        for one in merged:
            nodes |= one if one & nodes else 0
        merged = [*apart, nodes]
    nodes_of = [allowed[shape] for shape in shape_of]
    rows = [[job for job, nodes in enumerate(nodes_of) if nodes & one] for one in merged]
    parts = [ClusterPart(n, np.array(r, np.int64)) for n, r in zip(merged, rows, strict=True)]
    return parts, nodes_of


def gpu_speeds(cluster: Cluster, physics: Physics) -> list[float]:
    """Returns, per node, the speed of its GPUs over those that the first job requests.

    A type of GPU speeds up every job alike (`physics.placed`), so one job tells for all.
    """
    if len({group.gpu_type for group in cluster.groups}) < 2:
        return [1.0] * cluster.nodes
    return [_speed(physics, 0, node) for node in range(cluster.nodes)]


def requested_speeds(trace: Trace, physics: Physics) -> Floats:
    """Returns, per job, the speed of the GPUs that the first job requests over its own."""
    _, examples, which = np.unique(
        trace.jobs.gpu_type.codes, return_index=True, return_inverse=True
    )
    first = _speed(physics, 0, 0)
    over = np.array([_speed(physics, job, 0) / first for job in examples.tolist()])
    return over[which]


def _speed(physics: Physics, job: int, node: int) -> float:
    return 1.0 / physics.sharing.slowdown(job, Placement(((node, 1),)), ())


def fastest(speeds: Sequence[float], nodes_of: Sequence[int]) -> Floats:
    """Returns, per job, the speed of the fastest GPUs that it may use."""
    known = {ALL_NODES: max(speeds)}
    for nodes in nodes_of:
        if nodes not in known:
            known[nodes] = max(s for node, s in enumerate(speeds) if nodes >> node & 1)
    return np.array([known[nodes] for nodes in nodes_of])


def joined(powers: Powers, found: Sequence[LowerBounds], first_s: Sequence[float]) -> LowerBounds:
    """Returns the bounds of a trace from those of its parts, whose first releases are `first_s`.

    Sums of flows add up, bound by bound; a part that has no bound of a name adds its largest.
    """
    jobs = sum(one.jobs for one in found)
    names = dict.fromkeys(bound.name for one in found for bound in one.bounds)
    bounds = []
    for name in names:
        flows_s = (
            one.jobs * next((b.mean_jct_s for b in one.bounds if b.name == name), one.mean_jct_s)
            for one in found
        )
        bounds.append(Bound(name, sum(flows_s) / jobs))
    ends_s = (first + one.makespan_s for first, one in zip(first_s, found, strict=True))
    return LowerBounds(powers, jobs, tuple(bounds), max(ends_s) - min(first_s))
