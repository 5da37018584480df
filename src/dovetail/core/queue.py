"""The waiting jobs, in the order that the policy declared, and split by shape.

Jobs of one shape fit in the same places, so a pass over the queue can stop trying a shape once
one job of it found no room. That, and a key that is computed only when a job starts to wait,
is what keeps an event cheap with ten thousand jobs waiting.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
from sortedcontainers import SortedList

from dovetail.core.gpu_parts import exact_sum
from dovetail.core.job import Floats, Ints, Shape

Entry = tuple[float, int]
"""(key, job); the job's index breaks ties by (submission, id)."""


class ReadableQueue(Protocol):
    """The waiting jobs as a policy sees them: to read, not to change."""

    @property
    def shape_of(self) -> Sequence[int]:
        """Returns the number of the shape of each job."""

    @property
    def shapes(self) -> Sequence[Shape]:
        """Returns the shapes by number."""

    def __len__(self) -> int: ...

    @property
    def gpus(self) -> float:
        """Returns the GPUs that all waiting jobs together ask for."""

    def __contains__(self, job: int) -> bool: ...

    def __iter__(self) -> Iterator[int]:
        """Yields the jobs in order."""

    def key(self, job: int) -> float:
        """Returns the key of a waiting job."""

    def columns(self) -> tuple[Ints, Floats]:
        """Returns the waiting jobs and their keys, in no particular order."""

    def first(self) -> int | None:
        """Returns the first job in order, or None."""

    def scan(self, max_gpus: int | None = None) -> Scan:
        """Returns a pass over the queue in order, of shapes that need at most `max_gpus` whole."""

    def shapes_waiting(self) -> list[int]:
        """Returns the shapes that have waiting jobs."""

    def of_shape(self, shape: int) -> Iterator[int]:
        """Yields the waiting jobs of one shape in order."""

    def first_behind(self, shape: int, length_s: float, after: int) -> int | None:
        """Returns the first waiting job of a shape submitted behind `after`, at most so long."""

    def of_shapes(self, shapes: Iterable[int]) -> ReadableQueue:
        """Returns the waiting jobs of some shapes, in the order of all."""


class JobsByShape:
    """Jobs split by shape, each shape sorted by (key, job): what every queue reads alike."""

    shape_of: Sequence[int]
    shapes: Sequence[Shape]
    _key: dict[int, float]
    _active: Mapping[int, Sequence[Entry]]

    def __len__(self) -> int:
        return len(self._key)

    @property
    def gpus(self) -> float:
        """Returns the GPUs that all waiting jobs together ask for."""
        total = sum(self.shapes[s].asked_gpus * len(jobs) for s, jobs in self._active.items())
        return exact_sum(total)

    def __contains__(self, job: int) -> bool:
        return job in self._key

    def __iter__(self) -> Iterator[int]:
        """Yields the jobs in order."""
        for _, job in heapq.merge(*self._active.values()):
            yield job

    def key(self, job: int) -> float:
        """Returns the key of a waiting job."""
        return self._key[job]

    def columns(self) -> tuple[Ints, Floats]:
        """Returns the waiting jobs and their keys, in no particular order."""
        n = len(self._key)
        keys = np.fromiter(self._key.values(), np.float64, n)
        return np.fromiter(self._key, np.int64, n), keys

    def first(self) -> int | None:
        """Returns the first job in order, or None."""
        if not self._active:
            return None
        head: Entry = min([entries[0] for entries in self._active.values()])
        return head[1]

    def scan(self, max_gpus: int | None = None) -> Scan:
        """Returns a pass over the queue in order, over shapes of at most `max_gpus`."""
        return Scan(self._active, self.shapes, max_gpus)

    def shapes_waiting(self) -> list[int]:
        """Returns the shapes that have waiting jobs."""
        return sorted(self._active)

    def of_shape(self, shape: int) -> Iterator[int]:
        """Yields the waiting jobs of one shape in order."""
        for _, job in self._active.get(shape, ()):
            yield job

    def first_behind(self, shape: int, length_s: float, after: int) -> int | None:
        """Returns the first waiting job of a shape submitted behind `after`, at most so long."""
        raise NotImplementedError

    def of_shapes(self, shapes: Iterable[int]) -> ReadableQueue:
        """Returns the waiting jobs of some shapes, in the order of all."""
        return _SomeShapes(self, {s: self._active[s] for s in shapes if s in self._active})


