"""The waiting jobs in the order in which Slurm tests them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dovetail.core.job import Floats, Ints, JobTable
from dovetail.mechanisms.slurm.fair_share import FairShares
from dovetail.mechanisms.slurm.parameters import SlurmParameters
from dovetail.mechanisms.slurm.priority import by_partition, priorities
from dovetail.mechanisms.slurm.site import NO_QOS, Site, places_by
from dovetail.mechanisms.slurm.usage import whole_s

NO_JOBS: Ints = np.zeros(0, np.int64)
NO_TIMES: Floats = np.zeros(0)


@dataclass(frozen=True, slots=True, eq=False)
class RankedQueue:
    """Waiting jobs in order: before what they may preempt, with a reservation, by the tier of their
    partition, by priority.

    Equal priorities go by submission (`since_s`), then by number. `leaves` are the numbers of
    their associations, `limit_s` their time limits. A job that names several partitions has a row
    for each: `choices` says for which of them.
    """

    jobs: Ints = field(default_factory=lambda: NO_JOBS)
    since_s: Floats = field(default_factory=lambda: NO_TIMES)
    limit_s: Floats = field(default_factory=lambda: NO_TIMES)
    leaves: Ints = field(default_factory=lambda: NO_JOBS)
    choices: Ints = field(default_factory=lambda: NO_JOBS)
    points: Ints = field(default_factory=lambda: NO_JOBS)

    def __len__(self) -> int:
        return len(self.jobs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RankedQueue) and all(
            np.array_equal(mine, theirs)
            for mine, theirs in zip(self._columns(), other._columns(), strict=True)
        )

    def __hash__(self) -> int:
        return hash(self.jobs.tobytes())

    def _columns(self) -> tuple[Ints | Floats, ...]:
        return self.jobs, self.since_s, self.limit_s, self.leaves, self.choices, self.points

    @property
    def job_count(self) -> int:
        """Returns how many jobs wait, each counted once."""
        return len(self) - int(np.count_nonzero(self.choices))

    @property
    def repeats(self) -> bool:
        """Returns whether some job has several rows."""
        return bool(self.choices.any())

    def without(self, jobs: Collection[int]) -> RankedQueue:
        """Returns the queue without some jobs."""
        if not len(jobs) or not len(self):
            return self
        stay = ~np.isin(self.jobs, list(jobs))
        return self if stay.all() else self.in_order(np.flatnonzero(stay))

    def joined(
        self,
        p: SlurmParameters,
        site: Site,
        table: JobTable,
        shares: FairShares,
        entries: Sequence[tuple[int, float]],
    ) -> RankedQueue:
        """Returns the queue with further jobs and when each began to wait, not yet ranked."""
        if not entries:
            return self
        rows = [
            (job, since_s, choice)
            for job, since_s in entries
            for choice in range(len(site.partitions_of(table.queue[job])))
        ]
        jobs = np.array([job for job, _, _ in rows], np.int64)
        limits = [limit_of(p, site, table, job) for job, _, _ in rows]
        fair = p.priority_weight_fairshare
        leaves = [shares.leaf(table, job) if fair else 0 for job, _, _ in rows]
        return replace(
            self,
            jobs=np.append(self.jobs, jobs),
            since_s=np.append(self.since_s, [since_s for _, since_s, _ in rows]),
            limit_s=np.append(self.limit_s, limits),
            leaves=np.append(self.leaves, np.array(leaves, np.int64)),
            choices=np.append(self.choices, np.array([n for _, _, n in rows], np.int64)),
        )

    def ranked(
        self, p: SlurmParameters, site: Site, table: JobTable, shares: FairShares
    ) -> RankedQueue:
        """Returns the queue in order of the priorities as of the last computation."""
        if not len(self):
            return replace(self, points=NO_JOBS)
        points = priorities(
            p,
            site,
            table,
            self.jobs,
            waited_s=whole_s(shares.calculated_s) - np.floor(self.since_s + 1e-6),
            fair=shares.factors[self.leaves] if p.priority_weight_fairshare else NO_TIMES,
            limit_s=self.limit_s,
            choices=self.choices,
        )
        keys: list[Ints | Floats] = [self.choices, self.jobs, self.since_s, -points]
        if any(queue.priority_tier != 1 for queue in site.queues.values()):
            tiers = by_partition(
                site, table, self.jobs, self.choices, lambda queue: queue.priority_tier
            )
            keys.append(-tiers)
        if site.reservations:
            keys.append(_ordinary(site, table, self.jobs, shares.calculated_s))
        if p.preempts and site.levels is not None:
            keys.append(-_levels(site, table, self.jobs))
        order = np.lexsort(keys)
        ranked = replace(self, points=points).in_order(order)
        if p.preempts and site.levels is None:
            places = places_by(site.by_preemption(table), ranked.jobs.tolist())
            ranked = ranked.in_order(np.array(places, np.int64))
        return ranked

    def in_order(self, rows: Ints) -> RankedQueue:
        """Returns the jobs of some rows, in their order."""
        points = self.points[rows] if len(self.points) == len(self.jobs) else NO_JOBS
        return RankedQueue(
            self.jobs[rows],
            self.since_s[rows],
            self.limit_s[rows],
            self.leaves[rows],
            self.choices[rows],
            points,
        )


def limit_of(p: SlurmParameters, site: Site, table: JobTable, job: int) -> float:
    """Returns a job's time limit, at most that of its QOS."""
    qos = site.qos.get(table.qos[job], NO_QOS)
    return p.limit_s(float(table.time_limit_s[job]), qos.max_time_s)


def _ordinary(site: Site, table: JobTable, jobs: Ints, now: float) -> Ints:
    """Returns 0 for jobs in a reservation and 1 for all others."""
    none = [site.reservation_of(table, job, now) is None for job in jobs.tolist()]
    return np.array(none, np.int64)


def _levels(site: Site, table: JobTable, jobs: Ints) -> Ints:
    assert site.levels is not None
    by_name = [site.levels.get(name, 0) for name in (*table.qos.names, "")]
    return np.array(by_name, np.int64)[table.qos.codes[jobs]]
