"""What part of the time jobs should run alone and in which company: one linear programme.

Jobs alike in all that matters form a group and share one variable: averaged over such jobs any
solution is a solution still, so nothing is lost by it. Gavel (OSDI 2020) sections 3 and 4;
ALGORITHMS section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
USE_ALL = 1e-3
"""Weight of the work done in all, against what the objective is about: it fills what is left."""


class Group(NamedTuple):
    """So many jobs of so many GPUs each; every job must advance by `need` times the target."""

    jobs: int
    gpus: int
    need: float


class Company(NamedTuple):
    """A job of one group on its GPUs with `guests` jobs of another, and the speed of each."""

    host: int
    guest: int
    guests: int
    host_speed: float
    guest_speed: float


class Shares(NamedTuple):
    """The part of the time each job of a group runs alone, and how many of each company run."""

    target: float
    alone: Floats
    together: Floats


def time_shares(groups: Sequence[Group], companies: Sequence[Company], gpus: float) -> Shares:
    """Returns the shares of time that maximise z, every job advancing at least at `need * z`.

    No job runs more than all the time, and no more than `gpus` GPUs are in use. Among solutions
    of equal z more work is done rather than less.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    count, pairs = len(groups), len(companies)
    jobs = np.array([g.jobs for g in groups], np.float64)
    size = np.array([g.gpus for g in groups], np.float64)
    needs = np.array([g.need for g in groups], np.float64)
    busy, speed = _rows(companies, jobs)
    time = np.hstack([np.eye(count), busy, np.zeros((count, 1))])
    used = np.concatenate([jobs * size, [size[c.host] for c in companies], [0.0]])
    advance = np.hstack([np.eye(count), speed, -needs[:, None]])
    work = (jobs * size) @ advance[:, :-1] / max(1.0, gpus)
    cost = -np.concatenate([USE_ALL * work / max(1.0, work.max(initial=0.0)), [1.0]])
    # The stubs know dense matrices only.
    solved = linprog(  # type: ignore[call-overload]
        cost,
        A_ub=csr_array(np.vstack([time, used, -advance])),
        b_ub=np.concatenate([np.ones(count), [gpus], np.zeros(count)]),
        bounds=(0, None),
        method="highs",
    )
    assert solved.success, solved.message  # all zeros is a solution, and time bounds every one
    x = np.maximum(solved.x, 0.0)
    return Shares(float(x[-1]), x[:count], x[count : count + pairs])


def _rows(companies: Sequence[Company], jobs: Floats) -> tuple[Floats, Floats]:
    """Returns, per job of a group, the time and the work that one of each company gives it."""
    busy = np.zeros((len(jobs), len(companies)))
    speed = np.zeros((len(jobs), len(companies)))
    for column, c in enumerate(companies):
        busy[c.host, column] += 1 / jobs[c.host]
        busy[c.guest, column] += c.guests / jobs[c.guest]
        speed[c.host, column] += c.host_speed / jobs[c.host]
        speed[c.guest, column] += c.guests * c.guest_speed / jobs[c.guest]
    return busy, speed
