"""Real training loops that share a machine: pairs and triples, freely, in turns, under limits.

    python -m benchmarks.colocation                   # what was measured, as tables
    python -m benchmarks.colocation --folder runs     # measure here; --within 280: then stop
    python -m benchmarks.colocation --folder runs --profile mine.json     # join it, and print it

Five kinds of jobs, each heavy on one resource or on all, first alone and then in sets, on two cores
with a disk and a network of known rates (`colocation_machine`; root and iproute2 are needed). It
goes on where it stopped: a file for each set, and `--within` seconds at a time. It has priority over
all else on the machine, but what is beside it is better idle.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import combinations, combinations_with_replacement
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

from benchmarks.colocation_machine import (
    COMPUTE_CORE,
    DISK_BYTES_PER_S,
    HOST_CORE,
    LINK,
    LOOPS_FIRST,
    QUANTUM_MS,
    Disk,
    Machine,
    come_first,
    machine,
    why_not,
)
from benchmarks.colocation_profile import (
    ALONE,
    FREE,
    LIMIT,
    LOCK_STEP,
    ONE_AFTER_THE_OTHER,
    TOKENS,
    Profile,
    joined,
    read_profile,
    tables,
)
from benchmarks.colocation_turns import RESOURCES, LockStep, Tokens
from benchmarks.colocation_worker import (
    AHEAD_MAX,
    SPREAD,
    STAGES,
    Kind,
    Part,
    Shared,
    Told,
    loader,
    peer,
    trainer,
)
from dovetail.algorithms.stage_cycle import barrier_s, orderings

KINDS = {
    kind.name: kind
    for kind in (
        Kind("disk", chunks=15, images=3, layers=1, steps=12),
        Kind("cpu", chunks=2, images=14, layers=1, steps=12),
        Kind("compute", chunks=2, images=3, layers=1, steps=44),
        Kind("reduction", chunks=2, images=3, layers=8, steps=1),
        Kind("balanced", chunks=6, images=6, layers=3, steps=9),
    )
}
LIMITS = (0.25, 0.5, 0.75)
MEMBERS_MAX = 3
SHIPPED = Path(__file__).with_name("colocation.json")
TURN_COSTS = "turns.json"
LEAD_S = 0.1
"""Between the order and the start of a cell."""
SETTLE_S = 2.0
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Way:
    """How a set uses its resources. Of a limit: the member whose compute it bounds."""

    name: str
    limited: int = -1
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Member:
    """What one member did: iterations a second, and seconds of each stage of an iteration.

    `cores` are core seconds a second of loader, trainer's main thread, its others, and peer.
    """

    rate_per_s: float
    iterations: int
    used_s: tuple[float, ...]
    waited_s: tuple[float, ...]
    cores: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement of a set."""

    way: Way
    repetition: int
    offsets: tuple[int, ...]
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class JobSet:
    """Kinds of jobs side by side, whose loaders work ahead by so many batches."""

    kinds: tuple[str, ...]
    ahead: int

    @property
    def file_name(self) -> str:
        return f"{'-'.join(self.kinds)}-ahead{self.ahead}.json"

    def ways(self) -> Iterator[Way]:
        """Yields all ways to use the resources."""
        # Without work ahead, one limit shows enough.
        limits = LIMITS if self.ahead else LIMITS[1:2]
        if len(self.kinds) == 1:
            yield Way(ALONE)
            yield from (Way(LIMIT, 0, share) for share in limits)
            return
        yield from (Way(name) for name in (FREE, TOKENS, LOCK_STEP))
        if len(self.kinds) == 2:
            if not self.ahead:
                yield Way(ONE_AFTER_THE_OTHER)
            # Twins are the same whichever is limited.
            for member in range(len(set(self.kinds))):
                yield from (Way(LIMIT, member, share) for share in limits)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a cell is measured, after a warm-up."""

    warm_s: float
    measured_s: float


def job_sets() -> Iterator[JobSet]:
    """Yields all sets in the order in which they are measured: those alone first."""
    for ahead in (0, AHEAD_MAX):
        yield from (JobSet((name,), ahead) for name in KINDS)
        yield from (JobSet(pair, ahead) for pair in combinations_with_replacement(KINDS, 2))
    yield from (JobSet(three, 0) for three in combinations(KINDS, 3))


# Processes.


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
                connection.send(None)
        for process in self._processes:
            process.join(PATIENCE_S)
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


def mean(seconds: Sequence[float]) -> float:
    """Returns the mean to the microsecond, 0 of nothing."""
    return round(statistics.fmean(seconds), 6) if seconds else 0.0


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


# The matrix.


def measured(folder: Path, job_set: JobSet) -> list[Cell]:
    """Returns what was measured of a set so far."""
    path = folder / job_set.file_name
    if not path.exists():
        return []
    return [cell_of(entry) for entry in json.loads(path.read_text())["cells"]]


def cell_of(entry: dict) -> Cell:  # type: ignore[type-arg]
    members = tuple(
        Member(
            each["rate_per_s"],
            each["iterations"],
            tuple(each["used_s"]),
            tuple(each["waited_s"]),
            tuple(each["cores"]),
        )
        for each in entry["members"]
    )
    way = Way(**entry["way"])
    return Cell(way, entry["repetition"], tuple(entry["offsets"]), members)


def keep(folder: Path, job_set: JobSet, cells: Sequence[Cell]) -> None:
    """Replaces the file of a set."""
    text = json.dumps({**asdict(job_set), "cells": [asdict(cell) for cell in cells]}, indent=1)
    fresh = folder / f"{job_set.file_name}.new"
    fresh.write_text(text + "\n")
    fresh.replace(folder / job_set.file_name)


def offsets_of(folder: Path, job_set: JobSet) -> tuple[int, ...]:
    """Returns the offsets of the shortest cycle by Muri's equation 3, from the stages alone."""
    rows = []
    for name in job_set.kinds:
        alone = [c for c in measured(folder, JobSet((name,), 0)) if c.way == Way(ALONE)]
        if not alone:
            return tuple(range(len(job_set.kinds)))
        rows.append(alone[0].members[0].used_s)
    return min(orderings(len(rows), RESOURCES), key=lambda offsets: barrier_s(rows, offsets))


