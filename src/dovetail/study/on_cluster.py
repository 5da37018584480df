"""The jobs of a trace as a cluster's file sees them: GPU types, queues and time limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dovetail.core.cluster import Cluster
from dovetail.core.job import Labels
from dovetail.core.tenants import queue_of
from dovetail.core.trace import Trace
from dovetail.core.units import NEVER_S


def on_cluster(trace: Trace, cluster: Cluster) -> Trace:
    """Returns the trace with GPU types and queues as the cluster names them."""
    return _in_queues(_typed(trace, cluster), cluster)


def _typed(trace: Trace, cluster: Cluster) -> Trace:
    """Returns the trace with GPU types as the cluster spells them, without if it names none."""
    labels = trace.jobs.gpu_type
    if not labels.names:
        return trace
    names = {g.gpu_type.casefold(): g.gpu_type for g in cluster.groups if g.gpu_type}
    if not names:
        return replace(trace, jobs=replace(trace.jobs, gpu_type=Labels.none(len(trace))))
    spelt = [names.get(name.casefold(), name) for name in labels.names]
    if spelt == list(labels.names):
        return trace
    texts = [spelt[code] if code >= 0 else "" for code in labels.codes.tolist()]
    return replace(trace, jobs=replace(trace.jobs, gpu_type=Labels.of(texts)))


def _in_queues(trace: Trace, cluster: Cluster) -> Trace:
    """Returns the trace with the jobs of accounts and users in the queues that own them."""
    if not any(q.accounts or q.users for q in cluster.queues):
        return trace
    jobs = trace.jobs
    names = zip(jobs.queue.texts(), jobs.account.texts(), jobs.user.texts(), strict=True)
    queues = [queue_of(cluster.queues, *name) for name in names]
    return replace(trace, jobs=replace(jobs, queue=Labels.of(queues)))


def within_qos(trace: Trace, cluster: Cluster) -> Trace:
    """Returns the trace with the time limit of each job at most that of its QOS."""
    longest_s = {q.name: q.max_time_s for q in cluster.qos if q.max_time_s < NEVER_S}
    jobs = trace.jobs
    if not longest_s or not longest_s.keys() & set(jobs.qos.names):
        return trace
    most = np.array([longest_s.get(name, NEVER_S) for name in jobs.qos.texts()])
    return replace(trace, jobs=replace(jobs, time_limit_s=np.minimum(jobs.time_limit_s, most)))
