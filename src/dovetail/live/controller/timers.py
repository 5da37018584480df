"""When what is due: one time for each name, the earliest first."""

from __future__ import annotations

import heapq
from collections.abc import Hashable

from dovetail.core.units import NEVER_S


class Timers:
    """One alarm for each name. To set a name again replaces its alarm."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Hashable]] = []
        self._due: dict[Hashable, float] = {}
        self._count = 0

    def set(self, name: Hashable, time_s: float) -> None:
        """Sets the alarm of a name; infinite for none."""
        if self._due.get(name, NEVER_S) == time_s:
            return
        self._due.pop(name, None)
        if time_s < NEVER_S:
            self._due[name] = time_s
            self._count += 1
            heapq.heappush(self._heap, (time_s, self._count, name))

    def drop(self, name: Hashable) -> None:
        """Takes the alarm of a name away."""
        self._due.pop(name, None)

    @property
    def next_s(self) -> float:
        """Returns when the next alarm is due."""
        heap = self._heap
        while heap and self._due.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else NEVER_S

    def due(self, now: float) -> list[Hashable]:
        """Takes the names whose alarms are due, in order of time."""
        names = []
        while self.next_s <= now:
            name = heapq.heappop(self._heap)[2]
            del self._due[name]
            names.append(name)
        return names
