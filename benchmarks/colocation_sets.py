"""Which sets of jobs are measured, in which ways, and the file of what was measured of each."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, combinations_with_replacement
from pathlib import Path

from benchmarks.colocation_profile import (
    ALONE,
    FREE,
    LIMIT,
    LOCK_STEP,
    ONE_AFTER_THE_OTHER,
    TOKENS,
)
from benchmarks.colocation_worker import AHEAD_MAX, Kind

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


def job_sets() -> Iterator[JobSet]:
    """Yields all sets in the order in which they are measured: those alone first."""
    for ahead in (0, AHEAD_MAX):
        yield from (JobSet((name,), ahead) for name in KINDS)
        yield from (JobSet(pair, ahead) for pair in combinations_with_replacement(KINDS, 2))
    yield from (JobSet(three, 0) for three in combinations(KINDS, 3))


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


def mean(seconds: Sequence[float]) -> float:
    """Returns the mean to the microsecond, 0 of nothing."""
    return round(statistics.fmean(seconds), 6) if seconds else 0.0
