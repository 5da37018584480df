"""GPUs that jobs may be promised: the pool, what each queue may use, the GPUs of each type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.algorithms.admission import admitted
from dovetail.algorithms.regulation import guarantee
from dovetail.core.job import Bools, Ints, Labels, Shape
from dovetail.core.view import View


@dataclass(frozen=True, slots=True)
class GpuLimit:
    """At most `most` GPUs, or with `counts_jobs` jobs, for jobs with these codes in each column."""

    columns: tuple[tuple[Labels, frozenset[int]], ...]
    most: int
    counts_jobs: bool = False

    def members(self, jobs: Ints) -> Ints:
        """Returns the positions of the limited jobs."""
        found = np.ones(len(jobs), bool)
        for labels, codes in self.columns:
            found &= np.isin(labels.codes[jobs], list(codes))
        return np.flatnonzero(found)

    def limits(self, job: int) -> bool:
        """Returns whether a job counts."""
        return all(int(labels.codes[job]) in codes for labels, codes in self.columns)

    def adds(self, gpus: int) -> int:
        """Returns what a job on so many GPUs adds."""
        return 1 if self.counts_jobs else gpus


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
    return Pool(gpus - _held(view, staying(view)))


def _held(view: View, jobs: Sequence[int]) -> int:
    """Returns the GPUs of open nodes that jobs hold, one that two of them share counted once."""
    cluster, held, named = view.cluster, 0, set[tuple[int, int]]()
    for placement in (view.running[job] for job in jobs):
        if placement.gpu_ids:
            named.update(gpu for gpu in placement.named() if cluster.is_open(gpu[0]))
        else:
            held += sum(gpus for node, gpus in placement.spans if cluster.is_open(node))
    return held + len(named)


def is_limited(view: View) -> bool:
    """Returns whether queues or GPU types limit jobs, beside the size of the pool."""
    occupancy = view.plan.occupancy
    owned = occupancy.tenants is not None or occupancy.node_sets.groups_of
    return bool(owned or view.jobs.gpu_type.names)


def limits_tenants(view: View) -> bool:
    """Returns whether the cluster's file limits tenants, beside the nodes of queues and types."""
    return view.plan.occupancy.tenants is not None


def limits(view: View) -> list[GpuLimit]:
    """Returns all limits, less what jobs hold that may not be stopped: by tenant and GPU type."""
    if not is_limited(view):
        return []
    jobs, stay, sets = view.jobs, staying(view), view.plan.occupancy.node_sets
    limits_now = [*_of_tenants(view, stay), *_of_users(view, stay)]
    for code, name in enumerate(jobs.queue.names):
        if name in sets.groups_of:
            allowed = sets.union(Shape(1, groups=sets.groups_of[name]))
            column = (jobs.queue, frozenset((code,)))
            limits_now.append(GpuLimit((column,), _left(view, stay, allowed)))
    for code, kind in enumerate(jobs.gpu_type.names):
        allowed = sets.union(Shape(1, kind))
        column = (jobs.gpu_type, frozenset((code,)))
        limits_now.append(GpuLimit((column,), _left(view, stay, allowed)))
    return limits_now


def _of_tenants(view: View, stay: Sequence[int]) -> Iterator[GpuLimit]:
    """Yields the limits of whole queues, accounts and QOS."""
    tenants = view.plan.occupancy.tenants
    for label, values, most in () if tenants is None else tenants.shared_by():
        column = _column(view, label, values)
        if column[1]:
            yield _without(view, stay, GpuLimit((column,), most))


def _of_users(view: View, stay: Sequence[int]) -> Iterator[GpuLimit]:
    """Yields the limits of each user in an account or QOS, where present jobs could exceed them."""
    tenants, jobs = view.plan.occupancy.tenants, view.jobs
    kinds = () if tenants is None else tuple(tenants.for_each_user())
    if not kinds:
        return
    present = np.concatenate([view.progress.running().jobs, view.waiting.columns()[0]])
    for label, values, most, counts_jobs in kinds:
        column = _column(view, label, values)
        mine = present[np.isin(column[0].codes[present], list(column[1]))]
        users, row = np.unique(jobs.user.codes[mine], return_inverse=True)
        could = np.bincount(row.ravel(), None if counts_jobs else jobs.most_gpus[mine])
        for user in users[(could > most) & (users >= 0)].tolist():
            columns = (column, (jobs.user, frozenset((user,))))
            yield _without(view, stay, GpuLimit(columns, most, counts_jobs))


def _column(view: View, label: str, values: frozenset[str]) -> tuple[Labels, frozenset[int]]:
    labels: Labels = getattr(view.jobs, label)
    return labels, frozenset(code for code, name in enumerate(labels.names) if name in values)


