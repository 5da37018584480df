"""A snapshot of Slurm as the tables of a world, so that any policy can be asked about it.

A job may only use nodes of its partitions with GPUs of its type. Nodes that no job tells apart
get one GPU type, so that a policy keeps to that. CPUs and memory are not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.control.state import ClusterState, JobProgress
from dovetail.core.beliefs import Forecast
from dovetail.core.cluster import DOWN, DRAINING, UP, Cluster, NodeGroup
from dovetail.core.job import Floats, JobTable, Labels
from dovetail.core.node_sets import queues_of
from dovetail.core.placement import Placement, Spans
from dovetail.core.placing import Placing
from dovetail.core.policy import Policy
from dovetail.core.view import Changes, show
from dovetail.physics.linear import linear_physics
from dovetail.physics.sharing.interference import parse_interference
from dovetail.shadow.snapshot import SlurmJob, SlurmNode, Snapshot, counted

UNSEEN = "unseen:"
"""The ids of stand-ins for jobs that Slurm does not show us begin so."""


@dataclass(frozen=True, slots=True)
class Tables:
    """A cluster and its jobs in Dovetail's words: row `i` of `jobs` is `listed[i]`.

    Time 0 is `origin_s` in Unix seconds. `reach` has the nodes each row may use; `states` those
    of nodes that are not up.
    """

    cluster: Cluster
    jobs: JobTable
    listed: tuple[SlurmJob, ...]
    node_names: tuple[str, ...]
    reach: tuple[frozenset[int], ...]
    states: tuple[tuple[int, str], ...]
    origin_s: float
    now_s: float
    notes: tuple[str, ...]

    def placement(self, row: int) -> Placement | None:
        """Returns the GPUs of a running job, None for one that waits."""
        number = {name: node for node, name in enumerate(self.node_names)}
        held = self.listed[row].held
        return Placement(tuple((number[name], gpus) for name, gpus in held)) if held else None

    def progress(self, row: int) -> JobProgress:
        """Returns what a job has behind it: it trained since Slurm started it."""
        job = self.listed[row]
        pending_s = job.submit_s - self.origin_s
        if not job.held:
            return JobProgress(pending_s=pending_s)
        start_s = min(self.now_s, (job.start_s or job.submit_s) - self.origin_s)
        done_s = max(0.0, self.now_s - start_s)
        return JobProgress(done_s, 0.0, start_s, pending_s, start_s, start_s)

    def where(self, spans: Spans) -> str:
        """Returns GPUs by node as people write them: `n1:2 + n3:4`."""
        return " + ".join(f"{self.node_names[node]}:{gpus}" for node, gpus in spans)


def tables_of(snapshot: Snapshot) -> Tables:
    """Returns the tables of a snapshot. Raises InputError if it has no GPU."""
    nodes = sorted(snapshot.nodes, key=lambda n: (n.gpu_type, n.partitions, n.gpus, n.name))
    notes = list(snapshot.notes)
    everyone, reach = _with_reach(snapshot, nodes, notes)
    origin_s = min((job.submit_s for job in everyone), default=snapshot.time_s)
    types = _types(nodes, [each for job in everyone for each in _reaches(job, nodes)])
    kinds = [_kind_of(job, nodes, types) for job in everyone]
    if any(kind is None and not job.held for kind, job in zip(kinds, everyone, strict=True)):
        notes.append("partitions overlap; what a policy would start outside one is not advised")
    return Tables(
        cluster=Cluster(
            tuple(NodeGroup(n.name, 1, n.gpus, t) for n, t in zip(nodes, types, strict=True))
        ),
        jobs=_table(everyone, [kind or "" for kind in kinds], origin_s),
        listed=tuple(everyone),
        node_names=tuple(node.name for node in nodes),
        reach=tuple(reach),
        states=_states(nodes, everyone),
        origin_s=origin_s,
        now_s=max(snapshot.time_s, origin_s) - origin_s,
        notes=tuple(notes),
    )


def _with_reach(
    snapshot: Snapshot, nodes: list[SlurmNode], notes: list[str]
) -> tuple[list[SlurmJob], list[frozenset[int]]]:
    """Returns the jobs that count, by submission, and the nodes that each may use."""
    known = {node.name: node for node in nodes}
    listed = [_on_known_nodes(job, known) for job in snapshot.jobs if not job.held_back]
    unseen = _unseen(nodes, listed, snapshot.time_s)
    if unseen:
        gpus = sum(job.gpus for job in unseen)
        notes.append(f"GPUs held by jobs that squeue does not show you: {gpus}")
    everyone = sorted([*listed, *unseen], key=lambda job: job.submit_s)
    pairs = [(job, _reach(job, nodes)) for job in everyone]
    kept = [(job, reach) for job, reach in pairs if reach or job.held]
    if len(kept) < len(pairs):
        lost = counted(len(pairs) - len(kept), "job")
        notes.append(f"left out: {lost} for whose GPUs the partition has no node")
    return [job for job, _ in kept], [reach for _, reach in kept]


def _states(nodes: list[SlurmNode], jobs: list[SlurmJob]) -> tuple[tuple[int, str], ...]:
    """Returns the states of nodes that are not up.

    A node that is down and still has jobs is on its way out: nothing may start there.
    """
    holding = {name for job in jobs for name, _ in job.held}
    states = [
        DRAINING if node.state == DOWN and node.name in holding else node.state for node in nodes
    ]
    return tuple((i, state) for i, state in enumerate(states) if state != UP)


def _on_known_nodes(job: SlurmJob, known: dict[str, SlurmNode]) -> SlurmJob:
    """Returns a job without the GPUs of nodes that have none, or are not shown."""
    held = tuple((name, min(gpus, known[name].gpus)) for name, gpus in job.held if name in known)
    total = sum(gpus for _, gpus in held)
    if not job.held or (held == job.held and total == job.gpus):
        return job
    return replace(job, held=held, gpus=max(1, total), least_gpus=total, most_gpus=total)


def _unseen(nodes: list[SlurmNode], jobs: list[SlurmJob], now_s: float) -> list[SlurmJob]:
    """Returns stand-ins for jobs that hold GPUs and that we are not shown: other users' jobs."""
    seen: dict[str, int] = {}
    for job in jobs:
        for name, gpus in job.held:
            seen[name] = seen.get(name, 0) + gpus
    hidden = [(node, (node.used or 0) - seen.get(node.name, 0)) for node in nodes]
    return [
        SlurmJob(
            job_id=f"{UNSEEN}{node.name}",
            slurm_id="",
            submit_s=now_s,
            gpus=gpus,
            start_s=now_s,
            held=((node.name, gpus),),
            preemptible=False,
            least_gpus=gpus,
            most_gpus=gpus,
        )
        for node, gpus in hidden
        if gpus > 0
    ]


