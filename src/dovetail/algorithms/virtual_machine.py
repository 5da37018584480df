"""One virtual machine, shortest remaining first, as an immutable value (ALGORITHMS section 5.3).

It computes online what `single_machine.srpt_completions` computes for known releases: an arrival
and a completion cost O(log n). The machine may change its speed, like a cluster that loses nodes.
Sizes are in units of work, speed in units per second.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from dovetail.algorithms.persistent_heap import Heap, pop, push
from dovetail.core.units import NEVER_S, RELATIVE_TOLERANCE

NOBODY = -1


class Present(Protocol):
    """The jobs that have not left."""

    def __contains__(self, job: int, /) -> bool:
        """Returns whether a job is present."""


class VirtualMachine(NamedTuple):
    """A single machine: the job on it had `left` units to do at `since_s`; others wait.

    `waiting` has (units left, job). Ties go to the smaller job number.
    """

    speed: float = 0.0
    job: int = NOBODY
    left: float = 0.0
    since_s: float = 0.0
    waiting: Heap = None

    @property
    def end_s(self) -> float:
        """Returns when the job on the machine completes if no other arrives."""
        if self.job == NOBODY:
            return NEVER_S
        if not self.left:
            return self.since_s
        return self.since_s + self.left / self.speed if self.speed else NEVER_S


def admitted(machine: VirtualMachine, now_s: float, job: int, size: float) -> VirtualMachine:
    """Returns the machine after a job arrived; `advanced` must have been called for now."""
    speed, running, left, since_s, waiting = machine
    if running == NOBODY:
        return VirtualMachine(speed, job, size, now_s, waiting)
    left_now = max(0.0, left - max(0.0, now_s - since_s) * speed)
    # Sizes within the tolerance are equal: then the running job continues.
    if size < left_now * (1.0 - RELATIVE_TOLERANCE):
        return VirtualMachine(speed, job, size, now_s, push(waiting, (left_now, running)))
    return VirtualMachine(speed, running, left, since_s, push(waiting, (size, job)))


def advanced(
    machine: VirtualMachine, now_s: float, present: Present
) -> tuple[VirtualMachine, list[int]]:
    """Returns the machine at `now_s` and the jobs completed since, in order of completion.

    Jobs that are no longer `present` leave the machine uncompleted, at the latest at their turn.
    """
    completed: list[int] = []
    while True:
        if machine.job != NOBODY and machine.job not in present:
            end_s = min(now_s, machine.end_s)
        else:
            end_s = machine.end_s
            if end_s > now_s or machine.job == NOBODY:
                return machine, completed
            completed.append(machine.job)
        machine = _next(machine, end_s)


def at_speed(machine: VirtualMachine, now_s: float, speed: float) -> VirtualMachine:
    """Returns the machine with another speed from now on."""
    work = (now_s - machine.since_s) * machine.speed if machine.job != NOBODY else 0.0
    left = max(0.0, machine.left - work)
    return machine._replace(speed=speed, left=left, since_s=now_s)


def _next(machine: VirtualMachine, now_s: float) -> VirtualMachine:
    """Returns the machine with its job gone and the shortest waiting one on it."""
    waiting = machine.waiting
    if waiting is None:
        return VirtualMachine(machine.speed)
    left, job = waiting[0]
    return VirtualMachine(machine.speed, job, left, now_s, pop(waiting))
