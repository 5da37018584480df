"""Pollux: GPUs and batches together, re-optimised every minute for the goodput of all jobs.

Each round a genetic search allocates whole GPUs on nodes to the jobs. A job's speedup is its best
goodput over any batch on what it gets, over that on its fair share of the cluster; the search
maximises the weighted power mean of the speedups with p = -1, in which a job whose GPUs change
counts for less, by `(T - R * d) / (T + d)` with age T, restarts R and restart time d. Two jobs that
are each spread over nodes never share a node, and a job gets at most `growth` times its largest
number of GPUs so far. Rounds come at multiples of `interval`; between them nothing is decided.

Source: Qiao et al., OSDI 2021, sections 3 and 4.2, and AdaptDL's simulator of it; ALGORITHMS
section 6. Knows: scaling and attained service, no lengths.
Stops running jobs: yes; it moves and resizes elastic ones and chooses their batches, while a rigid
job runs as requested or waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dovetail.core.beliefs import BestBatches
from dovetail.core.job import Floats, Ints
from dovetail.core.order import Order
from dovetail.core.parameters import check_period, check_seed
from dovetail.core.passes import NO_ROOM
from dovetail.core.policy import Decision, register
from dovetail.core.units import NEVER_S
from dovetail.core.view import View
from dovetail.mechanisms.elastic.allocation import drafted, room_for
from dovetail.mechanisms.elastic.rounds import TINY, JobAge, lived, round_at
from dovetail.mechanisms.elastic.shares import waits

if TYPE_CHECKING:
    from dovetail.algorithms.pollux_search import Contest

SEEDS_APART = 1_000_003
"""Distance between the search seeds of consecutive rounds; other seeds lie between."""


@dataclass(frozen=True, slots=True)
class Past:
    """The last round: its time, jobs and population; and the histories of all jobs."""

    rounds: int = 0
    at_s: float = -NEVER_S
    jobs: tuple[int, ...] = ()
    population: bytes = b""
    lives: tuple[JobAge, ...] = ()

    def by_job(self) -> dict[int, JobAge]:
        """Returns the histories by job."""
        return {life.job: life for life in self.lives}


@register("pollux")
@dataclass(frozen=True, slots=True)
class Pollux:
    """Goodput-optimal shares and batches by a seeded genetic search; preemptive.

    `interval` and `restart` are in seconds; a job with a price of its own has that in place of
    `restart`. A job that has used more than `threshold` GPU-hours weighs
    `(threshold / used) ** decay`; with `decay` 0 all weigh alike, as in the simulator.
    """

    interval: float = 60.0
    population: int = 100
    generations: int = 100
    restart: float = 30.0
    growth: int = 2
    threshold: float = 4.0
    decay: float = 0.5
    seed: int = 0

    knows: ClassVar[frozenset[str]] = frozenset({"attained service", "scaling"})
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate", "resize", "change batch"})
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[Past] = Past()

    def __post_init__(self) -> None:
        check_period("interval", self.interval)
        check_seed(self.seed)
        if not (0 <= self.restart < NEVER_S and self.threshold > 0):
            raise ValueError("restart is a number of seconds, threshold must be above 0")
        if self.population < 2 or self.generations < 1 or self.growth < 1:
            raise ValueError("the search needs a population of 2 and a generation, growth 1")
        if not 0 <= self.decay < NEVER_S:
            raise ValueError("decay must be 0 or more")

    def decide(self, view: View, memory: object) -> Decision:
        """Searches at multiples of the interval, otherwise waits for the next one."""
        past = memory if isinstance(memory, Past) else self.initial
        if not view.running and not view.waiting:
            return Decision(memory=past)
        due, next_s = round_at(view, self.interval, past.at_s)
        if not due:
            return Decision(memory=past, wake_at=next_s, because=NO_ROOM if view.waiting else ())
        return self._round(view, past, next_s)

    def _round(self, view: View, past: Past, next_s: float) -> Decision:
        from dovetail.algorithms.pollux_search import search

        jobs = _contestants(view)
        done_s = view.progress.done_s(jobs)
        gpus = view.cluster.gpus
        tables = [
            view.physics.speed.best_batches(j, s, gpus) for j, s in zip(jobs, done_s, strict=True)
        ]
        contest = self._contest(view, past, jobs, tables)
        chosen, population = search(
            contest,
            _adapted(past, jobs, contest.held.shape[1]),
            size=self.population,
            generations=self.generations,
            seed=self.seed + SEEDS_APART * past.rounds,
        )
        draft = drafted(view, jobs, tables, contest.held, chosen)
        survivors = population.astype(np.int16).tobytes()
        lives = lived(view, past.by_job(), draft)
        past = Past(past.rounds + 1, view.now, tuple(jobs), survivors, lives)
        return Decision(draft, past, next_s, waits(view, draft))

    def _contest(
        self, view: View, past: Past, jobs: list[int], tables: list[BestBatches]
    ) -> Contest:
        from dovetail.algorithms.pollux_search import Contest

        held, limit, capacity = room_for(view, jobs)
        requested = view.jobs.gpus[jobs]
        running = held.sum(axis=1) > 0
        lives = past.by_job()
        reach = [self.growth * lives[j].most_gpus if j in lives else 1 for j in jobs]
        low, most = view.jobs.min_gpus[jobs], view.jobs.max_gpus[jobs]
        high = np.minimum(np.maximum(reach, low), most)
        restarts = np.array([lives[j].restarts if j in lives else 0 for j in jobs])
        age = view.now - view.jobs.submit_s[jobs]
        price_s = view.jobs.restart_s[jobs]
        price_s = np.where(price_s > 0, price_s, self.restart)
        hours = np.maximum(np.array(view.progress.attained_gpu_s(jobs)) / 3600, TINY)
        fair = max(1, ceil(view.cluster.gpus / (len(view.running) + len(view.waiting))))
        return Contest(
            speedup=_speedups(tables, fair, ceil(fair / max(view.cluster.capacity))),
            held=held,
            limit=limit,
            capacity=capacity,
            low=np.where(view.jobs.elastic[jobs], low, requested),
            high=np.where(view.jobs.elastic[jobs], high, requested),
            pinned=running & ~view.preemptible[jobs],
            kept=np.maximum((age - restarts * price_s) / (age + price_s + TINY), TINY),
            weight=np.minimum(1.0, self.threshold / hours) ** self.decay,
        )


def _contestants(view: View) -> list[int]:
    """Returns the jobs in order of precedence: those that may not be stopped, then by service.

    At most as many waiting jobs as there are GPUs: no round can start more.
    """
    attained = view.progress.attained_gpu_s
    running, waiting = list(view.running), list(view.waiting)
    queue = sorted(zip(attained(waiting), waiting, strict=True))[: view.cluster.gpus]
    entries = [*zip(attained(running), running, strict=True), *queue]
    settled = {j for j in running if not view.preemptible[j]}
    return [j for _, j in sorted(entries, key=lambda e: (e[1] not in settled, *e))]


def _speedups(tables: list[BestBatches], fair: int, fair_nodes: int) -> Floats:
    """Returns the speedup of each job by nodes and GPUs, over its fair share well placed."""
    rows = max(len(t.speed) for t in tables)
    speedup = np.zeros((len(tables), rows, tables[0].speed.shape[1]))
    for job, table in enumerate(tables):
        last = len(table.speed) - 1
        base = table.speed[min(fair_nodes, last), fair] or table.speed.max()
        speedup[job] = table.speed[np.minimum(np.arange(rows), last)] / base
    return speedup


def _adapted(past: Past, jobs: list[int], nodes: int) -> Ints:
    """Returns the last population for the jobs of this round; new jobs have no GPUs."""
    if not past.jobs or len(past.population) % (2 * len(past.jobs) * nodes):
        return np.zeros((0, len(jobs), nodes), np.int64)
    before = np.frombuffer(past.population, np.int16).reshape(-1, len(past.jobs), nodes)
    row_of = {job: row for row, job in enumerate(past.jobs)}
    adapted = np.zeros((len(before), len(jobs), nodes), np.int64)
    for row, job in enumerate(jobs):
        if job in row_of:
            adapted[:, row] = before[:, row_of[job]]
    return adapted
