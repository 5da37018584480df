"""The line of A-SRPT: jobs stand in it in the order in which a virtual machine completes them.

The whole cluster counts as one machine that does as many GPU-seconds a second as it has GPUs; a
job is as large as its GPUs times its predicted length there. What is remembered is a value, and
a change of it costs O(log n).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dovetail.algorithms.persistent_heap import Heap, push
from dovetail.algorithms.virtual_machine import VirtualMachine, admitted, advanced, at_speed
from dovetail.core.view import View

RETURNED = 0
"""The number of a job that lost its node: its virtual completion lies behind it."""


class Hold(NamedTuple):
    """A job that waits for a better placement than one of this speed, at most until then."""

    job: int
    speed: float
    until_s: float


class VirtualLine(NamedTuple):
    """The virtual machine, and the jobs it completed that have not started.

    `pending` holds (number of the completion, job); `holds` those that have left it and wait for
    a better placement, in the order they left it.
    """

    machine: VirtualMachine = VirtualMachine()
    completed: int = 0
    pending: Heap = None
    holds: tuple[Hold, ...] = ()


EMPTY = VirtualLine()


def moved_on(line: VirtualLine, view: View) -> VirtualLine:
    """Returns the line now: arrivals enter the machine, completed jobs the line.

    Arrivals count from their submission, however late they are looked at.
    """
    machine, completed, pending, holds = line
    changes, waiting = view.changes, view.waiting
    gpus = float(view.cluster.gpus)
    # A policy that begins amid a run knows of nobody yet; then all that wait have just come.
    arrived = changes.arrived if line != EMPTY else sorted(waiting)
    if machine.speed != gpus:
        machine, done = advanced(machine, view.now, waiting)
        completed, pending = _appended(completed, pending, done)
        machine = at_speed(machine, view.now, gpus)
    if arrived:
        submit_s = view.jobs.submit_s
        for job, length_s in zip(arrived, view.progress.length_s(arrived), strict=True):
            release_s = float(submit_s[job])
            machine, done = advanced(machine, release_s, waiting)
            if done:
                completed, pending = _appended(completed, pending, done)
            machine = admitted(machine, release_s, job, length_s * view.shape(job).gpus)
    machine, done = advanced(machine, view.now, waiting)
    if done:
        completed, pending = _appended(completed, pending, done)
    for job in changes.evicted:
        pending = push(pending, (RETURNED, job))
    if machine is line.machine and pending is line.pending:
        return line
    return VirtualLine(machine, completed, pending, holds)


def _appended(completed: int, pending: Heap, jobs: Iterable[int]) -> tuple[int, Heap]:
    for job in jobs:
        completed += 1
        pending = push(pending, (completed, job))
    return completed, pending
