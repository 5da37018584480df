"""Where the tenants stand at one instant: what they hold, what they used, what is guaranteed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from dovetail.core.cluster import Cluster
from dovetail.core.gpu_parts import exact_sum
from dovetail.core.job import Floats
from dovetail.core.occupancy import Occupancy
from dovetail.core.placement import Placement
from dovetail.core.tenant_tree import TenantTree, tree_of
from dovetail.core.tenants import NORMAL
from dovetail.core.view import View

Guarantee = tuple[int, str, int]
"""A tenant above a job, the GPU type ("" for any) and the number that are guaranteed to it."""


class Holdings:
    """GPUs by tenant with a guarantee and by type; booked and given back as plans are tried."""

    def __init__(self, cluster: Cluster, tree: TenantTree) -> None:
        self._cluster, self._tree = cluster, tree
        self._held: dict[tuple[int, str], float] = {}
        self.promises: dict[int, dict[str, int]] = {
            number: dict(tenant.guaranteed)
            for number, tenant in enumerate(tree.tenants)
            if tenant.guaranteed
        }

    def copy(self) -> Holdings:
        """Returns the same holdings, to try something with."""
        other = Holdings.__new__(Holdings)
        other._cluster, other._tree, other.promises = self._cluster, self._tree, self.promises
        other._held = dict(self._held)
        return other

    def book(self, leaf: int, placement: Placement, sign: int = 1) -> None:
        """Adds a placement of a tenant, or takes it away."""
        for kind, gpus in self._by_type(placement).items():
            self.add(leaf, kind, sign * gpus)

    def add(self, leaf: int, kind: str, gpus: float) -> None:
        """Adds GPUs of a type ("" for an unknown one) to a tenant."""
        for tenant in self._tree.path(leaf):
            if tenant in self.promises:
                for key in {kind: 0, "": 0}:
                    held = self._held.get((tenant, key), 0)
                    self._held[tenant, key] = exact_sum(held + gpus)

    def guarantee(self, leaf: int, kind: str, gpus: float) -> Guarantee | None:
        """Returns a guarantee that covers `gpus` more GPUs of a type, if there is one.

        What is guaranteed are GPUs: a job without one has no claim.
        """
        for tenant in self._tree.path(leaf):
            for promised, most in self.promises.get(tenant, {}).items():
                fits = not promised or not kind or promised == kind
                held = exact_sum(self._held.get((tenant, promised), 0) + gpus)
                if gpus and fits and held <= most:
                    return tenant, promised or kind, most
        return None

    def is_lent(self, leaf: int, placement: Placement, beside: frozenset[int]) -> bool:
        """Returns whether GPUs of a job are more than what is guaranteed to its tenants.

        Guarantees of tenants in `beside` do not count: they are those of the job that wants them.
        """
        kinds = self._by_type(placement)
        for tenant in self._tree.path(leaf):
            if tenant in beside:
                continue
            for promised, most in self.promises.get(tenant, {}).items():
                counts = not promised or promised in kinds
                if counts and self._held.get((tenant, promised), 0) <= most:
                    return False
        return True

    def _by_type(self, placement: Placement) -> dict[str, float]:
        kinds: dict[str, float] = {}
        for node, gpus in placement.spans:
            kind = self._cluster.group_of(node).gpu_type
            kinds[kind] = kinds.get(kind, 0) + gpus
        if placement.gpu_part < 1.0:
            return {kind: exact_sum(gpus * placement.gpu_part) for kind, gpus in kinds.items()}
        return kinds


@dataclass(frozen=True)
class TenantStanding:
    """All tenants at one instant: the GPUs that each leaf holds, and that each tenant has used."""

    view: View
    tree: TenantTree
    leaf_of: Mapping[int, int]
    held: Floats
    used: Floats
    holdings: Holdings
    _could_run: dict[int, bool] = field(default_factory=dict)
    _empty: list[Occupancy] = field(default_factory=list)

    @staticmethod
    def of(view: View, used: Mapping[tuple[str, ...], float]) -> TenantStanding:
        """Returns how tenants stand, by what they used up to now."""
        tree = tree_of(view.cluster)
        running, waiting = view.progress.running(), view.waiting.columns()[0]
        rows = np.concatenate([running.jobs, waiting])
        leaves = tree.leaves(view.jobs, rows)
        count = len(running.jobs)
        held = np.bincount(leaves[:count], running.gpus, minlength=len(tree)).astype(np.float64)
        use = np.array([used.get(tenant.path, 0.0) for tenant in tree.tenants])
        holdings = Holdings(view.cluster, tree)
        leaf_of = dict(zip(rows.tolist(), leaves.tolist(), strict=True))
        if holdings.promises:
            for job, placement in view.running.items():
                holdings.book(leaf_of[job], placement)
        return TenantStanding(view, tree, leaf_of, held, tree.sums(use), holdings)

    def without(self, jobs: Collection[int]) -> TenantStanding:
        """Returns how tenants would stand if some running jobs were stopped."""
        held, holdings = self.held.copy(), self.holdings.copy()
        for job in jobs:
            placement = self.view.running[job]
            held[self.leaf_of[job]] -= placement.held_gpus
            if holdings.promises:
                holdings.book(self.leaf_of[job], placement, -1)
        return replace(self, held=held, holdings=holdings)

    def could_run(self, job: int) -> bool:
        """Returns whether a job could run now if nobody else did.

        Not if nodes are down, or reserved for others before it would end: GPUs that are kept for
        it, and the jobs behind it, would wait in vain.
        """
        view, known = self.view, self._could_run
        number = view.shape_of[job]
        if number not in known:
            if not self._empty:
                self._empty.append(view.plan.occupancy.emptied())
            known[number] = view.placing.find(self._empty[0], view.shape(job)) is not None
        return known[number]

    def demand(self) -> Floats:
        """Returns the GPUs that the jobs of each leaf hold or wait for."""
        asked = self.held.copy()
        for job in self.view.waiting.columns()[0].tolist():
            asked[self.leaf_of[job]] += self.view.shape(job).asked_gpus
        return asked

    def queue_of(self, leaf: int) -> int:
        """Returns the queue of a leaf."""
        tenants = self.tree.tenants
        return next((n for n in self.tree.path(leaf) if not tenants[n].account), leaf)


def is_alone(view: View) -> bool:
    """Returns whether there is one tenant, whose jobs have no ranks of their own."""
    cluster = view.cluster
    if len(cluster.queues) > 1 or cluster.accounts:
        return False
    # Jobs that are in no queue of the file are another tenant, equal to a queue without terms.
    terms = any(
        q.guaranteed or q.accounts or q.users or (q.tier, q.weight, q.priority) != (NORMAL, 1, 0)
        for q in cluster.queues
    )
    return not (terms or view.jobs.any_priority or any(q.priority for q in cluster.qos))
