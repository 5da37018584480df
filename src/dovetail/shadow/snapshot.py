"""What Slurm says of its cluster at one time, as values: nodes and jobs, and what hides from us.

`squeue --json` and `sinfo --json` (or `scontrol show nodes --json`) are read as written by Slurm
22.05 to 25.11. A slurmctld that does not answer leaves valid JSON with empty lists and `errors`,
so errors are read first.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from dovetail.core.cluster import DOWN, DRAINING, UP
from dovetail.core.errors import InputError
from dovetail.shadow.slurm_values import (
    JsonObject,
    gres_gpus,
    hosts,
    member,
    moment,
    number,
    ranges,
    text,
    tres_gpus,
    tres_value,
    words,
)

HOLDING = frozenset(
    ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "STOPPED", "SIGNALING")
)
"""States of jobs that hold their GPUs; Slurm's suspension keeps them."""
READY = frozenset(("", "NONE", "PRIORITY", "RESOURCES", "REQNODENOTAVAIL", "NODEDOWN"))
"""Reasons of jobs that wait for nothing but room and their turn; others Slurm holds back."""
GONE = frozenset(("DOWN", "UNKNOWN", "ERROR", "FUTURE", "FAIL", "NOT_RESPONDING", "NO_RESPOND"))
CLOSED = frozenset(("DRAIN", "DRAINED", "DRAINING", "MAINTENANCE", "MAINT", "RESERVED"))
MEMORY_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}
JobKey = tuple[str, float]
"""A job's id and its submission: Slurm may give a number again after a crash."""


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node; `used` GPUs are those that Slurm says are allocated, None where it does not."""

    name: str
    gpus: int
    gpu_type: str
    state: str
    partitions: tuple[str, ...]
    cpus: float
    memory_bytes: float
    used: int | None = None


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job, or one task of an array, that runs, waits, or is `held_back` by Slurm and why.

    `held` are GPUs by node. Times are in Unix seconds.
    """

    job_id: str
    slurm_id: str
    submit_s: float
    gpus: int
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    name: str = ""
    gpu_type: str = ""
    priority: float = 0.0
    limit_s: float = inf
    cpus: float = 0.0
    memory_bytes: float = 0.0
    start_s: float | None = None
    held: tuple[tuple[str, int], ...] = ()
    held_back: str = ""
    preemptible: bool = True
    least_gpus: int = 0
    most_gpus: int = 0

    @property
    def key(self) -> JobKey:
        """Returns what names the job for ever."""
        return self.job_id, self.submit_s

    @property
    def waits(self) -> bool:
        """True if a policy may start it."""
        return not self.held and not self.held_back


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Nodes with GPUs and the jobs that want them; `notes` say what was left out, and why."""

    cluster: str
    time_s: float
    nodes: tuple[SlurmNode, ...]
    jobs: tuple[SlurmJob, ...]
    notes: tuple[str, ...] = ()


def entries(payload: str, where: str, *names: str) -> list[JsonObject]:
    """Returns the objects of a list in a JSON answer of Slurm. Raises InputError.

    `names` are what versions call the list.
    """
    try:
        answer = json.loads(payload)
    except ValueError:
        what = "is no JSON" if payload.strip() else "is empty"
        raise InputError(
            where, what, "it must be the output of --json, Slurm 22.05 or later"
        ) from None
    errors = member(answer, "errors")
    if isinstance(errors, list) and errors:
        raise InputError(where, f"Slurm reports: {_error_text(errors[0])}", "is slurmctld up?")
    for name in names:
        found = member(answer, name)
        if isinstance(found, list):
            return [entry for entry in found if isinstance(entry, Mapping)]
    raise InputError(where, f"has no list '{names[0]}'", "it must be the output of --json")


def _error_text(error: object) -> str:
    if not isinstance(error, Mapping):
        return str(error)
    parts = [text(error.get(key)) for key in ("error", "description")]
    return ": ".join(p for p in parts if p) or f"error {error.get('error_number', '')}"


def snapshot_of(
    squeue: str,
    sinfo: str,
    *,
    squeue_at: str = "squeue",
    sinfo_at: str = "sinfo",
    time_s: float | None = None,
) -> Snapshot:
    """Returns the snapshot of two JSON answers. Raises InputError.

    Without `time_s` it is the latest time that the answers name for something past.
    """
    rows = entries(squeue, squeue_at, "jobs")
    nodes, without = _nodes(entries(sinfo, sinfo_at, "nodes", "sinfo"))
    if not nodes:
        raise InputError(sinfo_at, "no node has GPUs", "their Gres must name gpu")
    at = _latest(rows) if time_s is None else time_s
    jobs: list[SlurmJob] = []
    left_out: dict[LeftOut, int] = {}
    tasks = _running_tasks(rows)
    for row in rows:
        for job in _jobs(row, tasks):
            if isinstance(job, tuple):
                left_out[job] = left_out.get(job, 0) + 1
            else:
                jobs.append(job)
    jobs.sort(key=lambda job: (job.submit_s, _number_first(job.job_id)))
    notes = [f"left out: {counted(n, noun)} {rest}" for (noun, rest), n in sorted(left_out.items())]
    if without:
        notes.append(f"left out: {counted(without, 'node')} without GPUs")
    cluster = next((text(r.get("cluster")) for r in rows if text(r.get("cluster"))), "")
    return Snapshot(cluster, at, nodes, tuple(jobs), tuple(notes))


def counted(count: int, noun: str) -> str:
    """Returns `1 job`, `2 jobs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _number_first(job_id: str) -> tuple[int, str]:
    digits = job_id.partition("_")[0].partition("+")[0]
    return (int(digits) if digits.isdecimal() else 0, job_id.zfill(20))


def _latest(rows: list[JsonObject]) -> float:
    """Returns the latest time of something past: submissions, starts, looks of the scheduler."""
    past = [moment(r.get(k)) for r in rows for k in ("submit_time", "last_sched_evaluation")]
    past += [moment(r.get("start_time")) for r in rows if words(r.get("job_state")) & HOLDING]
    return max((t for t in past if t is not None), default=0.0)


# Nodes.


def _nodes(rows: list[JsonObject]) -> tuple[tuple[SlurmNode, ...], int]:
    """Returns the nodes with GPUs by name, and the number of the others."""
    found: dict[str, SlurmNode] = {}
    for row in rows:
        for node in _nodes_of(row):
            before = found.get(node.name)
            if before is not None:
                # `sinfo` of 23.02 and later has one entry for each node and partition.
                both = tuple(dict.fromkeys((*before.partitions, *node.partitions)))
                node = replace(node, partitions=both)
            found[node.name] = node
    with_gpus = tuple(found[name] for name in sorted(found) if found[name].gpus)
    return with_gpus, len(found) - len(with_gpus)


def _nodes_of(row: JsonObject) -> Iterator[SlurmNode]:
    names = member(row, "nodes", "nodes")
    if names is None:
        states = words(row.get("state")) | words(row.get("state_flags"))
        partitions = row.get("partitions")
        yield _node(
            text(row.get("name")),
            text(row.get("gres")),
            states,
            tuple(str(p) for p in partitions) if isinstance(partitions, list) else (),
            number(row.get("cpus")),
            number(row.get("real_memory")),
            text(row.get("gres_used")) if "gres_used" in row else None,
        )
        return
    listed = names if isinstance(names, list) else [names]
    for name in (host for item in listed for host in hosts(str(item))):
        partition = text(member(row, "partition", "name"))
        yield _node(
            name,
            text(member(row, "gres", "total")),
            words(member(row, "node", "state")),
            (partition,) if partition else (),
            number(member(row, "cpus", "maximum")),
            number(member(row, "memory", "maximum")),
            None,
        )


def _node(
    name: str,
    gres: str,
    states: frozenset[str],
    partitions: tuple[str, ...],
    cpus: float | None,
    memory_mib: float | None,
    used: str | None,
) -> SlurmNode:
    gpus = gres_gpus(gres)
    # Nodes of mixed types are rare; their GPUs count as of any type.
    kind = next(iter(gpus)) if len(gpus) == 1 else ""
    state = DOWN if states & GONE else DRAINING if states & CLOSED else UP
    return SlurmNode(
        name=name,
        gpus=sum(gpus.values()),
        gpu_type=kind,
        state=state,
        partitions=partitions,
        cpus=cpus or 0.0,
        memory_bytes=(memory_mib or 0.0) * 2**20,
        used=None if used is None else sum(gres_gpus(used).values()),
    )


# Jobs.

LeftOut = tuple[str, str]
"""A noun, and what follows it in a sentence about jobs that are left out."""
NO_GPUS: LeftOut = ("job", "without GPUs")
HETEROGENEOUS: LeftOut = ("waiting part", "of heterogeneous jobs, which start together")


def _running_tasks(rows: list[JsonObject]) -> Counter[float]:
    """Returns how many tasks of each array hold GPUs."""
    holding = (r for r in rows if words(r.get("job_state")) & HOLDING)
    return Counter(number(row.get("array_job_id")) or 0.0 for row in holding)


def _jobs(row: JsonObject, running_tasks: Counter[float]) -> Iterator[SlurmJob | LeftOut]:
    """Yields the jobs of one row, or why it is left out."""
    states = words(row.get("job_state"))
    holding = bool(states & HOLDING) and bool(text(row.get("nodes")))
    if not holding and "PENDING" not in states:
        return
    tres = text(row.get("tres_alloc_str")) if holding else ""
    gpus = tres_gpus(tres or text(row.get("tres_req_str"))) or _per_node_gpus(row)
    if not gpus:
        yield NO_GPUS
        return
    if number(row.get("het_job_id")) and not holding:
        yield HETEROGENEOUS
        return
    if holding:
        yield _job(row, gpus, _job_name(row), states)
        return
    limit = number(row.get("array_max_tasks")) or 0.0
    room = limit - running_tasks[number(row.get("array_job_id")) or 0.0]
    for rank, name in enumerate(_task_names(row)):
        over = "JobArrayTaskLimit" if limit and rank >= room else ""
        yield _job(row, gpus, name, states, over)


def _per_node_gpus(row: JsonObject) -> dict[str, int]:
    """Returns the GPUs of a request where Slurm writes no totals."""
    nodes = int(number(row.get("node_count")) or 1)
    asked = gres_gpus(text(row.get("tres_per_job")))
    each = gres_gpus(text(row.get("tres_per_node")))
    return asked or {kind: count * nodes for kind, count in each.items()}


def _slurm_id(row: JsonObject) -> str:
    return str(int(number(row.get("job_id")) or 0))


def _job_name(row: JsonObject) -> str:
    array, task = number(row.get("array_job_id")), number(row.get("array_task_id"))
    het, offset = number(row.get("het_job_id")), number(row.get("het_job_offset"))
    if array and task is not None:
        return f"{int(array)}_{int(task)}"
    if het:
        return f"{int(het)}+{int(offset or 0)}"
    return _slurm_id(row)


def _task_names(row: JsonObject) -> list[str]:
    """Returns the names of a waiting job: one, or those of the tasks of an array still waiting."""
    listed = text(row.get("array_task_string")).partition("%")[0]
    array = number(row.get("array_job_id"))
    if not listed or not array:
        return [_job_name(row)]
    # Slurm cuts long lists short with dots; the tasks it names are those that come first.
    return [f"{int(array)}_{task}" for task in ranges(listed) if task.isdecimal()]


def _job(
    row: JsonObject,
    gpus: dict[str, int],
    name: str,
    states: frozenset[str],
    held_back: str = "",
) -> SlurmJob:
    running = bool(states & HOLDING)
    total = sum(gpus.values())
    reason = text(row.get("state_reason"))
    priority = number(row.get("priority")) or 0.0
    if not running and not held_back:
        waits = _is_ready(reason) and priority > 0
        held_back = "" if waits else (reason if not _is_ready(reason) else "JobHeldUser")
    limit_min = number(row.get("time_limit"))
    tres = text(row.get("tres_alloc_str")) or text(row.get("tres_req_str"))
    fewest, most = _range_of(text(row.get("comment")), total)
    return SlurmJob(
        job_id=name,
        slurm_id=_slurm_id(row),
        submit_s=moment(row.get("submit_time")) or 0.0,
        gpus=total,
        user=text(row.get("user_name")),
        account=text(row.get("account")),
        partition=text(row.get("partition")),
        qos=text(row.get("qos")),
        name=text(row.get("name")),
        gpu_type=next(iter(gpus)) if len(gpus) == 1 else "",
        priority=priority,
        limit_s=limit_min * 60.0 if limit_min else inf,
        cpus=float(tres_value(tres, "cpu") or 0.0),
        memory_bytes=memory_bytes(tres_value(tres, "mem")),
        start_s=moment(row.get("start_time")) if running else None,
        held=_held(row, total) if running else (),
        held_back=held_back,
        preemptible=bool(row.get("requeue")) and states == {"RUNNING"} if running else True,
        least_gpus=fewest,
        most_gpus=most,
    )


def _is_ready(reason: str) -> bool:
    # A reason may go on in words: "ReqNodeNotAvail, UnavailableNodes:n3".
    return reason.partition(",")[0].strip().upper().replace("_", "") in READY


def _range_of(comment: str, gpus: int) -> tuple[int, int]:
    """Returns the GPUs a job can train on, of a comment like `dovetail:gpus=1..4`."""
    _, found, rest = comment.partition("dovetail:gpus=")
    least, dots, most = rest.split()[0].partition("..") if found and rest.split() else ("", "", "")
    if dots and least.isdecimal() and most.isdecimal():
        low, high = max(1, int(least)), int(most)
        if low <= gpus <= high:
            return low, high
    return gpus, gpus


def memory_bytes(value: str) -> float:
    """Returns bytes of `20000M` or `1.5G`, 0 where it is neither."""
    unit = MEMORY_UNITS.get(value[-1:], 0)
    digits = value[:-1] if unit else value
    try:
        return float(digits) * (unit or 2**20)
    except ValueError:
        return 0.0


def _held(row: JsonObject, total: int) -> tuple[tuple[str, int], ...]:
    """Returns the GPUs of a running job by node: as Slurm details them, else spread evenly."""
    names = hosts(text(row.get("nodes")))
    detail = row.get("gres_detail")
    counts = [sum(gres_gpus(str(d)).values()) for d in detail] if isinstance(detail, list) else []
    if len(counts) != len(names) or sum(counts) != total:
        each, more = divmod(total, max(1, len(names)))
        counts = [each + (rank < more) for rank in range(len(names))]
    return tuple((name, count) for name, count in zip(names, counts, strict=True) if count)