def _without(view: View, stay: Sequence[int], limit: GpuLimit) -> GpuLimit:
    """Returns a limit less what the jobs hold that may not be stopped."""
    held = sum(limit.adds(view.running[j].gpus) for j in stay if limit.limits(j))
    return replace(limit, most=max(0, limit.most - held))


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
        self._left = [limit.most for limit in self._limits]
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
            if any(self._left[i] < self._adds(i, low) for i in touched):
                return False
            for i in touched:
                self._left[i] -= self._adds(i, low)
        self.gpus -= low
        return True

    def reserve(self, job: int) -> bool:
        """Reserves the rest of the budget for a job that does not fit; False if there is none.

        Nothing is reserved for a job that does not fit the empty cluster.
        """
        touched = self._touched(job) if self._limits else []
        low = self.least(job)
        if any(self._left[i] < 1 for i in touched):
            return False
        gpu_limits = (i for i in touched if not self._limits[i].counts_jobs)
        part = min([low, self.gpus, *(self._left[i] for i in gpu_limits)])
        if part <= 0 or not self.could_run(job):
            return False
        self.gpus -= part
        self.reserved += part
        for i in touched:
            part = min(self._adds(i, low), self._left[i])
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
        if any(self._left[i] + self._reserved_of[i] < self._adds(i, low) for i in touched):
            return False
        own = min(low, self.gpus)
        self.gpus -= own
        self.reserved -= low - own
        for i in touched:
            own = min(self._adds(i, low), self._left[i])
            self._left[i] -= own
            self._reserved_of[i] -= self._adds(i, low) - own
        return True

    def could_run(self, job: int) -> bool:
        """Returns whether the job's least share fits the empty cluster."""
        low = self.least(job)
        limits_of = (self._limits[i] for i in self._touched(job))
        return low <= self._whole and all(m.adds(low) <= m.most for m in limits_of)

    def _adds(self, limit: int, gpus: int) -> int:
        return self._limits[limit].adds(gpus)

    def _touched(self, job: int) -> list[int]:
        return [i for i, m in enumerate(self._limits) if m.limits(job)]


class LimitsLeft:
    """What is left of all limits while jobs are given GPUs one after another."""

    def __init__(self, view: View, beside: tuple[Ints, Ints] | None = None) -> None:
        self.limits = limits(view)
        self._left = [limit.most for limit in self.limits]
        for job, gpus in () if beside is None else zip(*beside, strict=True):
            if gpus:
                self._book(int(job), int(gpus))

    def take(self, job: int, gpus: int) -> bool:
        """Gives a job GPUs; returns False and changes nothing if a limit forbids it."""
        if any(
            left < limit.adds(gpus)
            for limit, left in zip(self.limits, self._left, strict=True)
            if limit.limits(job)
        ):
            return False
        self._book(job, gpus)
        return True

    def _book(self, job: int, gpus: int) -> None:
        for i, limit in enumerate(self.limits):
            if limit.limits(job):
                self._left[i] -= limit.adds(gpus)


def cut_to_limits(view: View, jobs: Ints, low: Ints, shares: Ints) -> Ints:
    """Returns the shares reduced to all limits on GPUs, none below `low`.

    The largest share above its least loses one GPU at a time.
    """
    cut = shares.copy()
    for limit in limits(view):
        if limit.counts_jobs:
            continue
        members = limit.members(jobs)
        over = int(cut[members].sum()) - limit.most
        while over > 0:
            above = np.where(cut[members] > low[members], cut[members], 0)
            if not above.any():
                break
            cut[members[int(np.argmax(above))]] -= 1
            over -= 1
    return cut


def admitted_within(
    view: View,
    jobs: Ints,
    sizes: Ints,
    pool: int,
    *,
    strict: bool = False,
    beside: tuple[Ints, Ints] | None = None,
) -> Bools:
    """Returns which jobs get their sizes from a pool and from all limits, in this order.

    `beside` are jobs with the GPUs that they keep, which count to the limits.

    With `strict` none behind the first that finds too few GPUs in the pool; a limit stops only
    the jobs that count to it.
    """
    if not limits_tenants(view):
        return admitted(sizes, pool, strict=strict)
    room, left, found = LimitsLeft(view, beside), pool, np.zeros(len(jobs), bool)
    for row, (job, gpus) in enumerate(zip(jobs.tolist(), sizes.tolist(), strict=True)):
        if gpus > left:
            if strict:
                break
        elif room.take(job, gpus):
            found[row] = True
            left -= gpus
    return found
