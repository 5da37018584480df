"""The time of one iteration of jobs that take turns on resources (Muri section 4.1).

A row is a job: its seconds on each resource in stage order. A job with offset o uses resource
(o + j) mod k in phase j; with distinct offsets no two jobs use one resource at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import permutations

import numpy as np

from dovetail.algorithms.arrays import Floats, Ints

BARRIER, OVERLAPPED = "barrier", "overlapped"
CYCLES = (BARRIER, OVERLAPPED)
Row = Sequence[float]
Stages = tuple[float, float, float]
"""Seconds of loading, on the GPU and on the network."""

SLOTS = 4
"""The most members of an interleave set in Muri's artifact."""
SETTLED = 1e-3
"""Relative difference below which the artifact regards its recurrence as settled."""


def cycle_s(rows: Sequence[Row], offsets: Sequence[int], cycle: str = BARRIER) -> float:
    """Returns the seconds in which each of the jobs makes one iteration, by the named rule."""
    if cycle == OVERLAPPED:
        return overlapped_s(rows, offsets)
    return barrier_s(rows, offsets)


def barrier_s(rows: Sequence[Row], offsets: Sequence[int]) -> float:
    """Returns the cycle in which a barrier ends each phase (equation 3)."""
    resources = len(rows[0])
    return sum(
        max(row[(o + j) % resources] for row, o in zip(rows, offsets, strict=True))
        for j in range(resources)
    )


def overlapped_s(rows: Sequence[Row], offsets: Sequence[int]) -> float:
    """Returns the cycle of Muri's artifact: a stage starts when the one before is done.

    All resources but the last two count as loading, which spans two slots. Offsets are slots; free
    slots stay empty. Members of consecutive slots give the artifact's recurrence, two members two
    slots apart its extra case for pairs.
    """
    if len(rows) == 1:
        return sum(rows[0])
    slots: list[Stages | None] = [None] * SLOTS
    for row, offset in zip(rows, offsets, strict=True):
        slots[offset % SLOTS] = (sum(row[:-2]), row[-2], row[-1])
    return _settled_s(slots)


def _settled_s(slots: Sequence[Stages | None]) -> float:
    """Returns the period of the artifact's recurrence over two rounds of its four slots."""
    finish = [0.0]
    for i in range(2 * SLOTS):
        net, gpu, load = (slots[(i + step) % SLOTS] for step in (1, 2, 3))
        ends = [0.0]
        if net is not None:
            ends.append(finish[i] + net[2])
        if gpu is not None:
            ends.append(finish[i] + gpu[1])
        if load is not None and i > 0:
            ends.append(finish[i - 1] + load[0])
        finish.append(max(ends))
        if i >= SLOTS:
            now, before = finish[i + 1] - finish[i - 3], finish[i] - finish[i - 4]
            if abs(now - before) <= SETTLED * before:
                return now
    return finish[2 * SLOTS] - finish[SLOTS]


@lru_cache(maxsize=64)
def orderings(
    members: int, resources: int, cycle: str = BARRIER, *, consecutive: bool = False
) -> tuple[tuple[int, ...], ...]:
    """Returns the offsets to try: all distinct ones with the first member at offset 0.

    Rotating all offsets changes nothing, so these are all (k-1)!/(k-p)! (FIX-11). With
    `consecutive` offsets are positions in a list, as equation 3 has it. The overlapped rule
    knows orders of consecutive slots, and two members two slots apart.
    """
    if not 1 <= members <= (SLOTS if cycle == OVERLAPPED else resources):
        raise ValueError(f"{members} jobs cannot take turns on {resources} resources")
    return tuple(_orderings(members, resources, cycle, consecutive))


def _orderings(
    members: int, resources: int, cycle: str, consecutive: bool
) -> Iterator[tuple[int, ...]]:
    if consecutive or cycle == OVERLAPPED:
        yield from permutations(range(members))
        if members == 2 and not consecutive:
            yield (0, 2)
        return
    for rest in permutations(range(1, resources), members - 1):
        yield (0, *rest)


def cycles(stage_s: Floats, sets: Ints, offsets: Sequence[int], cycle: str = BARRIER) -> Floats:
    """Returns `cycle_s` of each of many sets whose members sit at the same offsets."""
    if cycle == OVERLAPPED:
        return _overlapped_cycles(stage_s, sets, offsets)
    resources = stage_s.shape[1]
    total = np.zeros(len(sets))
    for phase in range(resources):
        longest = np.zeros(len(sets))
        for member, offset in enumerate(offsets):
            used_s = stage_s[:, (offset + phase) % resources]
            np.maximum(longest, used_s[sets[:, member]], out=longest)
        total += longest
    return total


def _overlapped_cycles(stage_s: Floats, sets: Ints, offsets: Sequence[int]) -> Floats:
    if sets.shape[1] == 1:
        return np.asarray(stage_s.sum(axis=1)[sets[:, 0]])
    columns = stage_s[:, :-2].sum(axis=1), stage_s[:, -2], stage_s[:, -1]
    load_s, gpu_s, net_s = ([c[sets[:, m]] for m in range(sets.shape[1])] for c in columns)
    member = {offset % SLOTS: m for m, offset in enumerate(offsets)}
    finish = [np.zeros(len(sets))]
    for i in range(2 * SLOTS):
        net, gpu, load = (member.get((i + step) % SLOTS) for step in (1, 2, 3))
        end = np.zeros(len(sets))
        if net is not None:
            end = np.maximum(end, finish[i] + net_s[net])
        if gpu is not None:
            end = np.maximum(end, finish[i] + gpu_s[gpu])
        if load is not None and i > 0:
            end = np.maximum(end, finish[i - 1] + load_s[load])
        finish.append(end)
    answer = finish[2 * SLOTS] - finish[SLOTS]
    # Backwards, so that the first step at which a set has settled decides.
    for i in reversed(range(SLOTS, 2 * SLOTS)):
        now, before = finish[i + 1] - finish[i - 3], finish[i] - finish[i - 4]
        answer = np.where(np.abs(now - before) <= SETTLED * before, now, answer)
    return np.asarray(answer)