def _reach(job: SlurmJob, nodes: list[SlurmNode]) -> frozenset[int]:
    partitions = set(filter(None, job.partition.split(",")))
    return frozenset(
        i
        for i, node in enumerate(nodes)
        if (not partitions or not node.partitions or partitions & set(node.partitions))
        and (not job.gpu_type or node.gpu_type in ("", job.gpu_type))
    )


def _types(nodes: list[SlurmNode], reach: list[frozenset[int]]) -> list[str]:
    """Returns a GPU type for each node: nodes have the same if no job tells them apart."""
    distinct = sorted(set(reach), key=sorted)
    sides = [tuple(i in r for r in distinct) for i in range(len(nodes))]
    names: dict[tuple[bool, ...], str] = {}
    for side in sides:
        if side not in names:
            kinds = {n.gpu_type for n, s in zip(nodes, sides, strict=True) if s == side}
            name = "/".join(sorted(kinds - {""})) or "gpu"
            taken = sum(other.partition("@")[0] == name for other in names.values())
            names[side] = f"{name}@{taken + 1}" if taken else name
    return [names[side] for side in sides]


def _kind(reach: frozenset[int], types: list[str]) -> str | None:
    """Returns the GPU type that a job asks for: "" if any will do, None if no type says it."""
    wanted = {types[i] for i in reach}
    if len(reach) == len(types):
        return ""
    return wanted.pop() if len(wanted) == 1 else None


def _reaches(job: SlurmJob, nodes: list[SlurmNode]) -> list[frozenset[int]]:
    """Returns the nodes that a job may use of each of its partitions: it runs in one of them."""
    names = queues_of(job.partition)
    if len(names) < 2:
        return [_reach(job, nodes)]
    own = [_reach(replace(job, partition=name), nodes) for name in names]
    return [each for each in own if each]


def _kind_of(job: SlurmJob, nodes: list[SlurmNode], types: list[str]) -> str | None:
    """Returns the GPU types that a job asks for: "" if any will do, None if no type says it."""
    kinds = [_kind(each, types) for each in _reaches(job, nodes)]
    if None in kinds or not kinds:
        return None
    return "" if "" in kinds else "|".join(dict.fromkeys(filter(None, kinds)))


def _table(listed: Sequence[SlurmJob], kinds: list[str], origin_s: float) -> JobTable:
    def numbers(field: str) -> Floats:
        return np.array([float(getattr(job, field)) for job in listed], np.float64)

    def labels(field: str) -> Labels:
        return Labels.of([getattr(job, field) for job in listed])

    gpus = numbers("gpus").astype(np.int64)
    least, most = (numbers(f).astype(np.int64) for f in ("least_gpus", "most_gpus"))
    least, most = np.where(least > 0, least, gpus), np.where(most > 0, most, gpus)
    return JobTable.build(
        [job.job_id for job in listed],
        numbers("submit_s") - origin_s,
        gpus,
        min_gpus=least,
        max_gpus=most,
        elastic=least < most,
        preemptible=numbers("preemptible") > 0,
        time_limit_s=numbers("limit_s"),
        priority=numbers("priority"),
        user=labels("user"),
        account=labels("account"),
        qos=labels("qos"),
        queue=labels("partition"),
        recurrence=Labels.of([f"{job.user}/{job.name}" if job.name else "" for job in listed]),
        gpu_type=Labels.of(kinds),
    )


def state_of(
    tables: Tables, policy: Policy, *, forecast: Forecast, placing: Placing
) -> ClusterState:
    """Returns the tables of a world as they are now, with every waiting job as arrived."""
    state = ClusterState(
        tables.jobs,
        tables.cluster,
        policy,
        physics=linear_physics(tables.jobs, parse_interference("measured")),
        forecast=forecast,
        placing=placing,
    )
    state.now = tables.now_s
    show(state.view, now=tables.now_s)
    for row in range(len(tables.jobs)):
        placement = tables.placement(row)
        rate = 0.0 if placement is None else 1.0
        state.restore(row, tables.progress(row), placement, rate)
    if tables.states:
        state.change_nodes(tables.states)
    waiting = sorted(state.waiting)
    show(state.view, changes=Changes(arrived=waiting, capacity=bool(tables.states)))
    return state
