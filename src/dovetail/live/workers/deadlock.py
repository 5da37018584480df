"""Deadlocks: gangs that wait for each other's GPUs, so that none of them would ever move."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def deadlocked(waits_for: Mapping[int, Collection[int]]) -> list[int]:
    """Returns the jobs that wait in a circle, and those on the way from one circle to another.

    A job that waits for one which waits for no other gets its GPUs in time, and a job that no
    other waits for blocks none. Both are removed until no such job is left.
    """
    waiting = {job: {b for b in blockers if b != job} for job, blockers in waits_for.items()}
    while True:
        blocking = {job for blockers in waiting.values() for job in blockers}
        remaining = {
            job
            for job, blockers in waiting.items()
            if job in blocking and not blockers.isdisjoint(waiting)
        }
        if len(remaining) == len(waiting):
            return sorted(remaining)
        waiting = {job: waiting[job] & remaining for job in sorted(remaining)}
