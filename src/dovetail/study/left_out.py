"""Jobs that a run leaves out: too many stop it, and GPU types a cluster does not name are ignored.

A job is left out if it could never start on the empty cluster. If its whole cluster names no GPU
type, a job of any type may run on it: that is an approximation, and is said.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.job import JobTable, Shape
from dovetail.core.occupancy import Occupancy, shapes_on
from dovetail.core.trace import Trace
from dovetail.study.on_cluster import on_cluster
from dovetail.study.options import Options, adopted
from dovetail.study.tenant_notes import queues_without_jobs
from dovetail.traces.hardware import cluster_of_log
from dovetail.traces.loss import (
    LEFT_OUT_MAX,
    Loss,
    gpu_seconds,
    loss_in_counts,
    loss_in_import,
    was_imported_before,
)

BY_A_LIMIT = "for more than a limit of the cluster's file allows"


def ignored_types(trace: Trace, cluster: Cluster) -> str:
    """Returns a sentence if the GPU types of the jobs are ignored, empty otherwise."""
    labels = trace.jobs.gpu_type
    present = [labels.names[c] for c in np.unique(labels.codes[labels.codes >= 0]).tolist()]
    if not present or any(g.gpu_type for g in cluster.groups):
        return ""
    fitting = cluster_of_log(trace) or "8x4:a100+4x4:v100"
    return (
        f"the cluster names no GPU type, so those of the jobs ({', '.join(present[:6])}) are "
        f"ignored and every GPU counts as equal; name them to tell them apart, as in --cluster "
        f"{fitting}"
    )


def strangers(trace: Trace, cluster: Cluster) -> str:
    """Returns a sentence if users ran jobs of accounts that do not list them, empty otherwise."""
    members = {a.name: {user for user, _ in a.users} for a in cluster.accounts if a.users}
    if not members:
        return ""
    jobs = trace.jobs
    pairs = Counter(zip(jobs.account.texts(), jobs.user.texts(), strict=True))
    foreign = {p: n for p, n in pairs.items() if p[0] in members and p[1] not in members[p[0]]}
    if not foreign:
        return ""
    first = ", ".join(
        f"{user or 'nobody'} in {account}" for account, user in sorted(foreign)[:_NAMED]
    )
    more = " and others" if len(foreign) > _NAMED else ""
    return (
        f"{sum(foreign.values()):,} jobs are of users whom the list of their account leaves out "
        f"({first}{more}); the log has them, so they run"
    )


_NAMED = 3


def left_out(trace: Trace, options: Options) -> Loss:
    """Returns the jobs that can never start on the cluster of a run, with the reasons."""
    jobs = adopted(on_cluster(trace, options.cluster), options.adopt, options.seed).jobs
    empty = Occupancy(options.cluster, jobs)
    shape_of, shapes = shapes_on(empty)
    why = [
        "" if options.placing.find(empty, shape) is not None else _reason(shape, empty)
        for shape in shapes
    ]
    lost = np.array([bool(why[s]) for s in shape_of], dtype=np.bool_)
    reasons = Counter(why[s] for s in shape_of if why[s])
    whole_s = gpu_seconds(trace)
    lost_s = float((trace.duration_s * trace.jobs.asked_gpus)[lost].sum())
    return Loss(int(lost.sum()), lost_s, len(trace), whole_s, reasons)


def _reason(shape: Shape, empty: Occupancy) -> str:
    cluster = empty.cluster
    limit = None if empty.tenants is None else empty.tenants.exceeded_by(shape)
    if limit is not None:
        return f"{BY_A_LIMIT}: {limit}"
    groups = [g for g in cluster.groups if shape.gpu_type in ("", g.gpu_type)]
    kind = f"{shape.gpu_type} GPUs" if shape.gpu_type else "GPUs"
    if not groups:
        return f"for {kind}, which it does not have"
    if shape.whole_gpus > sum(g.nodes * g.gpus_per_node for g in groups):
        return f"for more {kind} than it has"
    if not shape.gpu_part:
        return "without GPU, for more CPUs or memory than a node has"
    return "for more in one place than its nodes have"


def part_notes(jobs: JobTable) -> list[str]:
    """Returns the note on jobs that hold parts of GPUs, or none."""
    if not jobs.has_parts:
        return []
    none = int((jobs.gpu_part == 0).sum())
    part = int((jobs.gpu_part < 1).sum()) - none
    return [
        f"{part:,} jobs hold parts of GPUs, which do not slow each other: their lengths are those "
        f"on such a part. {none:,} hold no GPU; they count in means of times, with 0 GPU-seconds, "
        "and in bounds with their run times alone."
    ]


def _unlimited_hosts(trace: Trace, cluster: Cluster) -> str:
    """Returns a sentence if nothing keeps jobs without GPU from starting at once."""
    none = int((trace.jobs.gpu_part == 0).sum())
    if not none or any(g.cpus or g.memory_bytes for g in cluster.groups):
        return ""
    return (
        f"{none:,} of {len(trace):,} jobs use no GPU, and the cluster names no CPUs: they start at "
        "once and lower the means; describe its nodes in a TOML file, or import the log with "
        "--cpu-only reject"
    )


def check_left_out(trace: Trace, options: Options) -> list[str]:
    """Returns what a reader must know first: ignored GPU types, and jobs that are left out.

    Also queues of the cluster's file that no job belongs to. Raises InputError if the run, or the
    import of the trace, leaves out more of the jobs or of their GPU-hours than
    `options.left_out_max`, or if such a queue has the name of an account or a user.
    """
    if not len(trace):
        return []
    lost = lost_rows(trace, options.left_out_max)
    cluster = options.cluster
    found = ignored_types, _unlimited_hosts, strangers
    notes = [note for note in (say(trace, cluster) for say in found) if note]
    notes += queues_without_jobs(on_cluster(trace, cluster).jobs, cluster)
    never = left_out(trace, options)
    if never.exceeds(options.left_out_max):
        raise InputError("--cluster", f"it can never hold {never}", _mend(trace, never))
    if never.exceeds(LEFT_OUT_MAX):
        notes.append(f"the cluster can never hold {never}; they are left out")
    return [*lost, *notes]


def lost_rows(trace: Trace, most: float) -> list[str]:
    """Returns what must be said of rows of the log that are missing from the trace.

    Raises InputError if reading the trace now loses more than `most`. What an earlier import lost
    was said then, and stops nothing.
    """
    unread = loss_in_counts(trace)
    if unread.exceeds(most):
        mend = f"dovetail trace import --rejects FILE lists them; {_accept(unread)}"
        raise InputError("trace", f"unusable rows lose {unread}", mend)
    lists = "dovetail trace import --rejects FILE lists them"
    notes = []
    if unread.exceeds(LEFT_OUT_MAX):
        notes.append(f"unusable rows of the log lose {unread}; {lists}")
    if was_imported_before(trace) and trace.imported is not None:
        earlier = loss_in_import(trace.imported)
        if earlier.exceeds(LEFT_OUT_MAX):
            notes.append(f"the import of {trace.imported.source} left out {earlier}; {lists}")
    return notes


def as_sentence(note: str) -> str:
    """Returns a note as a sentence."""
    return f"{note[0].upper()}{note[1:]}."


def _mend(trace: Trace, loss: Loss) -> str:
    if all(reason.startswith(BY_A_LIMIT) for reason in loss.reasons):
        return f"raise the limit, or remove it; {_accept(loss)}"
    fitting = cluster_of_log(trace)
    use = f"use --cluster {fitting}, which fits the log" if fitting else "use a larger --cluster"
    return f"{use}; {_accept(loss)}"


def _accept(loss: Loss) -> str:
    return f"--allow-left-out {math.ceil(100 * max(loss.job_share, loss.gpu_share))}% accepts it"
