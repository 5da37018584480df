"""Which tasks of an array have one of its places, if its owner limits how many run at once.

A task has a place from when it waits in the queue until it is over, so never more tasks than the
limit are on GPUs. A task that is held gives its place back.
"""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.live.controller.live_jobs import LiveJob
from dovetail.live.jobs.lifecycle import PENDING


class ArrayLimits:
    """Owns the tasks of limited arrays that are not over, and which of them have a place."""

    def __init__(self) -> None:
        self._tasks: dict[int, dict[int, LiveJob]] = {}
        self._placed: dict[int, dict[int, None]] = {}

    def enter(self, job: LiveJob) -> None:
        """Adds a task; one that is past waiting has its place."""
        if job.spec.at_once:
            self._tasks.setdefault(job.spec.array_of, {})[job.number] = job
            if job.record.state is not PENDING:
                self.take(job)

    def is_full(self, job: LiveJob) -> bool:
        """Returns whether other tasks have all the places of a task's array."""
        if not job.spec.at_once:
            return False
        placed = self._placed.get(job.spec.array_of, {})
        return len(placed) - (job.number in placed) >= job.spec.at_once

    def take(self, job: LiveJob) -> None:
        """Gives a task its place."""
        if job.spec.at_once:
            self._placed.setdefault(job.spec.array_of, {})[job.number] = None

    def give(self, job: LiveJob) -> Iterator[LiveJob]:
        """Takes back the place of a task, if it has one; yields tasks that may take it."""
        array = job.spec.array_of
        placed = self._placed.get(array, {})
        if placed.pop(job.number, 0) is None:
            for number, other in list(self._tasks[array].items()):
                if self.is_full(other):
                    return
                if number not in placed and other is not job:
                    yield other

    def leave(self, job: LiveJob) -> Iterator[LiveJob]:
        """Removes a task that is over; yields tasks that may take its place."""
        yield from self.give(job)
        tasks = self._tasks.get(job.spec.array_of, {})
        tasks.pop(job.number, None)
        if not tasks:
            self._tasks.pop(job.spec.array_of, None)
            self._placed.pop(job.spec.array_of, None)
