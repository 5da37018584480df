"""Which tasks of an array have one of its places, where its owner limits how many may at once.

A task has a place from when it waits in the queue until it is over, so that never more than the
limit are on GPUs; one that is held gives its place back.
"""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.live.controller.live_jobs import Life
from dovetail.live.jobs.lifecycle import PENDING


class ArrayLimits:
    """The tasks of limited arrays that are not over, and who of them has a place."""

    def __init__(self) -> None:
        self._tasks: dict[int, dict[int, Life]] = {}
        self._placed: dict[int, dict[int, None]] = {}

    def enter(self, life: Life) -> None:
        """Hears of a task; one that is past waiting has its place."""
        if life.spec.at_once:
            self._tasks.setdefault(life.spec.array_of, {})[life.record.job] = life
            if life.record.state is not PENDING:
                self.take(life)

    def is_full(self, life: Life) -> bool:
        """Tells whether others have all the places of a task's array."""
        if not life.spec.at_once:
            return False
        placed = self._placed.get(life.spec.array_of, {})
        return len(placed) - (life.record.job in placed) >= life.spec.at_once

    def take(self, life: Life) -> None:
        """Gives a task its place."""
        if life.spec.at_once:
            self._placed.setdefault(life.spec.array_of, {})[life.record.job] = None

    def give(self, life: Life) -> Iterator[Life]:
        """Takes a task's place, if it has one; yields who may have it, while it is free."""
        array = life.spec.array_of
        placed = self._placed.get(array, {})
        if placed.pop(life.record.job, 0) is None:
            for number, other in list(self._tasks[array].items()):
                if self.is_full(other):
                    return
                if number not in placed and other is not life:
                    yield other

    def leave(self, life: Life) -> Iterator[Life]:
        """Forgets a task that is over; yields who may have its place."""
        yield from self.give(life)
        tasks = self._tasks.get(life.spec.array_of, {})
        tasks.pop(life.record.job, None)
        if not tasks:
            self._tasks.pop(life.spec.array_of, None)
            self._placed.pop(life.spec.array_of, None)
