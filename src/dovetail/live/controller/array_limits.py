"""The run slots of arrays whose owner limits how many tasks run at once.

A task has a slot from its admission to the queue until it is over, so at most as many tasks as
the limit are on GPUs. A task that is held releases its slot.
"""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.live.controller.live_jobs import LiveJob
from dovetail.live.jobs.lifecycle import PENDING


class ArrayLimits:
    """Owns the unfinished tasks of limited arrays, and which of them have a slot."""

    def __init__(self) -> None:
        self._tasks: dict[int, dict[int, LiveJob]] = {}
        self._with_slot: dict[int, set[int]] = {}

    def enter(self, job: LiveJob) -> None:
        """Adds a task; one that is running or ending has its slot already."""
        if job.spec.at_once:
            self._tasks.setdefault(job.spec.array_of, {})[job.number] = job
            if job.record.state is not PENDING:
                self.acquire(job)

    def is_full(self, job: LiveJob) -> bool:
        """Returns whether other tasks have all slots of a task's array."""
        if not job.spec.at_once:
            return False
        with_slot = self._with_slot.get(job.spec.array_of, ())
        return len(with_slot) - (job.number in with_slot) >= job.spec.at_once

    def acquire(self, job: LiveJob) -> None:
        """Gives a task a slot."""
        if job.spec.at_once:
            self._with_slot.setdefault(job.spec.array_of, set()).add(job.number)

    def release(self, job: LiveJob) -> Iterator[LiveJob]:
        """Releases the slot of a task, if it has one; yields tasks that may acquire it."""
        with_slot = self._with_slot.get(job.spec.array_of, set())
        if job.number not in with_slot:
            return
        with_slot.remove(job.number)
        for number, other in list(self._tasks[job.spec.array_of].items()):
            # The caller acquires the slot for the task it got, which may make the array full again.
            if self.is_full(other):
                return
            if number not in with_slot and other is not job:
                yield other

    def leave(self, job: LiveJob) -> Iterator[LiveJob]:
        """Removes a task that is over; yields tasks that may acquire its slot."""
        yield from self.release(job)
        tasks = self._tasks.get(job.spec.array_of, {})
        tasks.pop(job.number, None)
        if not tasks:
            self._tasks.pop(job.spec.array_of, None)
            self._with_slot.pop(job.spec.array_of, None)
