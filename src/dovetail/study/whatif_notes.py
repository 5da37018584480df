"""What a reader of a grid must know first: GPUs that nobody can use, the site's policy, demand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.core.cluster import Cluster
from dovetail.core.node_sets import types_of
from dovetail.core.occupancy import Occupancy, shapes_on
from dovetail.core.policy import parse_policy
from dovetail.core.trace import Trace
from dovetail.forecast.available import lengths_missing
from dovetail.record.metrics import size_class
from dovetail.record.recorded import complete, recorded_wait_s
from dovetail.report.words import duration, is_far, size_order, size_words
from dovetail.study.blocked_types import blocked_types
from dovetail.study.cells import CellOutcome, Premise, scene_of
from dovetail.study.changes import GridCell
from dovetail.study.demand import DRAWS, NEAR_S
from dovetail.study.on_cluster import on_cluster
from dovetail.study.recorded import is_from_slurm, site_cautions


def unused_gpus(premise: Premise, cells: Sequence[GridCell]) -> list[str]:
    """Returns a warning for each row with GPUs that no job of the trace could use."""
    rows_of: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        trace, _, options = scene_of(premise, cell.setting)
        for kind, why in _unused(trace, options.cluster):
            rows_of.setdefault((kind, why), []).append(cell.label)
    return [
        f"WARNING: no job can use the {kind} GPUs of {_rows(rows, len(cells))}: {why}."
        for (kind, why), rows in rows_of.items()
    ]


def _rows(labels: Sequence[str], cells: int) -> str:
    if len(labels) == cells:
        return "any row"
    return " and ".join(f"'{label}'" for label in labels)


def _unused(trace: Trace, cluster: Cluster) -> list[tuple[str, str]]:
    """Returns the types of GPU that no job may use, and why."""
    jobs = on_cluster(trace, cluster).jobs
    empty = Occupancy(cluster, jobs)
    _, shapes = shapes_on(empty)
    may_use = 0
    for shape in shapes:
        may_use |= empty.node_sets.union(shape)
    found = {}
    for kind in dict.fromkeys(g.gpu_type for g in cluster.groups if g.nodes and g.gpus_per_node):
        own = [n for n, at in enumerate(cluster.node_group) if cluster.groups[at].gpu_type == kind]
        if kind and not any(may_use >> node & 1 for node in own):
            found[kind] = _why(kind, jobs.gpu_type.texts())
    return list(found.items())


def _why(kind: str, asked: Sequence[str]) -> str:
    types = {text: types_of(text) for text in dict.fromkeys(asked)}
    if any(not of or kind.casefold() in of for of in types.values()):
        return "no queue of the cluster's file has them; add the group to the groups of its queues"
    first = sorted({of[0] for of in types.values()})
    return (
        f"all {len(asked):,} jobs ask for {' or '.join(first)}; say who may use them, as in "
        f"--types-for {first[0]}={kind}"
    )


def cautions(premise: Premise, cells: Sequence[GridCell]) -> list[str]:
    """Returns what the policies of a grid make a reader know first, as of a comparison."""
    trace, base = premise.trace, cells[0].setting
    texts = dict.fromkeys(cell.setting.policy for cell in cells)
    policies = [parse_policy(text) for text in texts]
    clusters = {cell.setting.cluster.groups: cell.setting.cluster for cell in cells}
    blocked = [b for c in clusters.values() for b in blocked_types(trace, c, policies)]
    return [
        *(site_cautions(base.policy, base.cluster) if is_from_slurm(trace) else []),
        *lengths_missing(premise.options.forecast, policies, trace.jobs),
        *blocked[:1],
    ]


def assumptions(premise: Premise, cells: Sequence[GridCell]) -> list[str]:
    """Returns what rows with another demand or other GPU types take for granted."""
    also = dict.fromkeys(one for cell in cells for one in cell.setting.types_for)
    texts = [f"{one.sentence}." for one in also]
    factors = sorted({cell.setting.demand for cell in cells} - {1.0})
    if factors:
        seed = premise.options.seed
        texts.append(
            f"Another demand: more are copies of the log's jobs, drawn by seed, each within "
            f"{NEAR_S / 60:g} min of its job and of the same user; fewer leave some out. Mean of "
            f"{DRAWS} draws (seeds {seed} to {seed + DRAWS - 1}); times are those of the log's own "
            "jobs, and intervals count the spread of the draws."
        )
    return texts


def replay_caution(trace: Trace, base: CellOutcome) -> list[str]:
    """Returns how far the waits of the base are from those of the log, if it records any.

    All rows are simulated alike; sizes of jobs whose waits the base misses by far are named.
    """
    if trace.recorded is None:
        return []
    submit_s, sizes = trace.jobs.submit_s, np.array(size_class(trace.jobs.asked_gpus))
    known = complete(trace.recorded, submit_s) & np.isfinite(base.wait_s)
    if not known.any():
        return []
    logged_s = np.maximum(recorded_wait_s(trace.recorded, submit_s), 0.0)
    both = logged_s[known].mean(), base.wait_s[known].mean()
    text = f"Mean wait in the log {duration(both[0])}, in the base {duration(both[1])}"
    far = []
    for size in sorted(set(sizes[known].tolist()), key=size_order):
        rows = known & (sizes == size)
        log_s, replay_s = float(logged_s[rows].mean()), float(base.wait_s[rows].mean())
        if is_far(log_s, replay_s):
            far.append(f"{size_words(size)} {duration(log_s)} and {duration(replay_s)}")
    if far:
        text += f"; far apart for jobs of {', of '.join(far)}: trust their rows less"
    return [f"{text}."]


def stop_notes(cells: Sequence[GridCell], outcomes: Sequence[CellOutcome]) -> list[str]:
    """Returns how often rows stop running jobs, where that differs from the base."""
    stops = [int(outcome.stops.sum()) for outcome in outcomes]
    return [
        f"'{cell.label}' stops running jobs {own:,} times, '{cells[0].label}' {stops[0]:,} times."
        for cell, own in zip(cells[1:], stops[1:], strict=True)
        if own != stops[0]
    ]
