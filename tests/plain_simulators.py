"""Our reading of two public simulators in plain loops, to check the engine job by job.

Nothing of the package is used, and nothing is clever: every event looks at every job. Where the
engine and these loops agree to rounding, both mean the same schedule. They are ours: a misreading
of a public program would stand in both, so only that program's own figures show that they are
right (`PRINTED` in `golden/test_plain_simulators.py`, `benchmarks/afs_program.py`).
"""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class PlainJob:
    """One job; `seconds` is how long an iteration takes on n GPUs."""

    number: int
    submit_s: float
    gpus: int
    iterations: float
    seconds: Callable[[int], float]
    max_gpus: int
    left: float = 0.0
    share: int = 0
    end_s: float = math.inf
    given_s: float = math.inf
    ran_s: float = 0.0
    nodes: dict[int, int] = field(default_factory=dict)

    def left_s(self) -> float:
        """Returns the seconds left on the requested GPUs."""
        return self.left * self.seconds(self.gpus)


def read_muri(path: Path) -> list[PlainJob]:
    """Returns the jobs of a Muri trace; work is iterations x iteration time."""
    jobs: list[PlainJob] = []
    with path.open() as stream:
        for row in csv.DictReader(stream):
            alone_s = float(row["iteration_time"]) / 1000
            jobs.append(
                PlainJob(
                    len(jobs),
                    float(row["submit_time"]) / 1000,
                    int(row["num_gpu"]),
                    float(row["iterations"]),
                    lambda n, s=alone_s: s,  # type: ignore[misc]
                    int(row["num_gpu"]),
                )
            )
    return sorted(jobs, key=lambda j: (j.submit_s, j.number))


def read_afs(trace: Path, curves: Path) -> list[PlainJob]:
    """Returns the jobs of an AFS trace with the measured curves of their models."""
    table: dict[str, dict[int, float]] = {}
    with curves.open() as stream:
        for row in csv.DictReader(stream):
            us = float(row["us_per_iteration"])
            table.setdefault(row["model"], {})[int(row["num_gpus"])] = us / 1e6
    jobs: list[PlainJob] = []
    with trace.open() as stream:
        for row in csv.DictReader(stream):
            curve = table[row["model"]]
            jobs.append(
                PlainJob(
                    len(jobs),
                    float(row["submit_s"]),
                    int(row["req_gpus"]),
                    float(row["iterations"]),
                    curve.__getitem__,
                    int(row["max_gpus_model"]),
                )
            )
    return sorted(jobs, key=lambda j: (j.submit_s, j.number))