class _SomeShapes(JobsByShape):
    """The waiting jobs of some shapes of a queue."""

    def __init__(self, whole: JobsByShape, active: Mapping[int, Sequence[Entry]]) -> None:
        self._whole = whole
        self.shape_of, self.shapes = whole.shape_of, whole.shapes
        self._active = active
        # NOTE: the keys of all jobs. A copy for some costs as much as the queue is long, each time.
        self._key = whole._key

    def __len__(self) -> int:
        return sum(map(len, self._active.values()))

    def __contains__(self, job: int) -> bool:
        return job in self._key and self.shape_of[job] in self._active

    def columns(self) -> tuple[Ints, Floats]:
        """Returns the waiting jobs and their keys, in no particular order."""
        entries = [entry for own in self._active.values() for entry in own]
        keys, jobs = zip(*entries, strict=True) if entries else ((), ())
        return np.array(jobs, np.int64), np.array(keys, np.float64)

    def first_behind(self, shape: int, length_s: float, after: int) -> int | None:
        """Returns the first waiting job of a shape submitted behind `after`, at most so long."""
        return self._whole.first_behind(shape, length_s, after) if shape in self._active else None


class WaitingQueue(JobsByShape):
    """Waiting jobs by shape, each shape sorted by (key, job)."""

    def __init__(self, shape_of: Sequence[int], shapes: Sequence[Shape]) -> None:
        self.shape_of: list[int] = list(shape_of)
        self.shapes: list[Shape] = list(shapes)
        self._number = {shape: number for number, shape in enumerate(shapes)}
        self._key: dict[int, float] = {}
        self._lists: list[SortedList] = [SortedList() for _ in shapes]
        self._active: dict[int, SortedList] = {}
        self._lengths: _Lengths | None = None

    def admit(self, shapes: Sequence[Shape]) -> None:
        """Adds the shapes of new jobs; a new shape is numbered when it first appears."""
        for shape in shapes:
            number = self._number.setdefault(shape, len(self.shapes))
            if number == len(self.shapes):
                self.shapes.append(shape)
                self._lists.append(SortedList())
            self.shape_of.append(number)
            if self._lengths is not None:
                self._lengths.admit(number)

    def reshape(self, job: int, shape: Shape) -> None:
        """Gives a job another shape, in its place in the order; only a world calls it."""
        key = self._key.get(job)
        if key is not None:
            self.remove(job)
        number = self._number.setdefault(shape, len(self.shapes))
        if number == len(self.shapes):
            self.shapes.append(shape)
            self._lists.append(SortedList())
        self.shape_of[job] = number
        if self._lengths is not None:
            self._lengths = self._lengths.of_shapes(self.shape_of, self._key)
        if key is not None:
            self.add(job, key)

    def add(self, job: int, key: float) -> None:
        """Adds a job to the queue; only a world calls it."""
        self._key[job] = key
        shape = self.shape_of[job]
        entries = self._lists[shape]
        entries.add((key, job))
        self._active[shape] = entries
        if self._lengths is not None:
            self._lengths.add(job)

    def remove(self, job: int) -> None:
        """Removes a job from the queue; only a world calls it."""
        shape = self.shape_of[job]
        entries = self._lists[shape]
        entries.remove((self._key.pop(job), job))
        if not entries:
            del self._active[shape]
        if self._lengths is not None:
            self._lengths.remove(job)

    def index_lengths(self, length_s: Sequence[float]) -> None:
        """Makes `first_behind` available; jobs must wait in order of submission."""
        self._lengths = _Lengths(length_s)
        for shape in self.shape_of:
            self._lengths.admit(shape)

    def first_behind(self, shape: int, length_s: float, after: int) -> int | None:
        """Returns the first waiting job of a shape submitted behind `after`, at most so long."""
        assert self._lengths is not None, "the policy's order does not index lengths"
        return self._lengths.first_behind(shape, length_s, after)


