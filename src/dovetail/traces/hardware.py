"""What a log tells of the machines: GPU types, most GPUs in use at once, nodes and their size.

In use is what jobs held between their recorded start and end. Jobs that were restarted count for
the nodes only: the log does not say when they held their GPUs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dovetail.core.host_list import readable_host_names
from dovetail.core.job import Bools, Floats, Ints
from dovetail.core.trace import Recorded, Trace
from dovetail.core.units import HOUR_S

ASSUMED_GPUS_PER_NODE = 8
"""The largest node that is assumed where a log names no nodes."""

_DOUBTFUL_SHARE = 0.005
"""The share of time in which more GPUs of a node may seem in use than it has: times of a log are
rounded, and local times in the wrong zone overlap for an hour when clocks go back."""


@dataclass(frozen=True, slots=True)
class GpuTypeRow:
    """The jobs of one GPU type ("" if none is told), and what they show of the machines.

    `peak_gpus`, `nodes` and `gpus_per_node` are 0 where the log does not tell them.
    """

    gpu_type: str
    jobs: int
    gpu_hours: float
    peak_gpus: int
    nodes: int
    gpus_per_node: int


def gpu_type_rows(trace: Trace) -> tuple[GpuTypeRow, ...]:
    """Returns a row for each GPU type, by name, jobs without a type last, those without GPU not."""
    labels, on_gpus = trace.jobs.gpu_type, trace.jobs.gpu_part > 0
    rows = {c: np.flatnonzero((labels.codes == c) & on_gpus) for c in range(-1, len(labels.names))}
    # Jobs without a type come last.
    codes = [c for c in (*range(len(labels.names)), -1) if len(rows[c])]
    return tuple(_row(labels.names[c] if c >= 0 else "", trace, rows[c]) for c in codes)


def fitting_cluster(rows: tuple[GpuTypeRow, ...]) -> str:
    """Returns the cluster as `--cluster` takes it, "" if the log does not tell the peak of a type.

    Jobs without a type add nodes only if no job has one. A type without nodes gets as many nodes of
    at most `ASSUMED_GPUS_PER_NODE` GPUs as its peak needs.
    """
    typed = [row for row in rows if row.gpu_type] or list(rows)
    if not typed or not all(row.peak_gpus for row in typed):
        return ""
    return "+".join(_group(row) for row in typed)


def cluster_of_log(trace: Trace) -> str:
    """Returns the cluster that fits the log of a trace, "" if neither tells one.

    A part of a log, or a changed one, is on the nodes of the whole log, those of other GPU types
    than its jobs ask for left out.
    """
    record = trace.imported
    if record is None or not record.cluster:
        return fitting_cluster(gpu_type_rows(trace))
    labels, on_gpus = trace.jobs.gpu_type, trace.jobs.gpu_part > 0
    codes = np.unique(labels.codes[on_gpus])
    if not len(codes) or codes[0] < 0:
        return record.cluster
    asked = {labels.names[code] for code in codes.tolist()}
    groups = record.cluster.split("+")
    return "+".join(g for g in groups if g.partition(":")[2] in asked) or record.cluster


def _group(row: GpuTypeRow) -> str:
    per_node = row.gpus_per_node or min(row.peak_gpus, ASSUMED_GPUS_PER_NODE)
    nodes = row.nodes or math.ceil(row.peak_gpus / per_node)
    return f"{nodes}x{per_node}" + (f":{row.gpu_type}" if row.gpu_type else "")


def _row(name: str, trace: Trace, rows: Ints) -> GpuTypeRow:
    part = trace.take(rows)
    gpus = part.jobs.asked_gpus
    hours = float((gpus * part.duration_s).sum()) / HOUR_S
    if part.recorded is None:
        return GpuTypeRow(name, len(part), hours, 0, 0, 0)
    recorded = part.recorded
    once = np.isfinite(recorded.start_s) & np.isfinite(recorded.end_s) & (recorded.restarts == 0)
    one_place, held = np.zeros(int(once.sum()), np.int64), gpus[once]
    in_use, _ = _levels(recorded.start_s[once], recorded.end_s[once], one_place, held)
    nodes, per_node = _nodes(recorded, gpus, once)
    peak = math.ceil(round(in_use.max(initial=0.0), 3))
    return GpuTypeRow(name, len(part), hours, peak, nodes, per_node)


def _nodes(recorded: Recorded, gpus: Floats, once: Bools) -> tuple[int, int]:
    """Returns how many nodes the jobs ran on, and how many GPUs each has, by what was in use."""
    lists = [readable_host_names(text) for text in recorded.nodes.names]
    number: dict[str, int] = {}
    numbers = [np.array([number.setdefault(n, len(number)) for n in names]) for names in lists]
    used = np.unique(recorded.nodes.codes[recorded.nodes.codes >= 0])
    seen = {n for code in used.tolist() for n in lists[code]}
    counted = np.array([len(names) for names in (*lists, ())])[recorded.nodes.codes]
    rows = np.flatnonzero(once & (counted > 0))
    if not len(rows):
        return len(seen), 0
    node = np.concatenate([numbers[code] for code in recorded.nodes.codes[rows].tolist()])
    on = counted[rows]
    share = np.repeat(gpus[rows] / on, on)
    start_s, end_s = (np.repeat(t[rows], on) for t in (recorded.start_s, recorded.end_s))
    in_use, lasting_s = _levels(start_s, end_s, node, share)
    usual = _nearly_always(in_use, lasting_s)
    return len(seen), math.ceil(max(float(share.max()), usual) - 1e-9)


def _levels(start_s: Floats, end_s: Floats, place: Ints, gpus: Floats) -> tuple[Floats, Floats]:
    """Returns the GPUs in use after each start and end, place by place, and for how long."""
    times, where = np.concatenate((start_s, end_s)), np.concatenate((place, place))
    change = np.concatenate((gpus, -gpus))
    # An end at the time of a start is first.
    order = np.lexsort((change, times, where))
    # What a place takes it gives back, so one running sum serves all places.
    return np.cumsum(change[order]), np.diff(times[order], append=times[order][-1:])


def _nearly_always(in_use: Floats, lasting_s: Floats) -> float:
    """Returns the level that use exceeds for hardly any of the time in which there is use."""
    busy = (in_use > 1e-9) & (lasting_s > 0)
    if not busy.any():
        return 0.0
    levels, lasting_s = in_use[busy], lasting_s[busy]
    order = np.argsort(levels)
    below = np.cumsum(lasting_s[order]) / lasting_s.sum()
    return float(levels[order][np.searchsorted(below, 1 - _DOUBTFUL_SHARE)])
