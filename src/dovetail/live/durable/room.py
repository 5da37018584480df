"""How many GPUs a job could have if it were alone."""

from __future__ import annotations

from dovetail.core.cluster import Cluster
from dovetail.wire.spec import JobSpec


def room_for(cluster: Cluster, spec: JobSpec) -> int:
    """Returns the most GPUs on which a job fits in the empty cluster, all nodes up.

    CPUs and memory are for the whole job and spread evenly over its GPUs; a node that states none
    does not limit.
    """
    cpus, memory = spec.cpus / spec.gpus, spec.memory_bytes / spec.gpus
    room = 0
    for group in cluster.groups:
        if spec.gpu_type and spec.gpu_type != group.gpu_type:
            continue
        fits = group.gpus_per_node
        if cpus and group.cpus:
            fits = int(min(fits, group.cpus / cpus * (1 + 1e-9)))
        if memory and group.memory_bytes:
            fits = int(min(fits, group.memory_bytes / memory * (1 + 1e-9)))
        room += group.nodes * fits
    return room
