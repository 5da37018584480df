"""The places of arrays whose owner limits how many tasks run at once.

A task has a place from its admission to the queue until it is over, so at most as many tasks as
the limit are on GPUs. A task that is held gives its place back.
"""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.live.controller.live_jobs import LiveJob
from dovetail.live.jobs.lifecycle import PENDING


class ArrayLimits:
    """Owns the unfinished tasks of limited arrays, and which of them have a place."""

    def __init__(self) -> None:
        self._tasks: dict[int, dict[int, LiveJob]] = {}
        self._placed: dict[int, set[int]] = {}

    def enter(self, job: LiveJob) -> None:
        """Adds a task; one that is running or ending has its place already."""
        if job.spec.at_once:
            self._tasks.setdefault(job.spec.array_of, {})[job.number] = job
            if job.record.state is not PENDING:
                self.take(job)

    def is_full(self, job: LiveJob) -> bool:
        """Returns whether other tasks have all the places of a task's array."""
        if not job.spec.at_once:
            return False
        placed = self._placed.get(job.spec.array_of, ())
        return len(placed) - (job.number in placed) >= job.spec.at_once

    def take(self, job: LiveJob) -> None:
        """Gives a task its place."""
        if job.spec.at_once:
            self._placed.setdefault(job.spec.array_of, set()).add(job.number)

    def give(self, job: LiveJob) -> Iterator[LiveJob]:
        """Takes back the place of a task, if it has one; yields tasks that may take it."""
        placed = self._placed.get(job.spec.array_of, set())
        if job.number not in placed:
            return
        placed.remove(job.number)
        for number, other in list(self._tasks[job.spec.array_of].items()):
            # The caller takes the place for the task it got, which may make the array full again.
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
