"""Parts of the waiting jobs: in an order of their own, of one part of a cluster, behind a head."""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections.abc import Callable, Sequence

from dovetail.core.node_sets import ALL_NODES
from dovetail.core.queue import Entry, JobsByShape, ReadableQueue
from dovetail.core.units import NEVER_S
from dovetail.core.view import View


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


def disjoint_parts(view: View) -> list[list[int]]:
    """Returns the waiting shapes of each part of the cluster, the part of the first job first.

    No job of one part could run on a node of another; none if every job could run anywhere.
    """
    if len(view.cluster.groups) < 2:
        return []
    union = view.plan.occupancy.node_sets.union
    parts: list[tuple[int, list[int]]] = []
    for shape in view.waiting.shapes_waiting():
        nodes, shapes = union(view.shapes[shape]), [shape]
        if nodes == ALL_NODES:
            return []
        for part in [p for p in parts if p[0] & nodes]:
            parts.remove(part)
            nodes, shapes = nodes | part[0], part[1] + shapes
        parts.append((nodes, shapes))
    firsts = [view.waiting.of_shapes(shapes).first() for _, shapes in parts]
    return [shapes for _, (_, shapes) in sorted(zip(firsts, parts, strict=True))]


class BackfillQueue:
    """The jobs behind a blocked head that are short or small enough, in order of submission.

    Short ones end within `slack_s`, when the head starts. `only` are the jobs to try, None for all.
    """

    def __init__(self, view: View, head: int, slack_s: float, only: Sequence[int] | None) -> None:
        self._view = view
        self._slack_s = slack_s
        self._heap: list[int] = [] if only is None else sorted(j for j in only if j != head)
        self._searches = only is None
        self._dropped: set[int] = set()
        self._fresh = [] if only is not None else view.waiting.shapes_waiting()
        self._after = head

    def next(self, free: int, extra: int) -> int | None:
        """Returns the next job that fits by count and does not delay the head by count."""
        shapes, shape_of = self._view.shapes, self._view.shape_of
        for shape in self._fresh:
            self._search(shape, self._after, free, extra)
        self._fresh = []
        while self._heap:
            job = heapq.heappop(self._heap)
            shape = shape_of[job]
            if shape in self._dropped or shapes[shape].whole_gpus > free:
                continue
            fits = shapes[shape].whole_gpus <= extra or self._view.progress.length_s((job,))[0] <= (
                self._slack_s
            )
            if not fits:
                if self._searches:
                    self._search(shape, job, free, extra)
                continue
            if self._searches:
                self._fresh, self._after = [shape], job
            return job
        return None

    def drop_shape(self, job: int) -> None:
        """Drops the shape of a job that found no room."""
        self._dropped.add(self._view.shape_of[job])

    def _search(self, shape: int, after: int, free: int, extra: int) -> None:
        gpus = self._view.shapes[shape].whole_gpus
        if gpus > free or shape in self._dropped:
            return
        slack_s = NEVER_S if gpus <= extra else self._slack_s
        job = self._view.waiting.first_behind(shape, slack_s, after)
        if job is not None:
            heapq.heappush(self._heap, job)
