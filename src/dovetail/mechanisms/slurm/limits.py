"""Limits of accounts, QOS and partitions on GPUs and jobs, and what running jobs hold of them.

A limit of an account holds for the accounts below it together, and a limit per user for each of
its users. A job over a limit waits, and does not hold up the jobs behind it (Slurm's
ESLURM_ACCOUNTING_POLICY).

Source: https://slurm.schedmd.com/resource_limits.html; `src/slurmctld/acct_policy.c`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from dovetail.core.job import JobTable
from dovetail.core.placement import Placement
from dovetail.mechanisms.slurm.site import NO_QOS, Site

Scope = tuple[str, ...]
"""What is limited: ("account", NAME), ("queue", NAME, TYPE), ..."""


class LimitUse(NamedTuple):
    """What one job takes of a limit."""

    scope: Scope
    amount: int
    most: int


@dataclass(slots=True)
class Limits:
    """What is held of each limit. Exists for one decision."""

    site: Site
    jobs: JobTable
    active: bool
    partitions: Mapping[int, str]
    held: dict[Scope, int] = field(default_factory=dict)

    @staticmethod
    def of(
        site: Site,
        jobs: JobTable,
        running: Mapping[int, Placement],
        partitions: Mapping[int, str] = MappingProxyType({}),
    ) -> Limits:
        """Returns the limits with what the running jobs hold.

        `partitions` has those of jobs that name several: where each runs or is tried.
        """
        limits = Limits(site, jobs, limits_anything(site), partitions)
        for job in running if limits.active else ():
            limits.book(job, 1)
        return limits

    def book(self, job: int, sign: int) -> None:
        """Adds a job that starts, or takes one away that stops."""
        if not self.active:
            return
        for demand in (*self.of_jobs(job), *self.of_gpus(job)):
            self.held[demand.scope] = self.held.get(demand.scope, 0) + sign * demand.amount

    def has_job_left(self, job: int) -> bool:
        """True if the user may run one more job (checked before nodes are looked for)."""
        return not self.active or all(self._fits(demand) for demand in self.of_jobs(job))

    def has_jobs_and_gpus_left(self, job: int) -> bool:
        """True if the job is within all limits."""
        return self.has_job_left(job) and self.has_gpus_left(job)

    def has_gpus_left(self, job: int) -> bool:
        """True if the job's GPUs are within all limits."""
        return not self.active or all(self._fits(demand) for demand in self.of_gpus(job))

    def _fits(self, demand: LimitUse) -> bool:
        return self.held.get(demand.scope, 0) + demand.amount <= demand.most

    def of_jobs(self, job: int) -> Iterator[LimitUse]:
        """Yields what a job takes of the limits on numbers of jobs."""
        name = self.jobs.qos[job]
        qos = self.site.qos.get(name, NO_QOS)
        if qos.max_jobs_per_user:
            yield LimitUse(("jobs", name, self.jobs.user[job]), 1, qos.max_jobs_per_user)

    def of_gpus(self, job: int) -> Iterator[LimitUse]:
        """Yields what a job takes of the limits on GPUs."""
        gpus, user = int(self.jobs.gpus[job]), self.jobs.user[job]
        name = self.jobs.qos[job]
        qos = self.site.qos.get(name, NO_QOS)
        if qos.max_gpus:
            yield LimitUse(("qos", name), gpus, qos.max_gpus)
        if qos.max_gpus_per_user:
            yield LimitUse(("qos", name, user), gpus, qos.max_gpus_per_user)
        for account in self.site.above.get(self.jobs.account[job], ()):
            spec = self.site.accounts[account]
            if spec.max_gpus:
                yield LimitUse(("account", account), gpus, spec.max_gpus)
            if spec.max_gpus_per_user:
                yield LimitUse(("account", account, user), gpus, spec.max_gpus_per_user)
        yield from self._of_queue(job, gpus)

    def _of_queue(self, job: int, gpus: int) -> Iterator[LimitUse]:
        name = self.partitions.get(job) or self.jobs.queue[job]
        kind = self.site.type_of(name, self.jobs.gpu_type[job])
        for queue_name in self.site.above_queue.get(name, ()):
            queue = self.site.queues[queue_name]
            if queue.quota_gpus:
                yield LimitUse(("queue", queue_name), gpus, queue.quota_gpus)
            for gpu_type, most in queue.limits:
                if gpu_type in ("", kind):
                    yield LimitUse(("queue", queue_name, gpu_type), gpus, most)


def limits_anything(site: Site) -> bool:
    """True if an account, a QOS or a partition limits GPUs or jobs."""
    return (
        any(a.max_gpus or a.max_gpus_per_user for a in site.accounts.values())
        or any(q.max_gpus or q.max_gpus_per_user or q.max_jobs_per_user for q in site.qos.values())
        or any(q.quota_gpus or q.limits for q in site.queues.values())
    )
