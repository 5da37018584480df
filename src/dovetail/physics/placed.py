"""The physics of a cluster: each job by its model's profile, placed where it is placed.

Speeds are relative to the job alone on its requested GPUs, well placed, as `duration_s` of a trace
is: on the first type of its list that the cluster has, else on the cluster's first type.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dovetail.core.beliefs import Physics
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable
from dovetail.physics.device_times import DeviceTimes
from dovetail.physics.linear import LinearBatches, LinearSpeed, LinearStructure
from dovetail.physics.modelled.batches import ModelBatches
from dovetail.physics.modelled.job_models import JobModels, ModelStructure
from dovetail.physics.modelled.memory import ModelMemory
from dovetail.physics.modelled.sharing import ModelSharing, WorkerSlowdowns
from dovetail.physics.modelled.speed import ModelSpeed
from dovetail.physics.sharing.interference import Injected, Interference
from dovetail.physics.sharing.turns import InterleaveRule
from dovetail.physics.zoo.device import device_memory_bytes, time_factor
from dovetail.physics.zoo.models import Catalogue


def placed_physics(
    jobs: JobTable,
    cluster: Cluster,
    catalogue: Catalogue,
    *,
    interference: Interference | None = None,
    interleaving: InterleaveRule | None = None,
    by_count: bool = False,
    type_speeds: Mapping[tuple[str, str], float] | None = None,
) -> Physics:
    """Returns the physics of jobs by their models.

    With `by_count` only the number of GPUs matters, not their nodes. `type_speeds` are speeds on
    the second type of GPU over those on the first, which go before those of `zoo/device.py`.
    """
    law, rule = interference or Injected(), interleaving or InterleaveRule()
    models = JobModels(jobs, cluster, catalogue, rule, by_count=by_count)
    devices = _time_factors(cluster, jobs, type_speeds or {})
    slowdowns = WorkerSlowdowns(models, law, devices)
    batches = ModelBatches(models, LinearBatches(jobs, law), slowdowns)
    structure = LinearStructure(jobs)
    return Physics(
        speed=ModelSpeed(models, LinearSpeed(structure), batches),
        sharing=ModelSharing(models, law, slowdowns, mixed_types=devices is not None),
        memory=ModelMemory(models),
        batches=batches,
        structure=ModelStructure(models, structure),
    )


def startups_s(jobs: JobTable, catalogue: Catalogue) -> tuple[float, ...]:
    """Returns the seconds from a start to the first iteration of each job; NaN if not known.

    They are linear between two GPU counts that were timed, and constant beyond the last.
    """
    profiles = [catalogue.find(name) for name in jobs.model.names]
    timed = [None if p is None or p.startup is None else p.startup.value for p in profiles]
    startups = []
    for code, gpus in zip(jobs.model.codes.tolist(), jobs.gpus.tolist(), strict=True):
        startup = timed[code] if code >= 0 else None
        known_s = np.nan if startup is None else np.interp(gpus, startup.gpus, startup.start_s)
        startups.append(float(known_s))
    return tuple(startups)


def _time_factors(
    cluster: Cluster, jobs: JobTable, stated: Mapping[tuple[str, str], float]
) -> DeviceTimes | None:
    """Returns the iteration times on the nodes of a cluster; None if all types are alike."""
    types = [g.gpu_type for g in cluster.groups]
    if len(set(types)) < 2:
        return None
    speedless = {other for _, other in stated if device_memory_bytes(other) is None}
    of_type = {
        kind.casefold(): 1.0 if kind.casefold() in speedless else time_factor(types[0], kind)
        for kind in types
    }
    nodes = [cluster.group_of(n).gpu_type.casefold() for n in range(cluster.nodes)]
    return DeviceTimes(nodes, of_type, jobs, stated)
