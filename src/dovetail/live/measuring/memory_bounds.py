"""How much of a GPU's memory each of the jobs on it may hold (SJF-BSBF section IV, Algorithm 2).

Who shares a GPU gets what it is believed to hold, and an even part of what is left over; so what
one job holds too much it cannot take from the other. Alone a job has no bound.
"""

from __future__ import annotations

from collections.abc import Sequence


def bounds(held_bytes: Sequence[float], memory_bytes: float) -> tuple[int, ...]:
    """Returns the most that each job may hold; 0 for no bound.

    Even parts where it is not known what a job holds (0), or where they do not fit together.
    """
    jobs = len(held_bytes)
    if jobs < 2:
        return (0,) * jobs
    spare = memory_bytes - sum(held_bytes)
    if spare < 0 or not all(held_bytes):
        return (int(memory_bytes / jobs),) * jobs
    return tuple(int(held + spare / jobs) for held in held_bytes)
