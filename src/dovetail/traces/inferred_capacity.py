"""Infers from a log when nodes were away: empty for long, while jobs waited that fit on them.

A node counts as away in a gap between two jobs if at least two jobs, of at least two users where
users are named, waited in it for over ten minutes, asked for no more GPUs than the node has, of its
type, in a queue whose jobs ran on it, and without a reservation. It is away from when the first of
them waited until its next job, if that is six hours or more. A gap below half a day is not counted
if a job on several nodes starts at its end, on this node or others: the scheduler may have kept the
node for it. A scheduler that starts jobs strictly in order leaves nodes empty, too, and that looks
the same.

A log does not tell reservations and limits (nor holds and dependencies, if it has no eligible
times): where they hold many jobs a node may be taken for away that was not. A node that nobody
wanted is not missed, and a node that was only partly usable is not found.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dovetail.core.cluster import DRAINING, UP, Cluster
from dovetail.core.errors import InputError
from dovetail.core.gpu_parts import exact_sum
from dovetail.core.host_list import host_names
from dovetail.core.job import Bools, Floats, Ints
from dovetail.core.trace import Trace
from dovetail.traces.capacity import Timeline

GAP_S_MIN = 6 * 3600.0
"""A shorter stay is not looked at: nodes are also kept for large jobs. NOTE: with one hour, three
of five logs of simulated backfill without any outage named a node; with six hours none did."""
KEPT_S_MAX = 12 * 3600.0
"""The longest that a scheduler is believed to keep a node for a job on several nodes."""
WAITED_S_MIN = 600.0
"""A job that waited less in a gap is no witness: schedulers look at their queue in minutes."""
WITNESSES_MIN = 2


@dataclass(frozen=True, slots=True)
class Away:
    """One node from when to when, and the jobs that waited meanwhile."""

    node: str
    start_s: float
    end_s: float
    witnesses: int


@dataclass(frozen=True, slots=True)
class InferredCapacity:
    """The changes of capacity, the stays away they come from, and the nodes seen in use.

    `unreadable` is the number of jobs whose node list is damaged.
    """

    timeline: Timeline
    aways: Sequence[Away]
    nodes: Sequence[str]
    unreadable: int


@dataclass
class _Node:
    """What the log shows of one node."""

    start_s: list[float] = field(default_factory=list)
    end_s: list[float] = field(default_factory=list)
    gpus: list[float] = field(default_factory=list)
    wide: list[bool] = field(default_factory=list)
    restarted: list[bool] = field(default_factory=list)
    types: Counter[str] = field(default_factory=Counter)
    queues: set[str] = field(default_factory=set)

    @property
    def gpu_type(self) -> str:
        """Returns the type that most of its jobs asked for, empty if none did."""
        return self.types.most_common(1)[0][0] if self.types else ""

    @property
    def most_gpus(self) -> int:
        """Returns the most GPUs that jobs on this node alone held on it at once.

        How jobs on several nodes divide their GPUs is not recorded, nor when a restarted job came
        to the node of its last run.
        """
        unclear = zip(self.wide, self.restarted, strict=True)
        rows = zip(self.start_s, self.end_s, self.gpus, unclear, strict=True)
        alone = [(start_s, end_s, gpus) for start_s, end_s, gpus, why in rows if not any(why)]
        events = [(start_s, gpus) for start_s, _, gpus in alone]
        events += [(end_s, -gpus) for _, end_s, gpus in alone]
        return math.ceil(
            exact_sum(float(np.cumsum([g for _, g in sorted(events)]).max(initial=0.0)))
        )

    def gaps(self, first_s: float, last_s: float) -> list[tuple[float, float]]:
        """Returns the gaps without a job."""
        found, free_s = [], first_s
        for i in np.lexsort((self.end_s, self.start_s)).tolist():
            if self.start_s[i] - free_s >= GAP_S_MIN:
                found.append((free_s, self.start_s[i]))
            free_s = max(free_s, self.end_s[i])
        if last_s - free_s >= GAP_S_MIN:
            found.append((free_s, last_s))
        return found


def infer_capacity(trace: Trace, cluster: Cluster) -> InferredCapacity:
    """Returns when nodes of the cluster were away. Raises InputError if the log cannot tell."""
    option = "--capacity inferred"
    if trace.recorded is None or not trace.recorded.nodes.names:
        raise InputError(
            option,
            "the trace does not record the nodes of its jobs",
            "import the log with its node list and start times, or give --capacity FILE",
        )
    seen, unreadable = _seen(trace)
    place = _places(seen, cluster)
    waiting = _Waiting.of(trace)
    starts = [s for node in seen.values() for s in node.start_s]
    wide = {s for n in seen.values() for s, w in zip(n.start_s, n.wide, strict=True) if w}
    first_s, last_s = float(trace.jobs.submit_s[0]), max(starts, default=0.0)
    aways = [
        away
        for name, node in seen.items()
        for gap in node.gaps(first_s, last_s)
        if gap[1] not in wide or gap[1] - gap[0] > KEPT_S_MAX
        for away in _away(name, node, gap, cluster.installed[place[name]], waiting)
    ]
    return InferredCapacity(_timeline(aways, place), aways, tuple(seen), unreadable)


def _seen(trace: Trace) -> tuple[dict[str, _Node], int]:
    """Returns the nodes in natural order of their names, and the jobs of unreadable lists."""
    record, jobs = trace.recorded, trace.jobs
    assert record is not None
    lists, damaged = _lists(record.nodes.names)
    seen: dict[str, _Node] = {}
    unreadable = 0
    types, queues = jobs.gpu_type.texts(), jobs.queue.texts()
    codes, gpus = record.nodes.codes.tolist(), jobs.asked_gpus.tolist()
    restarts = record.restarts.tolist()
    times = zip(record.start_s.tolist(), record.end_s.tolist(), strict=True)
    for job, (start_s, end_s) in enumerate(times):
        unreadable += codes[job] in damaged
        names = lists.get(codes[job], ())
        if not names or not start_s <= end_s:
            continue
        for name in names:
            node = seen.setdefault(name, _Node())
            node.start_s.append(start_s)
            node.end_s.append(end_s)
            node.gpus.append(gpus[job])
            node.wide.append(len(names) > 1)
            node.restarted.append(restarts[job] > 0)
            node.queues.add(queues[job])
            if types[job]:
                node.types[types[job]] += 1
    return {name: seen[name] for name in sorted(seen, key=_natural)}, unreadable


def _lists(texts: Sequence[str]) -> tuple[dict[int, tuple[str, ...]], set[int]]:
    lists: dict[int, tuple[str, ...]] = {}
    damaged: set[int] = set()
    for code, text in enumerate(texts):
        try:
            lists[code] = host_names(text)
        except InputError:
            damaged.add(code)
    return lists, damaged


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Orders names by their texts and numbers: n2 before n10."""
    parts = re.split(r"(\d+)", name)
    return [(1, int(p), p) if p.isdigit() else (0, 0, p) for p in parts if p]


