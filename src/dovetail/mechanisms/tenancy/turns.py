"""Whose turn it is: waiting jobs in the order in which their tenants should start them.

First jobs within what is guaranteed to their queue; then by tier, and by priority of the queue;
then the tenant with the least load for its weight, at each level of the tree, where each turn adds
to its load. The jobs of one tenant go by priority and then as the inner policy ranks them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from dovetail.core.job import Floats, Ints
from dovetail.core.tenant_tree import ROOT, Class, qos_values
from dovetail.mechanisms.tenancy.standing import TenantStanding


@dataclass(frozen=True, slots=True)
class TenantTurn:
    """One job, and whether its GPUs are guaranteed to its queue."""

    job: int
    guaranteed: bool


def turns(standing: TenantStanding, gpus: int) -> list[TenantTurn]:
    """Returns the jobs whose turn it is, for about `gpus` GPUs of each tenant and shape."""
    lines = _lines(standing, gpus)
    load = standing.load.copy()
    load.resize(len(standing.tree), refcheck=False)
    found = _guaranteed(standing, lines, load)
    by_class: dict[Class, dict[int, list[int]]] = {}
    for tenant, jobs in lines.items():
        if jobs:
            by_class.setdefault(standing.tree.tenants[tenant].rank, {})[tenant] = jobs
    for rank in sorted(by_class):
        walk = _Walk(standing, by_class[rank], load)
        while (leaf := walk.leaf()) is not None:
            found.append(TenantTurn(walk.take(leaf), False))
    return found


def _guaranteed(
    standing: TenantStanding, lines: dict[int, list[int]], load: Floats
) -> list[TenantTurn]:
    """Takes the jobs within guarantees off their lines."""
    promises = standing.holdings.promises
    if not promises:
        return []
    path = standing.tree.path
    mine = {leaf: jobs for leaf, jobs in lines.items() if any(n in promises for n in path(leaf))}
    holdings, found = standing.holdings.copy(), []
    walk = _Walk(standing, mine, load)
    while (leaf := walk.leaf()) is not None:
        job = mine[leaf][0]
        shape = standing.view.shape(job)
        covered = holdings.guarantee(leaf, shape.gpu_type, shape.asked_gpus)
        if covered is None:
            walk.leave_out(leaf)
            continue
        holdings.add(leaf, covered[1], shape.asked_gpus)
        found.append(TenantTurn(walk.take(leaf), True))
    return found


def _lines(standing: TenantStanding, gpus: int) -> dict[int, list[int]]:
    """Returns the first jobs of each tenant and shape in their order, by tenant."""
    view = standing.view
    jobs, keys = view.waiting.columns()
    leaf_of, shape_of = standing.leaf_of, view.shape_of
    leaves = np.array([leaf_of[job] for job in jobs.tolist()], np.int64)
    shapes = np.array([shape_of[job] for job in jobs.tolist()], np.int64)
    behind = -(view.jobs.priority[jobs] + _of_qos(standing, jobs))
    order = np.lexsort((jobs, keys, behind, shapes, leaves))
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
    kept = kept[np.lexsort((jobs[kept], keys[kept], behind[kept], leaves[kept]))]
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
        self, standing: TenantStanding, lines: Mapping[int, list[int]], load: Floats
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

    def take(self, leaf: int) -> int:
        """Returns the next job of a tenant, and adds its GPUs to the loads."""
        job = self._lines[leaf].pop(0)
        for number in self._tree.path(leaf):
            self._load[number] += self._shape(job).asked_gpus
        if self._lines[leaf]:
            self._look_ahead(leaf)
        else:
            self.leave_out(leaf)
        return job

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

    def _standing(self, number: int) -> tuple[float, Sequence[str]]:
        tenant = self._tree.tenants[number]
        return (self._load[number] + self._next_gpus[number] / 2) / tenant.weight, tenant.path