class Scan:
    """One pass over the queue: `next` gives jobs in order, `drop` gives up on a shape.

    Nothing is taken out of the queue; that happens when the plan is applied.
    """

    __slots__ = ("_active", "_heap", "_shape", "_tails")

    def __init__(
        self, active: Mapping[int, Sequence[Entry]], shapes: Sequence[Shape], max_gpus: int | None
    ) -> None:
        self._active = active
        self._tails: dict[int, Iterator[Entry]] = {}
        self._heap: list[tuple[float, int, int]] = [
            (*entries[0], shape)
            for shape, entries in active.items()
            if max_gpus is None or shapes[shape].whole_gpus <= max_gpus
        ]
        heapq.heapify(self._heap)
        self._shape = -1

    def next(self) -> int | None:
        """Returns the next job, or None at the end. The job before it counts as taken."""
        self._refill()
        if not self._heap:
            return None
        self._shape = self._heap[0][2]
        return self._heap[0][1]

    def key(self) -> float:
        """Returns the key of the job that `next` gave last."""
        return self._heap[0][0]

    def peek(self) -> tuple[float, int] | None:
        """Returns (key, job) of what `next` gave last, or None at the end."""
        return self._heap[0][:2] if self._heap else None

    def drop(self) -> int:
        """Leaves out the rest of the shape of the job that `next` gave last; returns it."""
        shape, self._shape = self._shape, -1
        heapq.heappop(self._heap)
        return shape

    def _refill(self) -> None:
        if self._shape < 0:
            return
        tail = self._tails.get(self._shape)
        if tail is None:
            tail = self._tails[self._shape] = iter(self._active[self._shape])
            next(tail)
        entry = next(tail, None)
        if entry is None:
            heapq.heappop(self._heap)
        else:
            heapq.heapreplace(self._heap, (entry[0], entry[1], self._shape))
        self._shape = -1


_LONGEST_S = 1e300
"""Longer than any job, shorter than the infinity that marks a job that does not wait."""


class _Lengths:
    """Answers "the first waiting job of a shape that is at most so long" in O(log n).

    One tree of minima per shape, over its jobs in order of submission; a job that does not
    wait counts as infinitely long.
    """

    def __init__(self, length_s: Sequence[float]) -> None:
        self._length_s = length_s
        self._shape_of: list[int] = []
        self._rank: list[int] = []
        self._jobs: list[list[int]] = []
        self._base: list[int] = []
        self._trees: list[list[float]] = []

    def admit(self, shape: int) -> None:
        """Takes a leaf for the next job; the tree of its shape doubles when it is full."""
        while shape >= len(self._jobs):
            self._jobs.append([])
            self._base.append(1)
            self._trees.append([float("inf")] * 2)
        jobs, base = self._jobs[shape], self._base[shape]
        if len(jobs) == base:
            self._base[shape] = 2 * base
            self._trees[shape] = _doubled(self._trees[shape])
        self._rank.append(len(jobs))
        jobs.append(len(self._shape_of))
        self._shape_of.append(shape)

    def of_shapes(self, shape_of: Sequence[int], waiting: Iterable[int]) -> _Lengths:
        """Returns the same lengths of jobs of which some have other shapes."""
        lengths = _Lengths(self._length_s)
        for shape in shape_of:
            lengths.admit(shape)
        for job in waiting:
            lengths.add(job)
        return lengths

    def add(self, job: int) -> None:
        self._set(job, self._length_s[job])

    def remove(self, job: int) -> None:
        self._set(job, float("inf"))

    def _set(self, job: int, value: float) -> None:
        shape = self._shape_of[job]
        tree = self._trees[shape]
        node = self._base[shape] + self._rank[job]
        tree[node] = value
        node >>= 1
        while node:
            left, right = tree[2 * node], tree[2 * node + 1]
            value = left if left < right else right
            if tree[node] == value:
                return
            tree[node] = value
            node >>= 1

    def first_behind(self, shape: int, length_s: float, after: int) -> int | None:
        tree, base, jobs = self._trees[shape], self._base[shape], self._jobs[shape]
        length_s = min(length_s, _LONGEST_S)
        if tree[1] > length_s:
            return None
        # Climb from the first leaf behind `after` to the first subtree that has an answer,
        # then descend to its leftmost leaf that qualifies.
        node = base + bisect_right(jobs, after)
        if node >= base + len(jobs):
            return None
        while tree[node] > length_s:
            while node & 1:
                node >>= 1
                if node <= 1:
                    return None
            node += 1
        while node < base:
            node *= 2
            if tree[node] > length_s:
                node += 1
        return jobs[node - base]


def _doubled(tree: list[float]) -> list[float]:
    """Returns a tree of minima with as many empty leaves again to the right."""
    doubled = [float("inf"), tree[1]]
    width = 1
    while width < len(tree):
        doubled += tree[width : 2 * width] + [float("inf")] * width
        width *= 2
    return doubled
