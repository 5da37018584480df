"""The most GPUs that a job could have if it were alone in the cluster."""

from __future__ import annotations

from dataclasses import replace

from dovetail.core.cluster import GIB, Cluster, NodeGroup
from dovetail.core.errors import InputError
from dovetail.core.islands import Islands, is_island
from dovetail.core.job import Shape
from dovetail.core.node_sets import NodeSets, demands, is_of_type, types_of
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.wire.spec import JobSpec


def room_for(cluster: Cluster, spec: JobSpec) -> int:
    """Returns the most GPUs on which a job fits in the empty cluster, all nodes up.

    CPUs and memory of the whole job are divided evenly among its GPUs; nodes that declare none do
    not limit it.
    """
    wanted = types_of(spec.gpu_type)
    if len(wanted) > 1:  # All GPUs of a job are of one type.
        return max(room_for(cluster, replace(spec, gpu_type=one)) for one in wanted)
    cpus, memory = spec.cpus / spec.gpus, spec.memory_bytes / spec.gpus
    room = 0
    for group in groups_for(cluster, spec):
        fits = group.gpus_per_node
        if cpus and group.cpus:
            fits = int(min(fits, group.cpus / cpus * (1 + RELATIVE_TOLERANCE)))
        if memory and group.memory_bytes:
            fits = int(min(fits, group.memory_bytes / memory * (1 + RELATIVE_TOLERANCE)))
        room += group.nodes * fits
    return room


def groups_for(cluster: Cluster, spec: JobSpec) -> list[NodeGroup]:
    """Returns the node groups that a job may use, by its type of GPU and its queue."""
    owned = _owned(cluster, spec.queue)
    return [
        group
        for group in cluster.groups
        if is_of_type(group.gpu_type, spec.gpu_type) and (not owned or group.name in owned)
    ]


def _owned(cluster: Cluster, queue: str) -> tuple[str, ...]:
    return next((q.groups for q in cluster.queues if q.name == queue), ())


def check_topology(where: str, cluster: Cluster, spec: JobSpec) -> None:
    """Raises InputError if no place of the level that a job demands has its GPUs."""
    sets = NodeSets(cluster)
    owned = tuple(sorted(set(_owned(cluster, spec.queue))))
    shape = Shape(spec.gpus, spec.gpu_type, groups=owned, topology=spec.topology)
    sets.width(spec.topology)
    islands = Islands.of(cluster) if is_island(spec.topology) else None
    installed = list(enumerate(cluster.installed if islands is None else islands.sizes))
    places = (sum(g for n, g in installed if nodes >> n & 1) for nodes in sets.near(shape))
    most = max(places, default=0)
    if demands(spec.topology) and spec.gpus > most:
        what = f"it needs {spec.gpus} GPUs under one {spec.topology}, which has {most} at most"
        raise InputError(where, what, f"ask for fewer, or wish it with '{spec.topology}?'")


def no_room(cluster: Cluster, spec: JobSpec) -> tuple[str, str]:
    """Describes why a job does not fit in the empty cluster, and how to fix it."""
    kind = f" of type {spec.gpu_type}" if spec.gpu_type else ""
    groups = groups_for(cluster, spec)
    alike = [groups_for(cluster, replace(spec, gpu_type=t)) for t in types_of(spec.gpu_type)]
    gpus = max(sum(g.nodes * g.gpus_per_node for g in some) for some in alike or [groups])
    if spec.gpus > gpus:
        owner = f"queue '{spec.queue}'" if _owned(cluster, spec.queue) else "the cluster"
        return f"it needs {spec.gpus} GPUs{kind}, {owner} has {gpus}", "ask for fewer GPUs"
    without_memory = room_for(cluster, replace(spec, memory_bytes=0.0))
    if without_memory >= spec.gpus:
        has = max(g.memory_bytes for g in groups) / GIB
        beside = _beside(spec, f"{spec.memory_bytes / spec.gpus / GIB:.4g} GB")
        needs = f"it needs {spec.memory_bytes / GIB:.4g} GB of memory{beside}"
        return f"{needs}, {_most(cluster, f'{has:.4g} GB')}", "ask for less memory"
    if room_for(cluster, replace(spec, cpus=0.0)) >= spec.gpus:
        beside = _beside(spec, f"{spec.cpus / spec.gpus:.4g}")
        most = _most(cluster, f"{max(g.cpus for g in groups):g}")
        return f"it needs {spec.cpus:g} CPUs{beside}, {most}", "ask for fewer CPUs"
    needs = f"it needs {spec.cpus:g} CPUs and {spec.memory_bytes / GIB:.4g} GB of memory"
    largest = max(groups, key=lambda g: (g.cpus, g.memory_bytes))
    both = f"{largest.cpus:g} CPUs and {largest.memory_bytes / GIB:.4g} GB"
    return f"{needs}, {_most(cluster, both)}", "ask for less memory and fewer CPUs"


def _beside(spec: JobSpec, each: str) -> str:
    return f" ({each} for each of its {spec.gpus} GPUs)" if spec.gpus > 1 else ""


def _most(cluster: Cluster, has: str) -> str:
    if cluster.nodes == 1:
        return f"node 0 has {has}"
    return f"no node has more than {has}"
