"""The best possible schedule of a tiny instance, to measure how loose a bound is.

Tries every preemptive schedule in whole seconds of jobs that hold a fixed number of GPUs.
"""

from collections.abc import Sequence
from functools import cache
from itertools import combinations

JOBS_MAX = 8


def least_rigid_flow_s(
    release_s: Sequence[int], duration_s: Sequence[int], gpus: Sequence[int], pool_gpus: int
) -> int:
    """Returns the least sum of flow times on `pool_gpus` GPUs, all numbers whole.

    Exponential in the number of jobs, so at most `JOBS_MAX`; each must fit the pool.
    """
    if len(release_s) > JOBS_MAX:
        raise ValueError(f"the exact solver takes at most {JOBS_MAX} jobs, got {len(release_s)}")
    if any(not 0 < count <= pool_gpus for count in gpus):
        raise ValueError("every job must fit the pool and hold a GPU")

    @cache
    def least(now: int, left: tuple[int, ...]) -> int:
        unfinished = [j for j, seconds in enumerate(left) if seconds]
        if not unfinished:
            return 0
        present = [j for j in unfinished if release_s[j] <= now]
        if not present:
            return least(min(release_s[j] for j in unfinished), left)
        return len(present) + min(
            least(now + 1, tuple(seconds - (j in chosen) for j, seconds in enumerate(left)))
            for chosen in _fillings(present, gpus, pool_gpus)
        )

    return least(min(release_s, default=0), tuple(duration_s))


def _fillings(present: list[int], gpus: Sequence[int], pool_gpus: int) -> list[frozenset[int]]:
    """Returns every set of jobs that fits the pool and leaves no room for another one."""
    fillings = []
    for count in range(len(present), 0, -1):
        for chosen in combinations(present, count):
            free = pool_gpus - sum(gpus[j] for j in chosen)
            waiting = set(present) - set(chosen)
            if free >= 0 and all(gpus[j] > free for j in waiting):
                fillings.append(frozenset(chosen))
    return fillings
