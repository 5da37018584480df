"""The processes of a co-located set, which play one cell after the other, and what a turn costs."""

from __future__ import annotations

import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.queues import SimpleQueue
from typing import Any

from benchmarks.colocation_machine import (
    COMPUTE_CORE,
    HOST_CORE,
    LOOPS_FIRST,
    Disk,
    Machine,
    come_first,
)
from benchmarks.colocation_profile import FREE, LOCK_STEP, ONE_AFTER_THE_OTHER, TOKENS
from benchmarks.colocation_sets import KINDS, JobSet, Member, Way, mean
from benchmarks.colocation_turns import RESOURCES, LockStep, Tokens
from benchmarks.colocation_worker import Part, Shared, Told, loader, peer, trainer

LEAD_S = 0.1
"""Between the order and the start of a cell."""
SETTLE_S = 2.0
PATIENCE_S, ENDS_WITHIN_S = 120.0, 10.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a cell is measured, after a warm-up."""

    warm_s: float
    measured_s: float


class Crew:
    """The processes of so many members, which play one cell after the other."""

    def __init__(self, machine: Machine, members: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._machine = machine
        self._steps, tokens = LockStep(context, members), Tokens(context, members)
        disk = Disk(context)
        self.shared = [Shared(context, n, disk, tokens, self._steps) for n in range(members)]
        self._orders: list[list[Connection]] = []
        self._processes: list[BaseProcess] = []
        self._threads: list[list[int]] = []
        for shared in self.shared:
            here = [context.Pipe() for _ in (loader, trainer, peer)]
            for body, (_, theirs) in zip((loader, trainer, peer), here, strict=True):
                self._processes.append(
                    context.Process(target=body, args=(shared, machine, theirs), daemon=True)
                )
            self._orders.append([ours for ours, _ in here])

    def start(self) -> None:
        for process in self._processes:
            process.start()
        for orders in self._orders:
            self._threads.append([heard(connection) for connection in orders])
        # The first iterations of a process connect, and fill its caches.
        everybody = JobSet(("balanced",) * len(self.shared), 0)
        self.play(everybody, Way(FREE), range(len(self.shared)), Pace(0.0, SETTLE_S))

    def close(self) -> None:
        for orders in self._orders:
            for connection in orders:
                with suppress(BrokenPipeError):  # it has died
                    connection.send(None)
        for process in self._processes:
            process.join(ENDS_WITHIN_S)
            process.kill()
            process.join()

    def _limited(self, way: Way) -> AbstractContextManager[None]:
        if way.limited < 0:
            return nullcontext()
        _, trainer, _ = self._threads[way.limited]
        return self._machine.limit(trainer, way.share)

    def play(self, job_set: JobSet, way: Way, offsets: Sequence[int], pace: Pace) -> list[Member]:
        """Returns what the members did in one cell."""
        members = range(len(job_set.kinds))
        parts = list(parts_of(job_set, way, offsets, pace))
        self._steps.begin(len(parts), parts[0].until_s)
        with self._limited(way):
            for member in members:
                self.shared[member].begin(parts[member].ahead)
                for connection in self._orders[member]:
                    connection.send(parts[member])
            told: list[list[Told]] = [[heard(c) for c in self._orders[n]] for n in members]
        window_s = pace.measured_s if way.name == ONE_AFTER_THE_OTHER else None
        return [member_of(*each, window_s=window_s) for each in told]


def heard(connection: Connection) -> Any:
    """Returns what a process says. Raises TimeoutError if it says nothing, EOFError if it died."""
    if not connection.poll(PATIENCE_S):
        raise TimeoutError("a process of a member does not answer")
    return connection.recv()


def parts_of(job_set: JobSet, way: Way, offsets: Sequence[int], pace: Pace) -> Iterator[Part]:
    """Yields what each member does in a cell that starts soon."""
    turns = way.name if way.name in (TOKENS, LOCK_STEP) else FREE
    starts_s = time.monotonic() + LEAD_S
    # A member in lock step uses one resource at a time, so nothing is ready ahead.
    ahead = 0 if turns == LOCK_STEP else job_set.ahead
    for number, name in enumerate(job_set.kinds):
        from_s = starts_s + pace.warm_s
        idle = -offsets[number] % RESOURCES if turns == LOCK_STEP else 0
        part = Part(KINDS[name], turns, ahead, idle, starts_s, from_s, from_s + pace.measured_s)
        if way.name == ONE_AFTER_THE_OTHER:
            turn_s = pace.measured_s / len(job_set.kinds)
            begins_s = starts_s + number * turn_s
            part = replace(part, start_s=begins_s, from_s=begins_s, until_s=begins_s + turn_s)
        yield part


def member_of(load: Told, train: Told, peer: Told, *, window_s: float | None) -> Member:
    """Returns the figures of a member; its rate is over the window, else between iterations."""
    ends_s = train.ends_s
    if window_s is not None:
        rate_per_s = len(ends_s) / window_s
    elif len(ends_s) < 2:
        rate_per_s = 0.0
    else:
        rate_per_s = (len(ends_s) - 1) / (ends_s[-1] - ends_s[0])
    used_s, waited_s = load.used_s | train.used_s, load.waited_s | train.waited_s
    counted_s = ends_s[-1] - ends_s[0] if len(ends_s) > 1 else 1.0
    core_s = (load.core_s, train.main_s, train.core_s - train.main_s, peer.core_s)
    return Member(
        round(rate_per_s, 4),
        len(ends_s),
        tuple(mean(used_s.get(stage, [])) for stage in range(RESOURCES)),
        tuple(mean(waited_s.get(stage, [])) for stage in range(RESOURCES)),
        tuple(round(each / counted_s, 4) for each in core_s),
    )


@contextmanager
def crew_of(machine: Machine, members: int) -> Iterator[Crew]:
    crew = Crew(machine, members)
    try:
        crew.start()
        yield crew
    finally:
        crew.close()


# What a turn costs.

ROUNDS = 20_000


def turn_costs() -> dict[str, float]:
    """Returns microseconds of a token that nobody else wants, and of one that two hand over."""
    context = multiprocessing.get_context("spawn")
    alone, pair, steps = Tokens(context, 1), Tokens(context, 2), LockStep(context, 2)
    began_s = time.perf_counter()
    for _ in range(ROUNDS):
        alone.take(0, 0)
        alone.give(0, 0)
    free_us = (time.perf_counter() - began_s) / ROUNDS * 1e6
    steps.begin(2, math.inf)
    answers = context.SimpleQueue()
    processes = [
        context.Process(target=hand_over, args=(pair, steps, member, answers), daemon=True)
        for member in range(2)
    ]
    for process in processes:
        process.start()
    told = [answers.get() for _ in processes]
    for process in processes:
        process.join(PATIENCE_S)
    wanted_us, phase_us = (statistics.fmean(each) for each in zip(*told, strict=True))
    costs = {"token_us": free_us, "token_handed_over_us": wanted_us, "phase_us": phase_us}
    return {name: round(us, 1) for name, us in costs.items()}


def hand_over(
    tokens: Tokens, steps: LockStep, member: int, answers: SimpleQueue[tuple[float, float]]
) -> None:
    """Measures, on a core of its own as loaders and trainers are, with another that does so."""
    os.sched_setaffinity(0, {(HOST_CORE, COMPUTE_CORE)[member]})
    come_first(LOOPS_FIRST)
    steps.give(0, member)
    began_s = time.perf_counter()
    for _ in range(ROUNDS):
        tokens.take(0, member)
        tokens.give(0, member)
    steps.give(0, member)
    middle_s = time.perf_counter()
    for _ in range(ROUNDS):
        steps.give(0, member)
    ended_s = time.perf_counter()
    # In a round of one the token goes to the other and back.
    answers.put(((middle_s - began_s) / ROUNDS / 2 * 1e6, (ended_s - middle_s) / ROUNDS * 1e6))
