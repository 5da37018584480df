"""How much of the GPUs the jobs of a log held, by GPU type, hour of the day and weekday.

As in the row of the record in a comparison: GPU-seconds held over those installed, from the first
submission to the last end.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from dovetail.core.cluster import Cluster
from dovetail.core.job import Floats, Ints
from dovetail.core.trace import Trace
from dovetail.core.units import DAY_S, HOUR_S
from dovetail.record.recorded import recorded_jobs
from dovetail.record.recorded_load import RecordedLoad, recorded_load
from dovetail.traces.describe import Utilization, UtilizationRow, clock_s
from dovetail.traces.hardware import cluster_of_log

_SLOT_S = 900.0
"""All time zones of today change their hours at whole quarters of an hour."""


def utilization(trace: Trace) -> Utilization | None:
    """Returns what jobs held of the cluster that fits the log, None if the log does not tell."""
    text = cluster_of_log(trace)
    if trace.recorded is None or not text:
        return None
    cluster = Cluster.parse(text)
    load = _load(trace, cluster.installed_gpus)
    if not load.total(load.held) or not cluster.installed_gpus:
        return None
    edges_s = _edges(trace, float(load.t_s[0]), float(load.t_s[-1]))
    on_clock_s = clock_s(trace, (edges_s[:-1] + edges_s[1:]) / 2)
    hour = (on_clock_s % DAY_S // HOUR_S).astype(np.int64)
    day = (on_clock_s // DAY_S % 7).astype(np.int64)

    def row(name: str, load: RecordedLoad, gpus: int) -> UtilizationRow:
        held = np.diff(_held_until(load, edges_s))
        whole = np.diff(edges_s) * gpus
        mean = float(held.sum() / whole.sum())
        by_hour, by_day = _shares(held, whole, hour, 24), _shares(held, whole, day, 7)
        return UtilizationRow(name, gpus, mean, by_hour, by_day)

    rows = [row("", load, cluster.installed_gpus)]
    wanted = np.array([text.lower() for text in trace.jobs.gpu_type.texts()])
    for name, gpus in _gpus_by_type(cluster).items():
        part = trace.take(np.flatnonzero(wanted == name))
        rows.append(row(name, _load(part, gpus), gpus))
    jobs = recorded_jobs(trace, trace.recorded)
    return Utilization(edges_s[0], edges_s[-1], jobs["jct_s"].null_count(), tuple(rows))


def _gpus_by_type(cluster: Cluster) -> Counter[str]:
    gpus: Counter[str] = Counter()
    for group in cluster.groups:
        if group.gpu_type:
            gpus[group.gpu_type] += group.nodes * group.gpus_per_node
    return gpus


def _load(trace: Trace, gpus: int) -> RecordedLoad:
    assert trace.recorded is not None
    steps = np.array([float("-inf")]), np.array([float(gpus)])
    return recorded_load(recorded_jobs(trace, trace.recorded), trace.recorded, steps)


def _edges(trace: Trace, from_s: float, until_s: float) -> Floats:
    """Returns the ends of the window, and the quarters of an hour in it."""
    epoch_s = None if trace.imported is None else trace.imported.epoch_s
    first_s = -((epoch_s or 0.0) % _SLOT_S)
    low, high = np.floor((from_s - first_s) / _SLOT_S), np.ceil((until_s - first_s) / _SLOT_S)
    return np.unique(np.clip(first_s + np.arange(low, high + 1) * _SLOT_S, from_s, until_s))


def _held_until(load: RecordedLoad, times_s: Floats) -> Floats:
    """Returns the GPU-seconds that were held until each time."""
    if not len(load.t_s):
        return np.zeros(len(times_s))
    steps = np.diff(load.t_s) * load.held[:-1]
    return np.asarray(np.interp(times_s, load.t_s, np.concatenate([[0.0], np.cumsum(steps)])))


def _shares(held: Floats, whole: Floats, kind: Ints, kinds: int) -> tuple[float | None, ...]:
    parts = np.bincount(kind, held, kinds), np.bincount(kind, whole, kinds)
    return tuple(h / w if w else None for h, w in zip(*(p.tolist() for p in parts), strict=True))
