"""How long one iteration of jobs takes that take turns on the resources (Muri section 4.1).

A row is a job: its seconds on each resource in stage order. A job with offset o uses resource
(o + j) mod k in phase j; distinct offsets keep two jobs off one resource.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import permutations

BARRIER, OVERLAPPED = "barrier", "overlapped"
CYCLES = (BARRIER, OVERLAPPED)
Row = Sequence[float]

SLOTS = 4
"""Members an interleave set of Muri's artifact has room for."""
SETTLED = 1e-3
"""Relative difference at which the artifact takes its recurrence to have settled."""


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
    """Returns the cycle that Muri's artifact computes: stages start when the one before is done.

    All before the last two resources is loading, which spans two slots. Members are taken in the
    order of their offsets; two that lie two slots apart meet in two phases.
    """
    order = sorted(range(len(rows)), key=lambda i: offsets[i])
    jobs = [(sum(rows[i][:-2]), rows[i][-2], rows[i][-1]) for i in order]
    if len(jobs) == 1:
        return sum(jobs[0])
    if len(jobs) == 2 and (offsets[order[1]] - offsets[order[0]]) % SLOTS == 2:
        (load_a, gpu_a, net_a), (load_b, gpu_b, net_b) = jobs
        return max(load_a, gpu_b + net_b) + max(load_b, gpu_a + net_a)
    return _settled_s(jobs)


def _settled_s(jobs: Sequence[tuple[float, float, float]]) -> float:
    """Returns the period of the artifact's recurrence over two rounds of its four slots."""
    done = [0.0]
    members = len(jobs)
    for i in range(2 * SLOTS):
        net, gpu, load = ((i + step) % SLOTS for step in (1, 2, 3))
        ends = [0.0]
        if net < members:
            ends.append(done[i] + jobs[net][2])
        if gpu < members:
            ends.append(done[i] + jobs[gpu][1])
        if load < members and i > 0:
            ends.append(done[i - 1] + jobs[load][0])
        done.append(max(ends))
        if i >= SLOTS:
            now, before = done[i + 1] - done[i - 3], done[i] - done[i - 4]
            if abs(now - before) <= SETTLED * before:
                return now
    return done[2 * SLOTS] - done[SLOTS]


@lru_cache(maxsize=64)
def orderings(members: int, resources: int, cycle: str = BARRIER) -> tuple[tuple[int, ...], ...]:
    """Returns the offsets worth trying: all distinct ones with the first member at offset 0.

    Rotating all offsets changes nothing, so these are all (k-1)!/(k-p)! (FIX-11). The overlapped
    rule knows orders of consecutive slots, and two members two slots apart.
    """
    if members > (SLOTS if cycle == OVERLAPPED else resources):
        raise ValueError(f"{members} jobs cannot take turns on {resources} resources")
    return tuple(_orderings(members, resources, cycle))


def _orderings(members: int, resources: int, cycle: str) -> Iterator[tuple[int, ...]]:
    if cycle == OVERLAPPED:
        yield from permutations(range(members))
        if members == 2:
            yield (0, 2)
        return
    for rest in permutations(range(1, resources), members - 1):
        yield (0, *rest)


def best_ordering(rows: Sequence[Row], cycle: str = BARRIER) -> tuple[float, tuple[int, ...]]:
    """Returns the shortest cycle over all orderings, and the first ordering that has it."""
    tried = orderings(len(rows), len(rows[0]), cycle)
    return min((cycle_s(rows, offsets, cycle), offsets) for offsets in tried)


def efficiency(rows: Sequence[Row], cycle_of_set_s: float) -> float:
    """Returns gamma: the mean over resources of the share of the cycle it is busy (equation 4)."""
    if cycle_of_set_s <= 0:
        return 0.0
    return sum(map(sum, rows)) / (len(rows[0]) * cycle_of_set_s)
