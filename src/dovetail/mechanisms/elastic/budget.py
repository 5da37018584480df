"""GPUs that jobs may be promised: the pool, what each queue may use, the GPUs of each type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.algorithms.regulation import guarantee
from dovetail.core.job import Ints, Labels, Shape
from dovetail.core.view import View


@dataclass(frozen=True, slots=True)
class GpuLimit:
    """At most `gpus` GPUs for the jobs with one of these codes in a column of labels."""

    labels: Labels
    codes: frozenset[int]
    gpus: int

    def members(self, jobs: Ints) -> Ints:
        """Returns the positions of the limited jobs."""
        return np.flatnonzero(np.isin(self.labels.codes[jobs], list(self.codes)))

    def limits(self, job: int) -> bool:
        """Returns whether a job counts."""
        return int(self.labels.codes[job]) in self.codes


def staying(view: View) -> list[int]:
    """Returns the running jobs that may not be stopped."""
    if view.all_preemptible:
        return []
    return [j for j in view.running if not view.preemptible[j]]


@dataclass(frozen=True, slots=True)
class Pool:
    """The GPUs to share out.

    With `per_machine`, shares are halves, quarters, ... of a machine or whole machines, and
    `machines` are their nodes.
    """

    gpus: int
    per_machine: int = 0
    machines: tuple[int, ...] = ()

    def booked(self, counts: Ints) -> Ints:
        """Returns the least allowed shares of at least `counts` GPUs."""
        if not self.per_machine:
            return counts
        whole = -(-counts // self.per_machine) * self.per_machine
        part = 1 << np.frexp(np.maximum(counts - 1, 0).astype(np.float64))[1].astype(np.int64)
        return np.where(counts > self.per_machine, whole, np.where(counts > 0, part, 0))

    def allowed(self, counts: Ints) -> Ints:
        """Returns the greatest allowed shares of at most `counts` GPUs."""
        return guarantee(counts, self.per_machine) if self.per_machine else counts


def pool_of(view: View) -> Pool:
    """Returns the GPUs of open nodes without those of jobs that may not be stopped."""
    cluster = view.cluster
    if not cluster.states and view.all_preemptible:
        return Pool(cluster.gpus)
    gpus = sum(g for n, g in enumerate(cluster.capacity) if cluster.is_open(n))
    spans = (span for j in staying(view) for span in view.running[j].spans)
    return Pool(gpus - sum(g for n, g in spans if cluster.is_open(n)))


def is_limited(view: View) -> bool:
    """Returns whether queues or GPU types limit jobs, beside the size of the pool."""
    occupancy = view.plan.occupancy
    owned = occupancy.tenants is not None or occupancy.node_sets.groups_of
    return bool(owned or view.jobs.gpu_type.names)


def limits(view: View) -> list[GpuLimit]:
    """Returns the limits by queue and GPU type, less the GPUs of jobs that may not be stopped."""
    if not is_limited(view):
        return []
    jobs, stay, sets = view.jobs, staying(view), view.plan.occupancy.node_sets
    limits_now = _of_tenants(view, stay)
    for code, name in enumerate(jobs.queue.names):
        if name in sets.groups_of:
            allowed = sets.union(Shape(1, groups=sets.groups_of[name]))
            codes = frozenset((code,))
            limits_now.append(GpuLimit(jobs.queue, codes, _left(view, stay, allowed)))
    for code, kind in enumerate(jobs.gpu_type.names):
        allowed = sets.union(Shape(1, kind))
        codes = frozenset((code,))
        limits_now.append(GpuLimit(jobs.gpu_type, codes, _left(view, stay, allowed)))
    return limits_now


def _of_tenants(view: View, stay: Sequence[int]) -> list[GpuLimit]:
    """Returns the limits of whole queues, accounts and QOS."""
    tenants = view.plan.occupancy.tenants
    found: list[GpuLimit] = []
    for label, values, most in () if tenants is None else tenants.shared_by():
        column: Labels = getattr(view.jobs, label)
        codes = frozenset(code for code, name in enumerate(column.names) if name in values)
        if codes:
            held = sum(view.running[j].gpus for j in stay if int(column.codes[j]) in codes)
            found.append(GpuLimit(column, codes, max(0, most - held)))
    return found


def _left(view: View, stay: Sequence[int], allowed: int) -> int:
    """Returns the GPUs of open nodes of a set, less those of jobs that stay."""
    cluster = view.cluster
    fitting = {n for n in range(cluster.nodes) if allowed >> n & 1 and cluster.is_open(n)}
    spans = (span for j in stay for span in view.running[j].spans)
    held = sum(g for n, g in spans if n in fitting)
    return max(0, sum(cluster.capacity[n] for n in fitting) - held)


class Budget:
    """The GPUs left to promise while jobs are served one after another."""

    def __init__(self, view: View, pool: Pool) -> None:
        self.gpus = self._whole = pool.gpus
        self._pool = pool
        self._booked: dict[int, int] = {}
        self._least = view.jobs.least_gpus
        self._limits = limits(view)
        self._left = [limit.gpus for limit in self._limits]
        self.reserved = 0
        self._reserved_of = [0] * len(self._limits)

    def least(self, job: int) -> int:
        """Returns the least share of a job."""
        low = int(self._least[job])
        if not self._pool.per_machine:
            return low
        if low not in self._booked:
            self._booked[low] = int(self._pool.booked(np.array([low]))[0])
        return self._booked[low]

    def promise(self, jobs: Sequence[int]) -> None:
        """Counts the least shares of jobs that have them already, even if too few are left."""
        if self._limits:
            for job in jobs:
                self.take(job)
        else:
            least = self._pool.booked(self._least[np.asarray(jobs, np.int64)])
            self.gpus = max(0, self.gpus - int(least.sum()))

    def take(self, job: int) -> bool:
        """Promises a job its least share; returns False and changes nothing if it does not fit."""
        low = self.least(job)
        if low > self.gpus:
            return False
        if self._limits:
            touched = self._touched(job)
            if any(self._left[i] < low for i in touched):
                return False
            for i in touched:
                self._left[i] -= low
        self.gpus -= low
        return True

    def reserve(self, job: int) -> bool:
        """Reserves the rest of the budget for a job that does not fit; False if there is none.

        Nothing is reserved for a job that does not fit the empty cluster.
        """
        touched = self._touched(job) if self._limits else []
        low = self.least(job)
        part = min([low, self.gpus, *(self._left[i] for i in touched)])
        if part <= 0 or not self.could_run(job):
            return False
        self.gpus -= part
        self.reserved += part
        for i in touched:
            part = min(low, self._left[i])
            self._left[i] -= part
            self._reserved_of[i] += part
        return True

    def backfill(self, job: int) -> bool:
        """Promises a job its least share from the rest and from reserved GPUs.

        Returns False and changes nothing if it does not fit.
        """
        low = self.least(job)
        if low > self.gpus + self.reserved:
            return False
        touched = self._touched(job) if self._limits else []
        if any(self._left[i] + self._reserved_of[i] < low for i in touched):
            return False
        own = min(low, self.gpus)
        self.gpus -= own
        self.reserved -= low - own
        for i in touched:
            own = min(low, self._left[i])
            self._left[i] -= own
            self._reserved_of[i] -= low - own
        return True

    def could_run(self, job: int) -> bool:
        """Returns whether the job's least share fits the empty cluster."""
        low = self.least(job)
        return low <= self._whole and all(low <= self._limits[i].gpus for i in self._touched(job))

    def _touched(self, job: int) -> list[int]:
        return [i for i, m in enumerate(self._limits) if m.limits(job)]
