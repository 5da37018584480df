"""Gangs that wait for each other's GPUs: none of them would ever move."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def deadlocked(waits_for: Mapping[int, Collection[int]]) -> list[int]:
    """Returns the jobs that wait in circles, and those on the way from one circle to another.

    Whoever waits for somebody who waits for nobody gets its GPUs in time, and whoever nobody
    waits for holds nobody up: both are taken out until none is left.
    """
    left = {job: {other for other in others if other != job} for job, others in waits_for.items()}
    while True:
        wanted = {other for others in left.values() for other in others}
        kept = {job for job in left if job in wanted and not left[job].isdisjoint(left)}
        if len(kept) == len(left):
            return sorted(kept)
        left = {job: left[job] & kept for job in sorted(kept)}
