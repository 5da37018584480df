"""The tree of tenants: queues, in each queue accounts, in each account users; and their shares.

Without accounts in the cluster's file the leaves are queues. Jobs whose queue the file does not
name belong to one more queue, called "". What a tenant deserves is weighted water filling: GPUs
guaranteed to it as far as it asks for them, and of what is left its part by weight, tier by tier.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf

import numpy as np

from dovetail.core.cluster import Cluster
from dovetail.core.job import Floats, Ints, JobTable
from dovetail.core.tenants import NORMAL, TIERS, AccountSpec, GpusByType, QueueSpec

ROOT = 0
Class = tuple[int, float]
"""The tier, as a position in `TIERS`, and the priority of a queue, negated: smaller goes first."""
MIDDLE: Class = (TIERS.index(NORMAL), 0.0)


@dataclass(frozen=True, slots=True)
class Tenant:
    """A node of the tree. `most` is the most GPUs it may hold; `path` its names from the top."""

    path: tuple[str, ...]
    parent: int
    weight: float = 1.0
    rank: Class = MIDDLE
    guaranteed: GpusByType = ()
    most: float = inf
    queue: str = ""
    account: str = ""
    user: str = ""


class TenantTree:
    """All tenants of a cluster. Users and accounts join as their first job appears.

    Numbers of tenants depend on that order and mean nothing; ties go by name.
    """

    def __init__(self, queues: Sequence[QueueSpec], accounts: Sequence[AccountSpec]) -> None:
        self.tenants: list[Tenant] = [Tenant((), -1)]
        self.levels = 0
        self._number: dict[tuple[int, str], int] = {}
        self._queues = {q.name: q for q in queues}
        self._accounts = {a.name: a for a in accounts}
        self._leaf: dict[tuple[str, str, str], int] = {}
        self._has_children = {q.parent for q in queues}
        for queue in queues:
            self._queue(queue.name)

    def __len__(self) -> int:
        return len(self.tenants)

    def leaf(self, queue: str, account: str, user: str) -> int:
        """Returns the tenant of a job."""
        key = (queue, account, user)
        number = self._leaf.get(key)
        if number is None:
            number = self._leaf[key] = self._new_leaf(*key)
        return number

    def leaves(self, jobs: JobTable, rows: Ints) -> Ints:
        """Returns the tenant of each job."""
        if not self._accounts:
            # NOTE: no sort of all waiting jobs at every decision; half of a run with a long queue.
            names = (*jobs.queue.names, "")
            return np.array([self.leaf(n, "", "") for n in names], np.int64)[jobs.queue.codes[rows]]
        labels = (jobs.queue, jobs.account, jobs.user)
        sizes = [len(label.names) + 1 for label in labels]
        # Each combination of labels as one number; a code is -1 where a job has no label.
        mixed = np.zeros(len(rows), np.int64)
        for label, size in zip(labels, sizes, strict=True):
            mixed = mixed * size + (label.codes[rows] + 1)
        kinds, row = np.unique(mixed, return_inverse=True)
        codes = zip(*(np.unravel_index(kinds, sizes)), strict=True)
        found = [
            self.leaf(*(v.names[c - 1] if c else "" for v, c in zip(labels, kind, strict=True)))
            for kind in codes
        ]
        return np.array(found, np.int64)[row] if len(rows) else np.zeros(0, np.int64)

    def path(self, tenant: int) -> Iterator[int]:
        """Yields a tenant and those above it, without the root."""
        while tenant > ROOT:
            yield tenant
            tenant = self.tenants[tenant].parent

    def children(self) -> list[list[int]]:
        """Returns the tenants below each one, in order of name."""
        below: list[list[int]] = [[] for _ in self.tenants]
        for number, tenant in enumerate(self.tenants):
            if number:
                below[tenant.parent].append(number)
        for numbers in below:
            numbers.sort(key=lambda n: self.tenants[n].path)
        return below

    def sums(self, of_leaves: Floats) -> Floats:
        """Returns the sum of a quantity over each tenant and those below it."""
        total = np.zeros(len(self.tenants))
        # By name: numbers depend on who came first, and so would the rounding of a sum.
        for leaf in sorted(np.flatnonzero(of_leaves).tolist(), key=self._path_of):
            for tenant in self.path(leaf):
                total[tenant] += of_leaves[leaf]
        return total

    def promised(self) -> list[int]:
        """Returns the GPUs that each tenant, or those below it, are guaranteed, whatever type."""
        below = self.children()

        def by_type(number: int) -> dict[str, int]:
            total: dict[str, int] = {}
            for child in below[number]:
                for kind, gpus in by_type(child).items():
                    total[kind] = total.get(kind, 0) + gpus
            for kind, gpus in self.tenants[number].guaranteed:
                total[kind] = max(total.get(kind, 0), gpus)
            sums[number] = sum(total.values())
            return total

        sums = [0] * len(self.tenants)
        by_type(ROOT)
        return sums

    def deserved(self, demand: Floats, gpus: float) -> Floats:
        """Returns the GPUs that each tenant deserves of `gpus`, by the demand of each leaf."""
        below = self.children()
        # Means over a period round, and may come out below zero.
        asked = np.maximum(demand, 0.0)
        for number in sorted(range(len(self.tenants)), key=self._depth, reverse=True):
            if below[number]:
                asked[number] = sum(asked[n] for n in below[number])
            asked[number] = min(asked[number], self.tenants[number].most)
        shares = np.zeros(len(self.tenants))
        shares[ROOT] = min(gpus, asked[ROOT])
        promised = self.promised()
        for number in sorted(range(len(self.tenants)), key=self._depth):
            for child in below[number]:
                shares[child] = min(asked[child], promised[child])
            self._divide(shares, asked, below[number], float(shares[number]))
        return shares

    def _divide(self, shares: Floats, asked: Floats, below: list[int], gpus: float) -> None:
        """Divides what the guarantees of those below a tenant leave of its GPUs."""
        promised = float(shares[below].sum())
        left = gpus - promised
        if left < 0:
            # Nodes are down, or a limit is below the guarantees: each loses in proportion.
            shares[below] *= gpus / promised
            return
        for rank in sorted({self.tenants[n].rank for n in below}):
            members = [n for n in below if self.tenants[n].rank == rank]
            weights = np.array([self.tenants[n].weight for n in members])
            more = weighted_filling(asked[members] - shares[members], weights, left)
            shares[members] += more
            left -= float(more.sum())

    def tiers(self, tenant: int) -> tuple[int, ...]:
        """Returns the tiers of a tenant and those above it, from the top; all of one length."""
        from_top = [self.tenants[n].rank[0] for n in self.path(tenant)][::-1]
        return (*from_top, *[MIDDLE[0]] * (self.levels - len(from_top)))

    def _path_of(self, number: int) -> tuple[str, ...]:
        return self.tenants[number].path

    def _depth(self, number: int) -> int:
        return len(self.tenants[number].path)

    def _add(self, parent: int, name: str, **fields: object) -> int:
        number = self._number.get((parent, name))
        if number is None:
            above = self.tenants[parent]
            known = {"queue": above.queue, "account": above.account}
            tenant = Tenant((*above.path, name), parent, **{**known, **fields})  # type: ignore[arg-type]
            number = self._number[parent, name] = len(self.tenants)
            self.tenants.append(tenant)
            self.levels = max(self.levels, len(tenant.path))
        return number

    def _queue(self, name: str) -> int:
        spec = self._queues.get(name)
        if spec is None:
            return self._add(ROOT, "")
        parent = self._queue(spec.parent) if spec.parent else ROOT
        limits = [gpus for kind, gpus in spec.limits if not kind]
        most = min([*limits, *([spec.quota_gpus] if spec.quota_gpus else [])], default=inf)
        return self._add(
            parent,
            name,
            weight=spec.weight,
            rank=(TIERS.index(spec.tier), -spec.priority),
            guaranteed=spec.guaranteed,
            most=most,
            queue=name,
        )

    def _new_leaf(self, queue: str, account: str, user: str) -> int:
        number = self._queue(queue)
        if queue in self._has_children and queue in self._queues:
            # Jobs of a queue with queues below it stand beside these.
            number = self._add(number, "", rank=MIDDLE)
        if not self._accounts:
            return number
        for name in reversed(list(self._account_path(account))):
            spec = self._accounts.get(name)
            shares = 1 if spec is None else spec.shares
            most = (spec.max_gpus if spec else 0) or inf
            number = self._add(number, f"account {name}", weight=shares, most=most, account=name)
        named = self._accounts.get(account)
        shares = dict(named.users).get(user, 1) if named else 1
        most = (named.max_gpus_per_user if named else 0) or inf
        return self._add(number, f"user {user}", weight=shares, most=most, user=user)

    def _account_path(self, name: str) -> Iterator[str]:
        yield name
        while name in self._accounts and self._accounts[name].parent:
            name = self._accounts[name].parent
            yield name


@lru_cache(maxsize=64)
def _tree(queues: tuple[QueueSpec, ...], accounts: tuple[AccountSpec, ...]) -> TenantTree:
    return TenantTree(queues, accounts)


def tree_of(cluster: Cluster) -> TenantTree:
    """Returns the tree of the tenants of a cluster."""
    return _tree(cluster.queues, cluster.accounts)


def weighted_filling(caps: Floats, weights: Floats, pool: float) -> Floats:
    """Returns shares of a pool by weight, none above its cap, until pool or caps are used up."""
    shares = np.zeros(len(caps))
    order = np.argsort(np.asarray(caps) / weights, kind="stable")
    weight_left, left = float(np.sum(weights)), max(0.0, pool)
    for at in order.tolist():
        if weight_left <= 0:
            break
        # The first in this order reaches its cap before all others.
        shares[at] = max(0.0, min(float(caps[at]), left * float(weights[at]) / weight_left))
        left -= shares[at]
        weight_left -= float(weights[at])
    return shares


def qos_values(cluster: Cluster) -> Mapping[str, tuple[float, float]]:
    """Returns the priority and the usage factor of each QOS."""
    return {q.name: (q.priority, q.usage_factor) for q in cluster.qos}
