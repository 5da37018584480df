"""The line of A-SRPT: jobs stand in it in the order in which a virtual machine completes them.

The whole cluster counts as one machine that does as many GPU-seconds a second as it has GPUs; a
job is as large as its GPUs times its predicted length there. What is remembered is a value, and
a change of it costs O(log n).
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
    """A job that waits for a better placement than one of this speed, at most until then."""

    job: int
    speed: float
    until_s: float


class VirtualLine(NamedTuple):
    """The virtual machine, and the jobs it completed that have not started.

    `pending` holds them in the order of completion; `holds` those that have left it and wait for
    a better placement, in the order they left it.
    """

    machine: VirtualMachine = VirtualMachine()
    pending: Queue = Queue()
    holds: tuple[Hold, ...] = ()


EMPTY = VirtualLine()


def moved_on(line: VirtualLine, view: View) -> VirtualLine:
    """Returns the line now: arrivals enter the machine, completed jobs the line.

    Arrivals count from their submission, however late they are looked at.
    """
    machine, pending, holds = line
    changes, waiting = view.changes, view.waiting
    gpus = float(view.cluster.gpus)
    quiet = not (changes.arrived or changes.evicted) and machine.speed == gpus
    # NOTE: a third of all instants are ends of jobs, which mean nothing to the machine.
    if quiet and view.now < machine.end_s and _is_present(machine, waiting):
        return line
    # A policy that begins amid a run knows of nobody yet; then all that wait have just come.
    arrived = changes.arrived if line != EMPTY else sorted(waiting)
    if not machine.speed:
        machine = at_speed(machine, view.now, gpus)
    if arrived:
        submit_s = view.jobs.submit_s
        for job, length_s in zip(arrived, view.progress.length_s(arrived), strict=True):
            release_s = float(submit_s[job])
            machine, done = advanced(machine, release_s, waiting)
            if done:
                pending = _appended(pending, done)
            machine = admitted(machine, release_s, job, length_s * view.shape(job).gpus)
    machine, done = advanced(machine, view.now, waiting)
    if done:
        pending = _appended(pending, done)
    if machine.speed != gpus:
        machine = at_speed(machine, view.now, gpus)
    if changes.evicted:
        # Their virtual completion lies behind them, before that of all who still wait.
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
