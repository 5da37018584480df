"""The shares of time that jobs should run alone or together: one linear programme.

Identical jobs form a group and share one variable: averaging a solution over such jobs gives a
solution, so nothing is lost. Gavel (OSDI 2020) sections 3 and 4;
ALGORITHMS section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dovetail.algorithms.arrays import Floats

if TYPE_CHECKING:
    from scipy.sparse import csr_array

USE_ALL = 1e-3
"""Weight of all work done beside the objective: it uses capacity that the objective leaves."""


class SharingGroup(NamedTuple):
    """Identical jobs of `gpus` GPUs each; every job must advance by `need` times the target."""

    jobs: int
    gpus: int
    need: float


class Sharers(NamedTuple):
    """A job of one group that shares its GPUs with `guests` jobs of another, and their speeds."""

    host: int
    guest: int
    guests: int
    host_speed: float
    guest_speed: float


class Shares(NamedTuple):
    """The share of time each job of a group runs alone, and the number of each pair that runs."""

    target: float
    alone: Floats
    together: Floats


def time_shares(
    groups: Sequence[SharingGroup], companies: Sequence[Sharers], gpus: float
) -> Shares:
    """Returns the shares of time that maximise z, where every job advances at least at `need * z`.

    No job runs more than all the time, and at most `gpus` GPUs are in use. Among solutions of equal
    z the one with more work is better.
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
    """Returns, per job of a group, the time and the work from one of each pair.

    NOTE: sparse, with two entries per column: 2,000 waiting jobs make 100,000 pairs.
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
    # Two entries of one place, of a pair within one group, are added.
    return csr_array((busy, places), shape), csr_array((speed, places), shape)
