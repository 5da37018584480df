"""The most GPUs that a job could have if it were alone in the cluster."""

from __future__ import annotations

from dataclasses import replace

from dovetail.core.cluster import GIB, Cluster
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.wire.spec import JobSpec


def room_for(cluster: Cluster, spec: JobSpec) -> int:
    """Returns the most GPUs on which a job fits in the empty cluster, all nodes up.

    CPUs and memory of the whole job are divided evenly among its GPUs; nodes that declare none do
    not limit it.
    """
    cpus, memory = spec.cpus / spec.gpus, spec.memory_bytes / spec.gpus
    room = 0
    for group in cluster.groups:
        if spec.gpu_type and spec.gpu_type != group.gpu_type:
            continue
        fits = group.gpus_per_node
        if cpus and group.cpus:
            fits = int(min(fits, group.cpus / cpus * (1 + RELATIVE_TOLERANCE)))
        if memory and group.memory_bytes:
            fits = int(min(fits, group.memory_bytes / memory * (1 + RELATIVE_TOLERANCE)))
        room += group.nodes * fits
    return room


def no_room(cluster: Cluster, spec: JobSpec) -> tuple[str, str]:
    """Describes why a job does not fit in the empty cluster, and how to fix it."""
    kind = f" of type {spec.gpu_type}" if spec.gpu_type else ""
    groups = [g for g in cluster.groups if spec.gpu_type in ("", g.gpu_type)]
    gpus = sum(g.nodes * g.gpus_per_node for g in groups)
    if spec.gpus > gpus:
        return f"it needs {spec.gpus} GPUs{kind}, the cluster has {gpus}", "ask for fewer GPUs"
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
