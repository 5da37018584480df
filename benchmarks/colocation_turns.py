"""Turns on resources between processes, by semaphores in shared memory.

`Tokens`: one exclusive token a resource. Whoever is not ready when it is given back loses the turn.
`LockStep`: Muri's phases. A barrier ends each, so every member makes one iteration a cycle.
`Free`: nobody waits for anybody.
"""

from __future__ import annotations

import time
from multiprocessing.context import SpawnContext
from multiprocessing.synchronize import Lock, Semaphore
from typing import Protocol

NOBODY = -1
RESOURCES = 4


class PhasesOver(Exception):
    """The last phase has ended: nobody may wait for another."""


class Turns(Protocol):
    """What a member asks before and after it uses a resource."""

    def take(self, resource: int, member: int) -> None:
        """Waits until the member may use the resource."""

    def give(self, resource: int, member: int) -> None:
        """Ends the use."""


class Free:
    """Everybody may use everything at any time."""

    def take(self, resource: int, member: int) -> None:
        pass

    def give(self, resource: int, member: int) -> None:
        pass


class Tokens:
    """One token a resource, handed to the next member in order that waits for it."""

    def __init__(self, context: SpawnContext, members: int) -> None:
        self._members = members
        self._locks: list[Lock] = [context.Lock() for _ in range(RESOURCES)]
        self._holders = context.RawArray("i", [NOBODY] * RESOURCES)
        self._waiting = context.RawArray("i", members * RESOURCES)
        self._granted: list[Semaphore] = [context.Semaphore(0) for _ in range(members * RESOURCES)]

    def take(self, resource: int, member: int) -> None:
        mine = resource * self._members + member
        with self._locks[resource]:
            if self._holders[resource] == NOBODY:
                self._holders[resource] = member
                return
            self._waiting[mine] = 1
        self._granted[mine].acquire()

    def give(self, resource: int, member: int) -> None:
        first = resource * self._members
        with self._locks[resource]:
            for step in range(1, self._members):
                other = (member + step) % self._members
                if self._waiting[first + other]:
                    self._waiting[first + other] = 0
                    self._holders[resource] = other
                    self._granted[first + other].release()
                    return
            self._holders[resource] = NOBODY

    def waiting(self, resource: int) -> list[int]:
        """Returns 1 for each member that waits for a resource, else 0."""
        first = resource * self._members
        return list(self._waiting[first : first + self._members])


class LockStep:
    """Phases that all members of a set end together; `begin` is called before each cell."""

    def __init__(self, context: SpawnContext, members: int) -> None:
        self._lock: Lock = context.Lock()
        self._passed: list[Semaphore] = [context.Semaphore(0) for _ in range(members)]
        self._arrived = context.RawValue("i", 0)
        self._ended = context.RawValue("i", 0)
        self._until_s = context.RawValue("d", 0.0)
        self._members = context.RawValue("i", members)

    def begin(self, members: int, until_s: float) -> None:
        self._members.value, self._until_s.value = members, until_s
        self._arrived.value = self._ended.value = 0

    def end(self) -> None:
        """Makes the present phase the last."""
        self._until_s.value = 0.0

    @property
    def is_over(self) -> bool:
        """True once a phase ended too late for another; all members see it in the same phase."""
        return bool(self._ended.value)

    def take(self, resource: int, member: int) -> None:
        pass

    def give(self, resource: int, member: int) -> None:
        """Ends this member's part of the phase and waits for the others. Raises PhasesOver."""
        if not self._ends_phase(member):
            self._passed[member].acquire()
        if self.is_over:
            raise PhasesOver

    def _ends_phase(self, member: int) -> bool:
        """True for the last to arrive, which lets the others pass."""
        with self._lock:
            self._arrived.value += 1
            if self._arrived.value < self._members.value:
                return False
            self._arrived.value = 0
            self._ended.value = time.monotonic() >= self._until_s.value
            for other in range(self._members.value):
                if other != member:
                    self._passed[other].release()
            return True
