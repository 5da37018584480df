"""When what is due: one alarm for each kind and number, the earliest first."""

from __future__ import annotations

import heapq
from enum import Enum, auto

from dovetail.core.units import NEVER_S


class Alarm(Enum):
    """What an alarm is for. Its number is that of a node, or else of a job."""

    NODE_SILENT = auto()
    INVENTORY = auto()
    GANG = auto()
    TIME_LIMIT = auto()
    DEADLINE = auto()
    REPLACEMENTS = auto()
    BEGIN = auto()


class Timers:
    """Owns the alarms. To set one again replaces its time."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, tuple[Alarm, int]]] = []
        self._due: dict[tuple[Alarm, int], float] = {}
        self._count = 0

    def set(self, alarm: Alarm, number: int, time_s: float) -> None:
        """Sets an alarm of a node or job; infinite for none."""
        key = alarm, number
        if self._due.get(key, NEVER_S) == time_s:
            return
        self._due.pop(key, None)
        if time_s < NEVER_S:
            self._due[key] = time_s
            self._count += 1
            # The count keeps alarms of one time in the order in which they were set.
            heapq.heappush(self._heap, (time_s, self._count, key))

    def drop(self, alarm: Alarm, number: int) -> None:
        """Removes an alarm."""
        self._due.pop((alarm, number), None)

    @property
    def next_s(self) -> float:
        """Returns when the next alarm is due."""
        heap = self._heap
        # An alarm that was replaced or removed stays in the heap until it comes to the top.
        while heap and self._due.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else NEVER_S

    def due(self, now: float) -> list[tuple[Alarm, int]]:
        """Removes and returns the alarms that are due, in order of time."""
        alarms = []
        while self.next_s <= now:
            key = heapq.heappop(self._heap)[2]
            del self._due[key]
            alarms.append(key)
        return alarms
