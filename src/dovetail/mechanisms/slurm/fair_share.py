"""The fair share of every association over time: its usage, and its factor in the fair tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from dovetail.core.job import Floats, JobTable
from dovetail.mechanisms.slurm.fair_tree import Association, FairTree
from dovetail.mechanisms.slurm.parameters import SlurmParameters, slurm_seconds
from dovetail.mechanisms.slurm.site import Site
from dovetail.mechanisms.slurm.usage import RunningShare, billed_per_s, decayed, used_since

NOBODY: Floats = np.zeros(0)
NOBODY.setflags(write=False)
EMPTY_TREE = FairTree.of((), ())


@dataclass(frozen=True, slots=True, eq=False)
class FairShares:
    """Usage and factor of each leaf of the tree, as of the last computation.

    `running` are the jobs whose usage since then is not booked yet. Associations that the cluster
    does not name join when their first job is submitted.
    """

    calculated_s: float = 0.0
    seen: tuple[Association, ...] = ()
    tree: FairTree = EMPTY_TREE
    usage: Floats = field(default_factory=lambda: NOBODY)
    factors: Floats = field(default_factory=lambda: NOBODY)
    running: Mapping[int, RunningShare] = field(default_factory=lambda: MappingProxyType({}))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, FairShares)
            and (self.calculated_s, self.seen, self.running)
            == (other.calculated_s, other.seen, other.running)
            and np.array_equal(self.usage, other.usage)
        )

    def __hash__(self) -> int:
        return hash((self.calculated_s, self.seen, self.usage.tobytes()))

    def at(self, p: SlurmParameters, now: float) -> FairShares:
        """Returns the shares after all computations due by now."""
        period_s = slurm_seconds(p.priority_calc_period)
        count = int((now - self.calculated_s) / period_s + 1e-9)
        if not count:
            return self
        then_s = self.calculated_s
        if not p.priority_weight_fairshare:
            return replace(self, calculated_s=then_s + count * period_s)
        usage, shares = self.usage, tuple(self.running.values())
        for _ in range(count):
            usage = decayed(usage, shares, then_s, then_s + period_s, p.decay_per_s)
            then_s += period_s
        return replace(self, calculated_s=then_s, usage=usage, factors=_factors(self.tree, usage))

    def without(self, p: SlurmParameters, jobs: Iterable[int], now: float) -> FairShares:
        """Returns the shares with the usage of jobs that stopped booked."""
        gone = [job for job in jobs if job in self.running]
        if not gone:
            return self
        usage = self.usage.copy()
        for job in gone:
            share = self.running[job]
            usage[share.leaf] += used_since(share, self.calculated_s, now, p.decay_per_s)
        left = {job: share for job, share in self.running.items() if job not in gone}
        return replace(self, usage=usage, running=MappingProxyType(left))

    def with_running(
        self,
        p: SlurmParameters,
        site: Site,
        table: JobTable,
        jobs: Sequence[tuple[int, float]],
    ) -> FairShares:
        """Returns the shares with jobs that started, each with its time."""
        if not jobs:
            return self
        joined = self.joined(site, table, [job for job, _ in jobs])
        begun = {
            job: RunningShare(
                start_s,
                joined.tree.leaf_of[association(table, job)],
                billed_per_s(p, site, table, job),
            )
            for job, start_s in jobs
        }
        return replace(joined, running=MappingProxyType({**joined.running, **begun}))

    def joined(self, site: Site, table: JobTable, jobs: Iterable[int]) -> FairShares:
        """Returns the shares with the associations of jobs in the tree."""
        tree = self.tree
        if tree is EMPTY_TREE:
            tree = FairTree.of(site.cluster.accounts, ())
        known = tree.leaf_of
        fresh = dict.fromkeys(
            pair for job in jobs if (pair := association(table, job)) not in known
        )
        if not fresh and tree is self.tree:
            return self
        seen = (*self.seen, *fresh)
        tree = FairTree.of(site.cluster.accounts, seen)
        usage = np.zeros(len(tree.leaf_of))
        usage[: len(self.usage)] = self.usage
        return replace(self, seen=seen, tree=tree, usage=usage, factors=_factors(tree, usage))

    def computed(self) -> FairShares:
        """Returns the shares with the factors of their usage."""
        return replace(self, factors=_factors(self.tree, self.usage))

    def leaf(self, table: JobTable, job: int) -> int:
        """Returns the number of a job's leaf."""
        return self.tree.leaf_of[association(table, job)]


def association(table: JobTable, job: int) -> Association:
    """Returns the account and the user of a job."""
    return table.account[job], table.user[job]


def _factors(tree: FairTree, usage: Floats) -> Floats:
    return np.array(tree.factors(usage.tolist()), np.float64)
