"""Slurm's multifactor priority: the weighted sum of factors from 0 to 1, in whole points.

All priorities are computed every PriorityCalcPeriod, and a job's first when it is submitted. Age
counts up to that time, so between two computations no job grows older.

Source: https://slurm.schedmd.com/priority_multifactor.html; `priority_multifactor.c`,
`set_priority_factors` and `_get_priority_internal`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dovetail.core.job import Floats, Ints, JobTable, Labels
from dovetail.core.tenants import QueueSpec
from dovetail.mechanisms.slurm.parameters import SlurmParameters, slurm_seconds
from dovetail.mechanisms.slurm.site import NO_QOS, NO_QUEUE, Site

PRIORITY_MAX = 2**32 - 1


def age_factor(waited_s: Floats, max_age_s: float) -> Floats:
    """Returns the age factor: the time since the job became eligible over PriorityMaxAge."""
    return np.clip(waited_s / max_age_s, 0.0, 1.0)


def size_factor(
    parameters: SlurmParameters, nodes: Floats, share: Floats, limit_s: Floats, all_nodes: int
) -> Floats:
    """Returns the job-size factor of jobs on so many nodes, with a share of the cluster's CPUs."""
    share_of_nodes = nodes / all_nodes
    if parameters.small_relative_to_time:
        factor = np.maximum(share_of_nodes, share) / (limit_s / 60.0)
        factor = 1.0 - factor if parameters.priority_favor_small else factor
    elif parameters.priority_favor_small:
        factor = ((1.0 - share_of_nodes) + (1.0 - share)) / 2
    else:
        factor = (share_of_nodes + share) / 2
    return np.clip(factor, 0.0, 1.0)


def priorities(
    parameters: SlurmParameters,
    site: Site,
    table: JobTable,
    jobs: Ints,
    *,
    waited_s: Floats,
    fair: Floats,
    limit_s: Floats,
    choices: Ints | None = None,
) -> Ints:
    """Returns the priorities of jobs; `waited_s` and `fair` are as of the last computation.

    `choices` says which of its partitions each row is about, the first without it. The priority of
    the job itself counts as nice with the opposite sign does in Slurm.
    """
    p = parameters
    points = table.priority[jobs].astype(np.float64)
    if p.priority_weight_age:
        age = age_factor(waited_s, slurm_seconds(p.priority_max_age))
        points += p.priority_weight_age * age
    if p.priority_weight_fairshare:
        points += p.priority_weight_fairshare * fair
    if p.priority_weight_job_size:
        nodes, share = _sizes(site, table, jobs)
        size = size_factor(p, nodes, share, limit_s, site.cluster.nodes)
        points += p.priority_weight_job_size * size
    if p.priority_weight_partition:
        most = max((q.priority for q in site.queues.values()), default=0.0)
        of_queue = by_partition(
            site, table, jobs, choices, lambda queue: queue.priority / (most or 1.0)
        )
        points += p.priority_weight_partition * of_queue
    if p.priority_weight_qos:
        most = max((q.priority for q in site.qos.values()), default=0.0)
        of_qos = _by_label(
            table.qos, lambda name: site.qos.get(name, NO_QOS).priority / (most or 1.0)
        )
        points += p.priority_weight_qos * of_qos[table.qos.codes[jobs]]
    return np.clip(points, 1.0, PRIORITY_MAX).astype(np.int64)


def by_partition(
    site: Site,
    table: JobTable,
    jobs: Ints,
    choices: Ints | None,
    value: Callable[[QueueSpec], float],
) -> Floats:
    """Returns a value of the partition of each row."""

    def of(queue: str, choice: int) -> float:
        return value(site.queues.get(site.partitions_of(queue)[choice], NO_QUEUE))

    found = _by_label(table.queue, lambda name: of(name, 0))[table.queue.codes[jobs]]
    if choices is not None:
        for row in np.flatnonzero(choices).tolist():
            found[row] = of(table.queue[int(jobs[row])], int(choices[row]))
    return found


def _by_label(labels: Labels, value: object) -> Floats:
    """Returns a value for each name of a text column; the last one is for a missing value."""
    assert callable(value)
    return np.array([value(name) for name in (*labels.names, "")], np.float64)


def _sizes(site: Site, table: JobTable, jobs: Ints) -> tuple[Floats, Floats]:
    """Returns the nodes that jobs need at least, and their share of the cluster's CPUs.

    Where the cluster's file or the job says nothing about CPUs, GPUs stand for them.
    """
    cluster = site.cluster
    gpus = table.gpus[jobs].astype(np.float64)
    largest = max(cluster.installed)
    share = gpus / cluster.installed_gpus
    all_cpus = sum(group.nodes * group.cpus for group in cluster.groups)
    if all_cpus:
        cpus = table.cpus[jobs]
        share = np.where(cpus > 0, cpus / all_cpus, share)
    return np.ceil(gpus / largest), share
