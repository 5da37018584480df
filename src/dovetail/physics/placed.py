"""The physics of a cluster: each job by its model's profile, placed where it is placed.

Speeds are relative to the job alone on its requested GPUs, well placed, on the cluster's first
kind of GPU: that is what `duration_s` of a trace means. A job whose model is not known scales
linearly. Pair interference is one injected ratio until measured pair ratios replace it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from dovetail.core.beliefs import Neighbour
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable
from dovetail.core.placement import Placement
from dovetail.physics.device import time_factor
from dovetail.physics.linear import LinearPhysics
from dovetail.physics.profile import ModelProfile
from dovetail.physics.throughput import speed_relative
from dovetail.physics.zoo import Catalogue


class PlacedPhysics:
    """Speeds from model profiles. With `by_count` only the number of GPUs matters."""

    def __init__(
        self,
        jobs: JobTable,
        cluster: Cluster,
        catalogue: Catalogue,
        *,
        interference: float = 1.0,
        by_count: bool = False,
    ) -> None:
        self._linear = LinearPhysics(jobs, interference)
        self._interference = interference
        self._by_count = by_count
        self._gpus: list[int] = jobs.gpus.tolist()
        known = [catalogue.find(name) for name in jobs.model.names]
        self._profile: list[ModelProfile | None] = [
            known[c] if c >= 0 else None for c in jobs.model.codes.tolist()
        ]
        self._per_node = max(g.gpus_per_node for g in cluster.groups)
        self._slowdown = _slowdowns(cluster)
        self.modelled = sum(p is not None for p in self._profile)

    def speed(self, job: int, placement: Placement, neighbours: Sequence[Neighbour]) -> float:
        """Returns solo seconds of progress per second."""
        profile = self._profile[job]
        if profile is None:
            alone = self._linear.speed(job, placement, ())
        else:
            alone = self._relative(profile, self._gpus[job], placement)
        if self._slowdown:
            alone /= max(self._slowdown[node] for node, _ in placement.spans)
        if not neighbours or placement.interleave is not None:
            return alone
        return alone / self._interference

    def scale(self, job: int) -> float:
        """Returns the throughput on the requested GPUs over that on one."""
        profile, requested = self._profile[job], self._gpus[job]
        if profile is None:
            return float(requested)
        return 1.0 / self._relative_to(profile, 1, 1, requested)

    def fits_memory(self, occupants: Sequence[Neighbour], gpu_memory_bytes: float) -> bool:
        """Tells whether the jobs whose footprints are known fit together."""
        used = 0.0
        for job, placement in occupants:
            profile = self._profile[job]
            if profile is not None:
                batch = profile.batch.value.on_each_of(placement.gpus)
                used += profile.memory.value.used_bytes(batch / placement.accumulation_steps)
        return used <= gpu_memory_bytes

    def _relative(self, profile: ModelProfile, requested: int, placement: Placement) -> float:
        gpus = placement.gpus
        nodes = placement.nodes
        if self._by_count:
            nodes = ceil(gpus / profile.gpus_per_node.value)
        elif nodes == ceil(gpus / self._per_node) and gpus == requested:
            return 1.0
        return self._relative_to(profile, gpus, nodes, requested)

    def _relative_to(self, profile: ModelProfile, gpus: int, nodes: int, requested: int) -> float:
        per_node = profile.gpus_per_node.value if self._by_count else self._per_node
        return speed_relative(
            profile, gpus=gpus, nodes_used=nodes, requested_gpus=requested, gpus_per_node=per_node
        )


def _slowdowns(cluster: Cluster) -> list[float]:
    """Returns, per node, its iteration time over that of the first kind; empty if all alike."""
    kinds = [g.gpu_type for g in cluster.groups]
    if len(set(kinds)) < 2:
        return []
    return [time_factor(kinds[0], cluster.group_of(n).gpu_type) for n in range(cluster.nodes)]