def yarn(free: list[int], gpus: int, per_node: int) -> dict[int, int] | None:
    """Takes a gang's GPUs: first node with room, or whole empty nodes and one for the rest."""
    if gpus <= per_node:
        for node, have in enumerate(free):
            if have >= gpus:
                free[node] -= gpus
                return {node: gpus}
        return None
    empty = [n for n, have in enumerate(free) if have == per_node][: gpus // per_node]
    if len(empty) < gpus // per_node:
        return None
    taken = dict.fromkeys(empty, per_node)
    rest = gpus % per_node
    if rest:
        fitting = [n for n, have in enumerate(free) if have >= rest and n not in taken]
        if not fitting:
            return None
        taken[fitting[0]] = rest
    for node, count in taken.items():
        free[node] -= count
    return taken


def muri(jobs: list[PlainJob], by_gpus: bool, nodes: int = 8, per_node: int = 8) -> list[float]:
    """Returns JCTs under SRTF, or SRSF if `by_gpus`, on nodes, repacked at every event."""
    for job in jobs:
        job.left = job.iterations
    waiting = list(jobs)
    present: list[PlainJob] = []
    done: list[PlainJob] = []
    now = 0.0
    while waiting or present:
        arrival = waiting[0].submit_s if waiting else math.inf
        end = min((j.end_s for j in present if j.share), default=math.inf)
        then = min(arrival, end)
        for job in present:
            if job.share:
                job.left -= (then - now) / job.seconds(job.gpus)
        now = then
        ended = [j for j in present if j.share and j.end_s == now]
        present = [j for j in present if j not in ended]
        done += ended
        while waiting and waiting[0].submit_s == now:
            present.append(waiting.pop(0))
        present.sort(key=lambda j: j.left_s() * (j.gpus if by_gpus else 1))
        free = [per_node] * nodes
        for job in present:
            job.share = job.gpus if yarn(free, job.gpus, per_node) else 0
            job.end_s = now + job.left_s() if job.share else math.inf
    return [j.end_s - j.submit_s for j in sorted(done, key=lambda j: j.number)]


def muri_tiresias(
    jobs: list[PlainJob], *, whole_seconds: bool = True, pool: int = 64
) -> list[float]:
    """Returns JCTs under Muri's `dlas-gpu`: counts of GPUs only.

    The seconds a job must run until it falls are rounded up by default, as theirs are.
    """
    limits = (3250.0, 7200.0)
    for job in jobs:
        job.left = job.iterations
    waiting = list(jobs)
    queues: list[list[PlainJob]] = [[] for _ in range(len(limits) + 1)]
    done: list[PlainJob] = []
    now, fall_s = 0.0, math.inf
    while waiting or any(queues):
        arrival = waiting[0].submit_s if waiting else math.inf
        end = min((j.end_s for q in queues for j in q if j.share), default=math.inf)
        then = min(arrival, end, fall_s)
        for job in (j for q in queues for j in q if j.share):
            job.left -= (then - now) / job.seconds(job.gpus)
            job.ran_s += then - now
        now = then
        ended = [j for q in queues for j in q if j.share and j.end_s == now]
        done += ended
        queues = [[j for j in q if j not in ended] for q in queues]
        while waiting and waiting[0].submit_s == now:
            queues[0].append(waiting.pop(0))
        fallen = [
            (j, i)
            for i, queue in enumerate(queues[:-1])
            for j in queue
            if j.share and j.ran_s * j.gpus >= limits[i] * (1 - 1e-9)
        ]
        for job, i in sorted(fallen, key=lambda x: x[0].number):
            queues[i].remove(job)
            queues[i + 1].append(job)
        free = pool
        for job in (j for q in queues for j in q):
            job.share = job.gpus if job.gpus <= free else 0
            free -= job.share
            job.end_s = now + job.left_s() if job.share else math.inf
        fall_s = math.inf
        for i, queue in enumerate(queues):
            queue.sort(key=lambda j: not j.share)
            for job in queue:
                if job.share and i < len(limits):
                    after_s = limits[i] / job.gpus
                    after_s = math.ceil(after_s) if whole_seconds else after_s
                    fall_s = min(fall_s, now + after_s - job.ran_s)
    return [j.end_s - j.submit_s for j in sorted(done, key=lambda j: j.number)]


Share = Callable[[list[PlainJob], float, int], None]


def fifo(present: list[PlainJob], now: float, pool: int) -> None:
    """Keeps running jobs and starts others by submission, skipping who does not fit."""
    free = pool - sum(j.share for j in present)
    for job in sorted(present, key=lambda j: (j.submit_s, j.number)):
        if not job.share and job.gpus <= free:
            job.share = job.gpus
            free -= job.gpus


def shortest(present: list[PlainJob], now: float, pool: int, *, by_gpus: bool = False) -> None:
    """Gives the pool to the jobs with least time (or service) left, skipping who does not fit."""
    free = pool
    for job in sorted(
        present, key=lambda j: (j.left_s() * (j.gpus if by_gpus else 1), j.submit_s, j.number)
    ):
        job.share = job.gpus if job.gpus <= free else 0
        free -= job.share


def max_min(present: list[PlainJob], now: float, pool: int) -> None:
    """Deals GPUs out one at a time: to those that run, then to the earliest submitted.

    Those that run come in the order in which they were given GPUs (`ts_scheduled` of the AFS
    program, infinite for a job without GPUs).
    """
    line = sorted(present, key=lambda j: (j.given_s, j.submit_s, j.number))
    for job in present:
        job.share = 0
    free, growing = pool, list(line)
    while free and growing:
        for job in list(growing):
            if job.share == job.max_gpus:
                growing.remove(job)
            elif free:
                job.share += 1
                free -= 1
    for job in present:
        job.given_s = min(job.given_s, now) if job.share else math.inf


def optimus(present: list[PlainJob], now: float, pool: int) -> None:
    """Gives each GPU to the job whose time left falls most by it; without any GPU it is endless."""

    def left_s(job: PlainJob, gpus: int) -> float:
        return job.left * job.seconds(gpus) if gpus else math.inf

    line = sorted(present, key=lambda j: (j.submit_s, j.number))
    for job in line:
        job.share = 0
    for _ in range(pool):
        best, most = None, 0.0
        for job in line:
            if job.share < job.max_gpus:
                drop = left_s(job, job.share) - left_s(job, job.share + 1)
                if drop > most:
                    best, most = job, drop
        if best is None:
            return
        best.share += 1


TOGETHER_S = 1e-6
"""Ends this close are one: the public durations are whole seconds, their products are not."""


def afs(
    jobs: list[PlainJob], share: Share, pool: int = 64, *, whole_seconds: bool = True
) -> list[float]:
    """Returns JCTs in one pool; by default times are rounded up to whole seconds, as theirs are."""

    def up(x: float) -> float:
        if x == math.inf:
            return x
        return math.ceil(x) if whole_seconds else round(x / TOGETHER_S) * TOGETHER_S

    wake_s: Callable[[], float] = getattr(share, "wake_s", lambda: math.inf)
    for job in jobs:
        job.left, job.share, job.given_s = job.iterations, 0, math.inf
    waiting = list(jobs)
    present: list[PlainJob] = []
    done: list[PlainJob] = []
    now = 0.0
    while waiting or present:
        arrival = up(waiting[0].submit_s) if waiting else math.inf
        end = min((j.end_s for j in present if j.share), default=math.inf)
        then = min(arrival, end, wake_s())
        for job in present:
            if job.share:
                job.left -= (then - now) / job.seconds(job.share)
        now = then
        ended = [j for j in present if j.share and j.end_s == now]
        done += ended
        present = [j for j in present if j not in ended]
        while waiting and up(waiting[0].submit_s) == now:
            present.append(waiting.pop(0))
        share(present, now, pool)
        for job in present:
            job.end_s = up(now + job.left * job.seconds(job.share)) if job.share else math.inf
    return [j.end_s - j.submit_s for j in sorted(done, key=lambda j: j.number)]


def afs_l(present: list[PlainJob], now: float, pool: int, *, tie_to_shorter: bool = False) -> None:
    """Hands GPUs out one by one, each to the winner of a tournament in list order.

    With at least as many jobs as GPUs the shortest on one GPU have one each. In an exact tie the
    longer of two wins, or the shorter if `tie_to_shorter`.
    """
    line = sorted(present, key=lambda j: (j.submit_s, j.number))
    for job in line:
        job.share = 0
    if len(line) >= pool:
        for job in sorted(line, key=lambda j: j.left * j.seconds(1))[:pool]:
            job.share = 1
        return
    for job in line:
        job.share = 1
    slack = 1e-9 if tie_to_shorter else 0.0  # so that a tie is one however it is rounded
    for _ in range(pool - len(line)):
        growing = [j for j in line if j.share < j.max_gpus]
        if not growing:
            return
        best = growing[0]
        for other in growing[1:]:
            short, long = best, other
            if other.left * other.seconds(other.share) < best.left * best.seconds(best.share):
                short, long = other, best
            # Times, not speeds: r(g)/r(g+1) is speed(g+1)/speed(g).
            mine = short.seconds(short.share) / short.seconds(short.share + 1)
            theirs = long.seconds(long.share + 1) / long.seconds(long.share)
            best = short if mine + theirs > 2 - slack * (mine - 1) else long
        best.share += 1


class AfsP:
    """Their AFS-P: those promoted least often are promoted for two hours; no lengths are used.

    While all fit, everybody has a GPU and spare ones go to whoever is better off with one by the
    inequality without lengths; where it says nothing the earlier candidate stays, or with `lots`
    either of the two, as in their program.
    """

    unit_s = 7200.0

    def __init__(self, lots: random.Random | None = None) -> None:
        self.lots = lots
        self.times: dict[int, int] = {}
        self.until_s: dict[int, float] = {}
        self.since_s: dict[int, float] = {}

    def __call__(self, present: list[PlainJob], now: float, pool: int) -> None:
        """Sets the shares."""
        line = sorted(present, key=lambda j: (j.submit_s, j.number))
        ran = [j for j in line if j.share]
        for job in line:
            self.since_s.setdefault(job.number, now)
            job.share = 0
        if len(line) <= pool:
            self.until_s = {}
            self._spread(line, pool)
            return
        if not self.until_s:
            self.until_s = {j.number: now + self.unit_s for j in ran}
        self.until_s = {j.number: self.until_s[j.number] for j in ran if j.number in self.until_s}
        for number in [n for n, end in self.until_s.items() if end <= now]:
            del self.until_s[number]
            self.times[number] = self.times.get(number, 0) + 1
            self.since_s[number] = now
        idle = [j for j in line if j.number not in self.until_s]
        idle.sort(key=lambda j: (self.times.get(j.number, 0), self.since_s[j.number], j.number))
        for job in idle[: pool - len(self.until_s)]:
            self.until_s[job.number] = now + self.unit_s
        for job in line:
            job.share = int(job.number in self.until_s)

    def wake_s(self) -> float:
        """Returns when the next promotion ends."""
        return min(self.until_s.values(), default=math.inf)

    def _spread(self, line: list[PlainJob], pool: int) -> None:
        for job in line:
            job.share = 1
        for _ in range(pool - len(line)):
            growing = [
                j
                for j in line
                if j.share < j.max_gpus and j.seconds(j.share + 1) < j.seconds(j.share)
            ]
            if not growing:
                return
            best = growing[0]
            for other in growing[1:]:
                if _gain(other) > _loss(best) * (1 + 1e-9):
                    best = other
                elif self.lots and _gain(best) < _loss(other):
                    best = self.lots.choice([best, other])
            best.share += 1


def _gain(job: PlainJob) -> float:
    """Returns what one GPU more gains the longer of two, relative to its speed with it."""
    return 1 - job.seconds(job.share + 1) / job.seconds(job.share)


def _loss(job: PlainJob) -> float:
    """Returns what it would gain the shorter, relative to its speed without it."""
    return job.seconds(job.share) / job.seconds(job.share + 1) - 1
