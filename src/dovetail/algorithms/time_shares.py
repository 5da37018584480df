"""What part of the time jobs should run alone and in which company: one linear programme.

Jobs alike in all that matters form a group and share one variable: averaged over such jobs any
solution is a solution still, so nothing is lost by it. Gavel (OSDI 2020) sections 3 and 4;
ALGORITHMS section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Floats = NDArray[np.float64]
USE_ALL = 1e-3
"""Weight of the work done in all, against what the objective is about: it fills what is left."""


class SharingGroup(NamedTuple):
    """So many jobs of so many GPUs each; every job must advance by `need` times the target."""

    jobs: int
    gpus: int
    need: float


class Sharers(NamedTuple):
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


def time_shares(
    groups: Sequence[SharingGroup], companies: Sequence[Sharers], gpus: float
) -> Shares:
    """Returns the shares of time that maximise z, every job advancing at least at `need * z`.

    No job runs more than all the time, and no more than `gpus` GPUs are in use. Among solutions
    of equal z more work is done rather than less.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, eye_array, hstack, vstack

    count, pairs = len(groups), len(companies)
    jobs = np.array([g.jobs for g in groups], np.float64)
    size = np.array([g.gpus for g in groups], np.float64)
    needs = np.array([g.need for g in groups], np.float64)
    busy, speed = _rows(companies, jobs)
    own = eye_array(count)
    time = hstack([own, busy, csr_array((count, 1))])
    used = np.concatenate([jobs * size, [size[c.host] for c in companies], [0.0]])
    advance = hstack([own, speed, csr_array(-needs[:, None])])
    work = np.concatenate([jobs * size, (jobs * size) @ speed]) / max(1.0, gpus)
    cost = -np.concatenate([USE_ALL * work / max(1.0, work.max(initial=0.0)), [1.0]])
    solved = linprog(
        cost,
        A_ub=vstack([time, csr_array(used[None, :]), -advance], format="csr"),
        b_ub=np.concatenate([np.ones(count), [gpus], np.zeros(count)]),
        bounds=(0, None),
        method="highs",
    )
    # All zeros is a solution, and time bounds every one.
    assert solved.success and solved.x is not None, solved.message
    x = np.maximum(solved.x, 0.0)
    return Shares(float(x[-1]), x[:count], x[count : count + pairs])


def _rows(companies: Sequence[Sharers], jobs: Floats) -> tuple[csr_array, csr_array]:
    """Returns, per job of a group, the time and the work that one of each company gives it.

    NOTE: sparse, each column has two entries: 2,000 waiting jobs make 100,000 companies.
    """
    from scipy.sparse import csr_array

    sides = np.array([(c.host, c.guest) for c in companies], np.int64).reshape(-1, 2).T
    guests, host_speed, guest_speed = np.array([c[2:] for c in companies]).reshape(-1, 3).T
    columns = np.arange(len(companies))
    places = (sides.ravel(), np.concatenate([columns, columns]))
    shape = (len(jobs), len(companies))
    host_jobs, guest_jobs = jobs[sides]
    busy = np.concatenate([1 / host_jobs, guests / guest_jobs])
    speed = np.concatenate([host_speed / host_jobs, guests * guest_speed / guest_jobs])
    # Entries of one place, of a company of alike jobs, are added.
    return csr_array((busy, places), shape), csr_array((speed, places), shape)
