"""A part of the waiting jobs, in an order of its own: what a policy sees that another one wraps."""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dovetail.core.job import Floats, Ints, Shape
from dovetail.core.queue import Entry, ReadableQueue, Scan


class QueuePart:
    """Some waiting jobs with their keys; it reads as the whole queue does.

    `length_s` gives the forecast lengths of jobs, for `first_behind`.
    """

    def __init__(
        self,
        whole: ReadableQueue,
        keys: dict[int, float],
        length_s: Callable[[Sequence[int]], list[float]],
    ) -> None:
        self.shape_of: Sequence[int] = whole.shape_of
        self.shapes: Sequence[Shape] = whole.shapes
        self._key = keys
        self._length_s = length_s
        self._active: dict[int, list[Entry]] = {}
        for job, key in keys.items():
            insort(self._active.setdefault(self.shape_of[job], []), (key, job))

    def __len__(self) -> int:
        return len(self._key)

    @property
    def gpus(self) -> int:
        """Returns the GPUs that all these jobs together ask for."""
        return sum(self.shapes[shape].gpus * len(jobs) for shape, jobs in self._active.items())

    def __contains__(self, job: int) -> bool:
        return job in self._key

    def __iter__(self) -> Iterator[int]:
        """Yields the jobs in order."""
        for _, job in heapq.merge(*self._active.values()):
            yield job

    def key(self, job: int) -> float:
        """Returns the key of a job."""
        return self._key[job]

    def columns(self) -> tuple[Ints, Floats]:
        """Returns the jobs and their keys, in no particular order."""
        n = len(self._key)
        keys = np.fromiter(self._key.values(), np.float64, n)
        return np.fromiter(self._key, np.int64, n), keys

    def first(self) -> int | None:
        """Returns the first job in order, or None."""
        return min((entries[0] for entries in self._active.values()), default=(0.0, None))[1]

    def scan(self, max_gpus: int | None = None) -> Scan:
        """Returns a pass over the jobs in order, over shapes of at most `max_gpus`."""
        return Scan(self._active, self.shapes, max_gpus)

    def shapes_waiting(self) -> list[int]:
        """Returns the shapes of these jobs."""
        return sorted(self._active)

    def of_shape(self, shape: int) -> Iterator[int]:
        """Yields the jobs of one shape in order."""
        for _, job in self._active.get(shape, ()):
            yield job

    def first_behind(self, shape: int, length_s: float, after: int) -> int | None:
        """Returns the first job of a shape behind `after` in order, at most so long."""
        entries = self._active.get(shape, [])
        begin = bisect_right(entries, (self._key.get(after, float("-inf")), after))
        behind = [job for _, job in entries[begin:]]
        for job, length in zip(behind, self._length_s(behind), strict=True):
            if length <= length_s:
                return job
        return None
