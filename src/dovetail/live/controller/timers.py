"""Timers of jobs and nodes: one for each kind and number, the earliest first."""

from __future__ import annotations

import heapq
from enum import Enum, auto

from dovetail.core.units import NEVER_S


class Timer(Enum):
    """What a timer is for. The number of the first three is a node's, of all others a job's."""

    NODE_SILENT = auto()
    INVENTORY = auto()
    LEASE = auto()
    GANG = auto()
    TIME_LIMIT = auto()
    DEADLINE = auto()
    REPLACEMENTS = auto()
    BEGIN = auto()


class Timers:
    """Owns the timers. To set one again replaces its time."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, tuple[Timer, int]]] = []
        self._due: dict[tuple[Timer, int], float] = {}
        self._count = 0

    def set(self, timer: Timer, number: int, time_s: float) -> None:
        """Sets a timer of a node or job; infinite for none."""
        key = timer, number
        if self._due.get(key, NEVER_S) == time_s:
            return
        self._due.pop(key, None)
        if time_s < NEVER_S:
            self._due[key] = time_s
            self._count += 1
            # The count keeps timers of one time in the order in which they were set.
            heapq.heappush(self._heap, (time_s, self._count, key))

    def drop(self, timer: Timer, number: int) -> None:
        """Removes a timer."""
        self._due.pop((timer, number), None)

    @property
    def next_s(self) -> float:
        """Returns when the next timer is due."""
        heap = self._heap
        # A timer that was replaced or removed stays in the heap until it reaches the top: to
        # search for it would cost more than to skip it.
        while heap and self._due.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else NEVER_S

    def due(self, now: float) -> list[tuple[Timer, int]]:
        """Removes and returns the timers that are due, in order of time."""
        timers = []
        while self.next_s <= now:
            key = heapq.heappop(self._heap)[2]
            del self._due[key]
            timers.append(key)
        return timers