Planned = tuple[int, JobSet, Way]
"""A cell to be measured, and which repetition it is."""


def planned(sets: Sequence[JobSet], repetitions: int) -> Iterator[Planned]:
    """Yields all cells in order. Limits take half of the time, and are in every second repetition.

    All others are compared with the jobs alone, which are therefore measured before each block.
    """
    blocks = [(n, False) for n in range(repetitions)] + [
        (n, True) for n in range(0, repetitions, 2)
    ]
    for number, (repetition, limited) in enumerate(sorted(blocks)):
        yield from ((number, each, Way(ALONE)) for each in sets if len(each.kinds) == 1)
        for each in sets:
            for way in each.ways():
                if way.name != ALONE and (way.limited >= 0) == limited:
                    yield repetition, each, way


def missing(folder: Path, cells: Iterable[Planned]) -> Iterator[Planned]:
    """Yields the cells that are not measured yet."""
    for repetition, job_set, way in cells:
        known = measured(folder, job_set)
        if not any((c.way, c.repetition) == (way, repetition) for c in known):
            yield repetition, job_set, way


def measure(folder: Path, cells: Iterable[Planned], pace: Pace, within_s: float) -> int:
    """Measures what is missing, as long as there is time; returns how many cells are left."""
    ends_s = time.monotonic() + within_s
    todo = list(missing(folder, cells))
    if not todo:
        return 0
    members = max(len(job_set.kinds) for _, job_set, _ in todo)
    if not (folder / TURN_COSTS).exists():
        (folder / TURN_COSTS).write_text(json.dumps(turn_costs()) + "\n")
    with machine(folder) as here, crew_of(here, members) as crew:
        for done, (repetition, job_set, way) in enumerate(todo):
            if time.monotonic() > ends_s:
                return len(todo) - done
            offsets = offsets_of(folder, job_set)
            told = tuple(crew.play(job_set, way, offsets, pace))
            cell = Cell(way, repetition, offsets, told)
            keep(folder, job_set, [*measured(folder, job_set), cell])
    return 0


def profile_of(folder: Path) -> Profile:
    """Joins the files of all sets."""
    where = {
        "disk_bytes_per_s": DISK_BYTES_PER_S,
        "link": LINK,
        "quantum_ms": QUANTUM_MS,
        "spread": SPREAD,
        "kinds": [asdict(kind) for kind in KINDS.values()],
        "stages": STAGES,
        "turns": json.loads((folder / TURN_COSTS).read_text()),
        "command": "python -m benchmarks.colocation --folder runs",
    }
    return joined(folder, [each.file_name for each in job_sets()], where)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="of what is measured")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.6, help="measured of each cell")
    parser.add_argument("--warm", type=float, default=0.4, help="seconds before")
    parser.add_argument("--within", type=float, default=3600.0, help="seconds, then stop")
    parser.add_argument("--only", default="", help="sets whose file names contain this")
    parser.add_argument("--profile", type=Path, help="measure nothing: join the folder into it")
    options = parser.parse_args(words)
    if options.folder is None:
        print("\n".join(tables(read_profile(options.profile or SHIPPED))))
        return
    if options.profile:
        profile = profile_of(options.folder)
        options.profile.write_text(profile.text())
        print("\n".join(tables(profile)))
        return
    if why := why_not():
        raise SystemExit(f"no measurement here: {why}")
    options.folder.mkdir(parents=True, exist_ok=True)
    sets = [each for each in job_sets() if options.only in each.file_name]
    pace = Pace(options.warm, options.seconds)
    cells = planned(sets, options.repetitions)
    left = measure(options.folder, cells, pace, options.within)
    print(f"{left} cells are left")


if __name__ == "__main__":
    main()