def _places(seen: Mapping[str, _Node], cluster: Cluster) -> dict[str, int]:
    """Returns the node of the cluster that stands for each node of the log. Raises InputError."""
    free: list[tuple[int, int, str]] = []
    index = 0
    for group in cluster.groups:
        for _ in range(group.nodes):
            free.append((group.gpus_per_node, index, group.gpu_type.lower()))
            index += 1
    place: dict[str, int] = {}
    for name, node in seen.items():
        kind = node.gpu_type.lower()
        fits = [
            slot
            for slot in free
            if slot[0] >= node.most_gpus and (not kind or not slot[2] or slot[2] == kind)
        ]
        if not fits:
            raise InputError(
                "--capacity inferred",
                f"the log names {len(seen)} nodes, and the cluster has none left for {name} "
                f"({node.most_gpus} GPUs{f' {node.gpu_type}' if kind else ''})",
                "give a --cluster with all nodes of the log",
            )
        slot = min(fits)
        free.remove(slot)
        place[name] = slot[1]
    return place


@dataclass(frozen=True, slots=True)
class _Waiting:
    """The jobs that waited long enough to be witnesses."""

    submit_s: Floats
    start_s: Floats
    gpus: Ints
    types: Sequence[str]
    queues: Sequence[str]
    users: Ints

    @staticmethod
    def of(trace: Trace) -> _Waiting:
        record, jobs = trace.recorded, trace.jobs
        assert record is not None
        with np.errstate(invalid="ignore"):
            long = record.start_s - jobs.submit_s >= WAITED_S_MIN
        rows = np.flatnonzero(long & (jobs.reservation.codes < 0))
        return _Waiting(
            jobs.submit_s[rows],
            record.start_s[rows],
            jobs.gpus[rows],
            [t.lower() for t in jobs.gpu_type.take(rows).texts()],
            jobs.queue.take(rows).texts(),
            np.asarray(jobs.user.codes[rows], dtype=np.int64),
        )

    def fits(self, node: _Node, gpus: int) -> Bools:
        """Returns which could have run on a node alone."""
        kind = node.gpu_type.lower()
        alike = [
            (not t or not kind or t == kind) and q in node.queues
            for t, q in zip(self.types, self.queues, strict=True)
        ]
        return np.asarray((self.gpus <= gpus) & np.array(alike, dtype=bool))


def _away(
    name: str, node: _Node, gap: tuple[float, float], gpus: int, waiting: _Waiting
) -> list[Away]:
    """Returns the stay away in a gap, if there is one."""
    begin_s, end_s = gap
    from_s = np.maximum(waiting.submit_s, begin_s)
    until_s = np.minimum(waiting.start_s, end_s)
    long = until_s - from_s >= WAITED_S_MIN
    if np.count_nonzero(long) < WITNESSES_MIN:
        return []
    rows = np.flatnonzero(long & waiting.fits(node, gpus))
    users = waiting.users[rows]
    named = users[users >= 0]
    several = len(np.unique(named)) >= WITNESSES_MIN or not len(named)
    if len(rows) < WITNESSES_MIN or not several:
        return []
    away_s, back_s = float(from_s[rows].min()), end_s
    if back_s - away_s < GAP_S_MIN:
        return []
    return [Away(name, away_s, back_s, len(rows))]


def _timeline(aways: Sequence[Away], place: Mapping[str, int]) -> Timeline:
    """Returns the changes by time: a node that leaves drains, so no job is stopped."""
    changes: dict[float, list[tuple[int, str]]] = {}
    # Returns first: a node may leave at the instant it returned.
    for away in aways:
        changes.setdefault(away.end_s, []).append((place[away.node], UP))
    for away in aways:
        changes.setdefault(away.start_s, []).append((place[away.node], DRAINING))
    return [(t_s, changes[t_s]) for t_s in sorted(changes)]
