"""The line of A-SRPT: jobs in the order in which a virtual machine completes them.

The whole cluster counts as one machine with a speed of its number of GPUs; the size of a job is its
GPUs times its predicted length. The memory is an immutable value; a change costs O(log n).
"""

from __future__ import annotations

from typing import NamedTuple

from dovetail.algorithms.persistent_queue import Queue, joined, put_first
from dovetail.algorithms.virtual_machine import (
    NOBODY,
    VirtualMachine,
    admitted,
    advanced,
    at_speed,
)
from dovetail.core.queue import ReadableQueue
from dovetail.core.view import View


class Hold(NamedTuple):
    """A job that waits for a placement faster than `speed`, at most until `until_s`."""

    job: int
    speed: float
    until_s: float


class VirtualLine(NamedTuple):
    """The virtual machine, and the jobs it completed that have not started.

    `pending` has them in order of completion; `holds` the jobs that have left it and wait for a
    better placement, in that order.
    """

    machine: VirtualMachine = VirtualMachine()
    pending: Queue = Queue()
    holds: tuple[Hold, ...] = ()


EMPTY = VirtualLine()


def moved_on(line: VirtualLine, view: View) -> VirtualLine:
    """Returns the line now: arrivals enter the machine, completed jobs the line.

    Arrivals count from their submission, even if the decision is later.
    """
    machine, pending, holds = line
    changes, waiting = view.changes, view.waiting
    gpus = float(view.cluster.gpus)
    quiet = not (changes.arrived or changes.evicted) and machine.speed == gpus
    # NOTE: a third of all instants are ends of jobs, which do not concern the machine.
    if quiet and view.now < machine.end_s and _is_present(machine, waiting):
        return line
    # A policy that starts during a run knows no jobs yet: all waiting jobs are arrivals.
    arrived = changes.arrived if line != EMPTY else sorted(waiting)
    if not machine.speed:
        machine = at_speed(machine, view.now, gpus)
    if arrived:
        submit_s = view.jobs.submit_s
        for job, length_s in zip(arrived, view.progress.length_s(arrived), strict=True):
            release_s = float(submit_s[job])
            machine, completed = advanced(machine, release_s, waiting)
            if completed:
                pending = _appended(pending, completed)
            machine = admitted(machine, release_s, job, length_s * view.shape(job).gpus)
    machine, completed = advanced(machine, view.now, waiting)
    if completed:
        pending = _appended(pending, completed)
    if machine.speed != gpus:
        machine = at_speed(machine, view.now, gpus)
    if changes.evicted:
        # Evicted jobs completed virtually before all waiting ones.
        pending = put_first(pending, tuple(changes.evicted))
    if machine is line.machine and pending is line.pending:
        return line
    return VirtualLine(machine, pending, holds)


def _is_present(machine: VirtualMachine, waiting: ReadableQueue) -> bool:
    return machine.job == NOBODY or machine.job in waiting


def _appended(pending: Queue, jobs: list[int]) -> Queue:
    for job in jobs:
        pending = joined(pending, job)
    return pending
