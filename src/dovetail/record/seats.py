"""Assigns GPU ids to stays without ids, deterministically, for timelines.

An exclusive placement has a number of GPUs per node but no ids. Each stay gets the lowest free ids
at its start; a job that continues without a gap keeps its ids.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import groupby

import polars as pl

Stay = tuple[float, int, float, str, int, list[int] | None]
"""start_s, row, end_s, job_id, gpus, gpu_ids"""


def seats(spans: pl.DataFrame, sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Returns the GPU ids of every row of `spans`.

    `sizes` are the GPUs of each node; a node beyond it has as many as needed. For jobs that share
    GPUs without ids, the GPU with the fewest jobs is chosen.
    """
    taken: list[tuple[int, ...]] = [()] * len(spans)
    stays: dict[int, list[Stay]] = {}
    columns = ("node", "start_s", "end_s", "job_id", "gpus", "gpu_ids")
    for row, (node, start, end, job, gpus, ids) in enumerate(spans.select(columns).iter_rows()):
        stays.setdefault(node, []).append((start, row, end, job, gpus, ids))
    for node in sorted(stays):
        size = sizes[node] if node < len(sizes) else None
        _seat_node(_Node(size), sorted(stays[node], key=lambda s: (s[0], s[1])), taken)
    return taken


def _seat_node(node: _Node, stays: list[Stay], taken: list[tuple[int, ...]]) -> None:
    leaving: list[tuple[float, int, str]] = []
    for now, group in groupby(stays, key=lambda s: s[0]):
        before: dict[str, tuple[int, ...]] = {}
        while leaving and leaving[0][0] <= now:
            end, row, job = heapq.heappop(leaving)
            node.leave(taken[row])
            if end == now:
                before[job] = taken[row]
        # Stays with GPU ids first, then jobs that go on where they were, then the others in order.
        for stay in sorted(group, key=lambda s: (s[5] is None, s[3] not in before, s[1])):
            _, row, end, job, gpus, ids = stay
            wish = before.get(job, ()) if ids is None else ids
            taken[row] = node.sit(
                wish, len(ids) if ids is not None else gpus, named=ids is not None
            )
            heapq.heappush(leaving, (end, row, job))


class _Node:
    """Counts the jobs on each GPU of a node while its stays are processed in order of time."""

    def __init__(self, size: int | None) -> None:
        self.grows = size is None
        self.holders = [0] * (size or 0)
        self.free = list(range(size or 0))

    def sit(self, wish: Sequence[int], gpus: int, *, named: bool) -> tuple[int, ...]:
        """Takes the preferred ids (if `named` or still free), then the lowest free ones."""
        self._reach(max(wish, default=-1) + 1)
        chosen = [i for i in wish if named or not self.holders[i]][:gpus]
        for i in chosen:
            self.holders[i] += 1
        while len(chosen) < gpus:
            seat = self._next(chosen)
            self.holders[seat] += 1
            chosen.append(seat)
        return tuple(sorted(chosen))

    def leave(self, ids: Sequence[int]) -> None:
        """Frees the ids of a stay that ended."""
        for i in ids:
            self.holders[i] -= 1
            if not self.holders[i]:
                heapq.heappush(self.free, i)

    def _next(self, chosen: list[int]) -> int:
        while self.free:
            seat = heapq.heappop(self.free)
            # The heap may hold a seat twice, or one that a wish took in the meantime.
            if not self.holders[seat]:
                return seat
        others = [i for i in range(len(self.holders)) if i not in chosen]
        if self.grows or not others:
            self._reach(len(self.holders) + 1)
            return self._next(chosen)
        return min(others, key=lambda i: (self.holders[i], i))

    def _reach(self, size: int) -> None:
        for i in range(len(self.holders), size):
            self.holders.append(0)
            heapq.heappush(self.free, i)
