"""A part of the waiting jobs, in an order of its own: what a policy sees that another one wraps."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Sequence

from dovetail.core.queue import Entry, JobsByShape, ReadableQueue


class QueuePart(JobsByShape):
    """Some waiting jobs with their keys; it reads as the whole queue does.

    `length_s` gives the forecast lengths of jobs, for `first_behind`.
    """

    def __init__(
        self,
        whole: ReadableQueue,
        keys: dict[int, float],
        length_s: Callable[[Sequence[int]], list[float]],
    ) -> None:
        self.shape_of = whole.shape_of
        self.shapes = whole.shapes
        self._key = keys
        self._length_s = length_s
        self._active: dict[int, list[Entry]] = {}
        for job, key in keys.items():
            insort(self._active.setdefault(self.shape_of[job], []), (key, job))

    def first_behind(self, shape: int, length_s: float, after: int) -> int | None:
        """Returns the first job of a shape behind `after` in order, at most so long."""
        entries = self._active.get(shape, [])
        begin = bisect_right(entries, (self._key.get(after, float("-inf")), after))
        behind = [job for _, job in entries[begin:]]
        for job, length in zip(behind, self._length_s(behind), strict=True):
            if length <= length_s:
                return job
        return None
