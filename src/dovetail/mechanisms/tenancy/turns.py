"""Whose turn it is: waiting jobs in the order in which their tenants should start them.

First jobs within what is guaranteed to their queue. Then, at each level of the tree, by tier, by
priority of the queue, and then the tenant with the least load above its guarantee for its weight,
where each turn adds to its load. The jobs of one tenant go by priority and then as the inner policy
ranks them. Jobs over a limit of their tenants, and jobs whose nodes are down or reserved for
others, come last: they do not wait for GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType

import numpy as np

from dovetail.core.job import Floats, Ints
from dovetail.core.tenant_tree import ROOT, Class, qos_values
from dovetail.mechanisms.tenancy.standing import TenantStanding

NONE: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TenantTurn:
    """One job, whether its GPUs are guaranteed to its queue, and whether it does not wait for GPUs.

    It is `held` by limits of its tenants, or because its nodes are down or reserved for others.
    """

    job: int
    guaranteed: bool = False
    held: bool = False


def turns(
    standing: TenantStanding,
    gpus: int,
    guarded: Sequence[int] = (),
    running: Mapping[int, float] = NONE,
    ranks: Mapping[int, float] = NONE,
) -> list[TenantTurn]:
    """Returns the jobs whose turn it is, for about `gpus` GPUs of each tenant and shape.

    `guarded` jobs come first; none behind them takes what they need of the limits of a tenant.
    `running` jobs, with their keys, stand in line as if they waited, before others of their key.
    `ranks` replace the keys of the waiting jobs.
    """
    # All jobs within a guarantee are due at once, however few GPUs are free.
    promised = max(standing.tree.promised()) if standing.holdings.promises else 0
    lines = _lines(standing, max(gpus, promised), running, ranks)
    loads = _Loads(standing)
    room = _Room(standing, running)
    shape_of = standing.view.shape
    first = {job: room.takes(job) for job in guarded}
    lines = {leaf: [job for job in jobs if job not in first] for leaf, jobs in lines.items()}
    found = [TenantTurn(job) for job, fits in first.items() if fits]
    for turn in found:
        loads.add(standing.leaf_of[turn.job], shape_of(turn.job).asked_gpus)
    found += _guaranteed(standing, lines, loads, room)
    over = [TenantTurn(job, held=True) for job, fits in first.items() if not fits]
    walk = _Walk(standing, {leaf: jobs for leaf, jobs in lines.items() if jobs}, loads.shared)
    while (leaf := walk.leaf()) is not None:
        job = lines[leaf][0]
        fits = room.takes(job)
        (found if fits else over).append(TenantTurn(job, held=not fits))
        walk.pop(leaf)
        if fits:
            loads.add(leaf, shape_of(job).asked_gpus)
    return [*found, *over]


def _guaranteed(
    standing: TenantStanding, lines: dict[int, list[int]], loads: _Loads, room: _Room
) -> list[TenantTurn]:
    """Takes the jobs within guarantees off their lines."""
    promises = standing.holdings.promises
    if not promises:
        return []
    path = standing.tree.path
    mine = {
        leaf: list(jobs)
        for leaf, jobs in lines.items()
        if jobs and any(n in promises for n in path(leaf))
    }
    holdings, found = standing.holdings.copy(), []
    walk = _Walk(standing, mine, loads.whole)
    closed: set[tuple[int, str]] = set()
    while (leaf := walk.leaf()) is not None:
        job = mine[leaf][0]
        shape = standing.view.shape(job)
        kind = shape.gpu_type
        covered = holdings.guarantee(leaf, kind, shape.asked_gpus)
        waits = closed & {(leaf, ""), (leaf, kind)}
        if waits or covered is None or not room.takes(job):
            # The jobs of a tenant keep their order, but one type of GPU does not wait for another.
            closed.add((leaf, kind))
        else:
            holdings.add(leaf, covered[1], shape.asked_gpus)
            found.append(TenantTurn(job, guaranteed=True))
            loads.add(leaf, shape.asked_gpus)
        walk.pop(leaf)
    taken = {turn.job for turn in found}
    for leaf in mine:
        lines[leaf] = [job for job in lines[leaf] if job not in taken]
    return found


class _Loads:
    """What tenants hold, turns included, and have used, in GPUs."""

    def __init__(self, standing: TenantStanding) -> None:
        tree = self._tree = standing.tree
        self._held = tree.sums(standing.held)
        self._used = standing.used.copy()
        for column in (self._held, self._used):
            column.resize(len(tree), refcheck=False)
        self._promised = tree.promised()

    def add(self, leaf: int, gpus: float) -> None:
        """Adds the GPUs of a turn to a tenant and those above it."""
        for number in self._tree.path(leaf):
            self._held[number] += gpus

    def whole(self, number: int) -> float:
        """Returns all that a tenant holds and has used."""
        return float(self._held[number] + self._used[number])

    def shared(self, number: int) -> float:
        """Returns what it holds and has used of GPUs that are not guaranteed to it.

        What is deserved beside guarantees is divided by weight, so only that is compared.
        """
        promised = self._promised[number]
        return max(0.0, float(self._held[number]) - promised) + max(
            0.0, float(self._used[number]) - promised
        )


class _Room:
    """What the limits of tenants leave for further jobs, turn by turn.

    A job that a limit forbids closes it for all behind, lest smaller ones keep it waiting.
    """

    def __init__(self, standing: TenantStanding, leaving: Iterable[int]) -> None:
        view = self._view = standing.view
        self._could_run = standing.could_run
        # Without them every job could run on the empty cluster.
        self._closes = bool(view.cluster.states or view.cluster.reservations)
        limits = view.plan.occupancy.tenants
        if limits is not None:
            limits = limits.copy()
            for job in leaving:
                limits.book(job, view.running[job], -1)
        self._limits = limits
        self._closed: set[int] = set()

    def takes(self, job: int) -> bool:
        """Returns whether a job may hold its GPUs beside those before it, and counts it."""
        limits, shape = self._limits, self._view.shape(job)
        if self._closes and not self._could_run(job):
            return False
        if limits is None:
            return True
        counters = limits.counters(shape)
        forbid = [n for n in counters if n in self._closed or limits.forbids(n, shape.asked_gpus)]
        self._closed.update(forbid)
        if not forbid:
            for number in counters:
                limits.expect(number, shape.asked_gpus)
        return not forbid


def _lines(
    standing: TenantStanding,
    gpus: int,
    running: Mapping[int, float],
    ranks: Mapping[int, float],
) -> dict[int, list[int]]:
    """Returns the first jobs of each tenant and shape in their order, by tenant."""
    view = standing.view
    jobs, keys = view.waiting.columns()
    if ranks:
        keys = np.array([ranks[job] for job in jobs.tolist()], np.float64)
    waits = np.arange(len(jobs) + len(running)) < len(jobs)
    jobs = np.append(jobs, np.fromiter(running, np.int64, len(running)))
    keys = np.append(keys, np.fromiter(running.values(), np.float64, len(running)))
    leaf_of, shape_of = standing.leaf_of, view.shape_of
    leaves = np.array([leaf_of[job] for job in jobs.tolist()], np.int64)
    shapes = np.array([shape_of[job] for job in jobs.tolist()], np.int64)
    behind = -(view.jobs.priority[jobs] + _of_qos(standing, jobs))
    order = np.lexsort((jobs, waits, keys, behind, shapes, leaves))
    # Of jobs that are alike to the tables, no more than the GPUs could start; parts may find room
    # on GPUs that are not free.
    most = np.array(
        [
            max(1, ceil(gpus / shape.gpus)) if shape.whole_gpus else len(jobs)
            for shape in view.shapes
        ],
        np.int64,
    )
    kept = order[_place_in_group(leaves[order], shapes[order]) < most[shapes[order]]]
    kept = kept[np.lexsort((jobs[kept], waits[kept], keys[kept], behind[kept], leaves[kept]))]
    lines: dict[int, list[int]] = {}
    for leaf, job in zip(leaves[kept].tolist(), jobs[kept].tolist(), strict=True):
        lines.setdefault(leaf, []).append(job)
    return lines


def _of_qos(standing: TenantStanding, jobs: Ints) -> Floats:
    values = qos_values(standing.view.cluster)
    column = standing.view.jobs.qos
    table = np.array([*(values.get(name, (0.0, 1.0))[0] for name in column.names), 0.0])
    return np.asarray(table[column.codes[jobs]])


def _place_in_group(leaves: Ints, shapes: Ints) -> Ints:
    """Returns the position of each row among those of one tenant and shape, which lie together."""
    count = len(leaves)
    if not count:
        return leaves
    first = np.ones(count, bool)
    first[1:] = (leaves[1:] != leaves[:-1]) | (shapes[1:] != shapes[:-1])
    begin = np.maximum.accumulate(np.where(first, np.arange(count), 0))
    return np.asarray(np.arange(count) - begin)


class _Walk:
    """Goes down the tree to the tenant with the least load for its weight, turn by turn.

    A tenant is measured by its load with half of its next job (the divisors of Webster): by the
    load without it, or with all of it, shares of few GPUs would lean to light or heavy tenants.
    """

    def __init__(
        self,
        standing: TenantStanding,
        lines: Mapping[int, list[int]],
        load: Callable[[int], float],
    ) -> None:
        self._tree, self._lines, self._load = standing.tree, lines, load
        self._shape = standing.view.shape
        self._below: dict[int, list[int]] = {}
        self._next_gpus: dict[int, float] = {}
        for leaf in lines:
            for number in self._tree.path(leaf):
                above = self._below.setdefault(self._tree.tenants[number].parent, [])
                if number in above:
                    break
                above.append(number)
        for leaf in lines:
            self._look_ahead(leaf)

    def leaf(self) -> int | None:
        """Returns the tenant whose turn it is, None at the end."""
        number = ROOT
        if not self._below.get(ROOT):
            return None
        while number in self._below:
            number = min(self._below[number], key=self._standing)
        return number

    def pop(self, leaf: int) -> None:
        """Takes the next job of a tenant off its line."""
        self._lines[leaf].pop(0)
        if self._lines[leaf]:
            self._look_ahead(leaf)
        else:
            self.leave_out(leaf)

    def leave_out(self, leaf: int) -> None:
        """Gives a tenant no more turns."""
        for number in self._tree.path(leaf):
            parent = self._tree.tenants[number].parent
            self._below[parent].remove(number)
            if self._below[parent]:
                self._look_ahead(parent)
                return
            del self._below[parent]

    def _look_ahead(self, tenant: int) -> None:
        """Notes the size of the next job of a tenant and of those above it."""
        for number in self._tree.path(tenant):
            below = self._below.get(number)
            if below:
                known = [n for n in below if n in self._next_gpus]
                if known:
                    self._next_gpus[number] = self._next_gpus[min(known, key=self._standing)]
            elif self._lines.get(number):
                self._next_gpus[number] = self._shape(self._lines[number][0]).asked_gpus

    def _standing(self, number: int) -> tuple[Class, float, Sequence[str]]:
        tenant = self._tree.tenants[number]
        level = (self._load(number) + self._next_gpus[number] / 2) / tenant.weight
        return tenant.rank, level, tenant.path
