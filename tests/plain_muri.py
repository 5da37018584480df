"""What Muri's simulator computes for Muri-S and Muri-L, written again from its description.

Nothing of the package is used: plain lists, every event looks at every job, and matchings come
from a library by another way than ours. Overheads and measured factors are off. Where two
matchings are equally good the program and these loops may differ, and so may ours.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import rustworkx

from plain_simulators import yarn

MEMBERS, ROUNDS = 4, 4
SAME_TIME_S = 1e-4


@dataclass
class MuriJob:
    """One job; `stages` are the seconds of loading, GPU and network in an iteration."""

    number: int
    submit_s: float
    gpus: int
    iterations: float
    alone_s: float
    stages: tuple[float, float, float]
    first_key_s: float
    left: float = 0.0
    ran_s: float = 0.0
    runs: bool = False
    has_run: bool = False
    cycle_s: float = math.inf
    end_s: float = math.inf
    key: float = 0.0


@dataclass
class Group:
    """Jobs in one set."""

    jobs: list[MuriJob] = field(default_factory=list)

    @property
    def gpus(self) -> int:
        """Returns the GPUs each member asks for."""
        return self.jobs[0].gpus


def read_interleaved(path: Path) -> list[MuriJob]:
    """Returns the jobs of a Muri trace with their stages."""
    jobs: list[MuriJob] = []
    with path.open() as stream:
        for row in csv.DictReader(stream):
            load, gpu, net = (float(row[f"resource_time_{i}"]) / 1000 for i in range(3))
            jobs.append(
                MuriJob(
                    len(jobs),
                    float(row["submit_time"]) / 1000,
                    int(row["num_gpu"]),
                    float(row["iterations"]),
                    float(row["iteration_time"]) / 1000,
                    (load, gpu, net),
                    float(row["duration"]) / 1000,
                )
            )
    return jobs


def cycle_s(jobs: Sequence[MuriJob]) -> float:
    """Returns the cycle of a set under the best order."""
    if len(jobs) == 1:
        return jobs[0].alone_s
    best = min(_in_order(order) for order in itertools.permutations([j.stages for j in jobs]))
    if len(jobs) == 2:
        (la, ga, na), (lb, gb, nb) = jobs[0].stages, jobs[1].stages
        best = min(best, max(la, gb + nb) + max(lb, ga + na))
    return best


def _in_order(order: Sequence[tuple[float, float, float]]) -> float:
    n = len(order)
    f = [0.0]
    for i in range(8):
        following = 0.0
        if (i + 1) % 4 < n:
            following = max(following, f[i] + order[(i + 1) % 4][2])
        if (i + 2) % 4 < n:
            following = max(following, f[i] + order[(i + 2) % 4][1])
        if i > 0 and (i + 3) % 4 < n:
            following = max(following, f[i - 1] + order[(i + 3) % 4][0])
        f.append(following)
        if i >= 4 and math.isclose(f[i + 1] - f[i - 3], f[i] - f[i - 4], rel_tol=1e-3):
            return f[i + 1] - f[i - 3]
    return f[8] - f[4]


def efficiency(jobs: Sequence[MuriJob]) -> float:
    """Returns the share of the cycle in which a resource is busy, over four resources."""
    return sum(sum(j.stages) for j in jobs) / (4 * cycle_s(jobs))


def _pairs(groups: list[Group], known: dict[tuple[object, ...], float]) -> list[tuple[int, int]]:
    graph = rustworkx.PyGraph()
    graph.add_nodes_from(range(len(groups)))
    for i, one in enumerate(groups):
        for j in range(i):
            jobs = groups[j].jobs + one.jobs
            if len(jobs) > MEMBERS:
                continue
            key = tuple(sorted((k.stages, k.alone_s) for k in jobs))
            if key not in known:
                known[key] = efficiency(jobs)
            graph.add_edge(j, i, known[key])
    found = rustworkx.max_weight_matching(graph, weight_fn=lambda w: round(w * 1e9))
    return sorted((max(pair), min(pair)) for pair in found)


def _grouped(
    classes: dict[int, list[Group]], pool: int, known: dict[tuple[object, ...], float]
) -> list[Group]:
    required = sum(gpus * len(groups) for gpus, groups in classes.items())
    for _ in range(ROUNDS):
        after: dict[int, list[Group]] = {}
        ready: list[tuple[int, list[Group]]] = []
        for gpus, groups in classes.items():
            first_of = dict(_pairs(groups, known))
            in_pairs = {*first_of, *first_of.values()}
            for i, one in enumerate(groups):
                if i in first_of:
                    ready.append((gpus, [groups[first_of[i]], one]))
                elif i not in in_pairs:
                    ready.append((gpus, [one]))
        for gpus, parts in ready:
            line = after.setdefault(gpus, [])
            if required <= pool:
                line.extend(parts)
            else:
                line.append(Group([job for part in parts for job in part.jobs]))
                required -= gpus * (len(parts) - 1)
        classes = after
        if required <= pool:
            break
    return [one for groups in classes.values() for one in groups]


def muri_interleaved(
    jobs: list[MuriJob],
    *,
    by_length: bool,
    nodes: int = 8,
    per_node: int = 8,
    by_submission: bool = False,
    key_digits: int = 6,
) -> list[float]:
    """Returns JCTs under Muri-S, or Muri-L if not `by_length`.

    The program keeps its list sorted by GPUs after each event, so equal keys go to more GPUs
    first; `by_submission` breaks ties by submission in place of that.
    """
    for job in jobs:
        job.left, job.ran_s, job.runs, job.has_run = job.iterations, 0.0, False, False
        job.end_s = math.inf
    waiting = sorted(jobs, key=lambda j: (j.submit_s, j.number))
    present: list[MuriJob] = []
    finished: dict[int, float] = {}
    known: dict[tuple[object, ...], float] = {}
    now = 0.0
    while waiting or present:
        arrival = waiting[0].submit_s if waiting else math.inf
        end = min((j.end_s for j in present if j.runs), default=math.inf)
        then = arrival if math.isclose(end, arrival, abs_tol=SAME_TIME_S) else min(arrival, end)
        ended = (
            [j for j in present if j.runs and j.end_s == end]
            if end <= then or math.isclose(end, then, abs_tol=SAME_TIME_S)
            else []
        )
        for job in present:
            if job.runs:
                job.left -= (then - now) / job.cycle_s
                job.ran_s += then - now
        now = then
        for job in ended:
            finished[job.number] = now - job.submit_s
            present.remove(job)
        while waiting and waiting[0].submit_s == now:
            present.append(waiting.pop(0))
        for job in present:
            if by_length:
                left_s = job.left * job.alone_s if job.has_run else job.first_key_s
                job.key = left_s * job.gpus
            else:
                job.key = job.ran_s * job.gpus
        # Jobs that ran together for as long count as equal whatever the rounding of sums.
        present.sort(key=lambda j: round(j.key, key_digits))
        admitted = _admitted(present, nodes, per_node, known)
        for job in present:
            job.runs, job.end_s = False, math.inf
        for one in admitted:
            period_s = cycle_s(one.jobs)
            for job in one.jobs:
                job.runs, job.has_run, job.cycle_s = True, True, period_s
                job.end_s = now + job.left * period_s
        if by_submission:
            present.sort(key=lambda j: (j.submit_s, j.number))
        else:
            present.sort(key=lambda j: j.gpus, reverse=True)
    return [finished[number] for number in sorted(finished)]


def _admitted(
    present: list[MuriJob], nodes: int, per_node: int, known: dict[tuple[object, ...], float]
) -> list[Group]:
    classes: dict[int, list[MuriJob]] = {}
    for job in present:
        classes.setdefault(job.gpus, []).append(job)
    taken = dict.fromkeys(classes, 0)
    marked: set[int] = set()
    free = [per_node] * nodes
    for job in present:
        if job.number in marked or yarn(free, job.gpus, per_node) is None:
            continue
        line = classes[job.gpus][taken[job.gpus] : taken[job.gpus] + MEMBERS]
        marked.update(j.number for j in line)
        taken[job.gpus] += len(line)
    singles = {gpus: [Group([j]) for j in line[: taken[gpus]]] for gpus, line in classes.items()}
    unpacked: list[Group] = []
    for one in _grouped(singles, nodes * per_node, known):
        if len(one.jobs) > 1 and cycle_s(one.jobs) > sum(j.alone_s for j in one.jobs):
            unpacked += [Group([j]) for j in one.jobs]
        else:
            unpacked.append(one)
    unpacked.sort(key=lambda g: min(round(j.key, 6) for j in g.jobs))
    free = [per_node] * nodes
    return [g for g in unpacked if yarn(free, g.gpus, per_node) is not None]
