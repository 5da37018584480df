"""What a submission may name of a cluster's tenants, and what it gets where it names nothing.

Every refusal is one sentence. Nothing is accepted and ignored: a queue, account, QOS, reservation
or priority that would have no effect here is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError, nearest
from dovetail.core.job import JobTable
from dovetail.core.occupancy import Occupancy
from dovetail.core.placing import Placing
from dovetail.core.policy import Policy, heeded, name_of
from dovetail.core.tenant_limits import TenantLimits
from dovetail.core.tenants import AccountSpec, queue_of
from dovetail.live.jobs.job_request import job_request
from dovetail.wire.spec import INFINITE, JobSpec

FILE = "start the cluster with --cluster FILE to have some"


class SubmitLimits:
    """The rules of a cluster and of its policy for what users submit."""

    def __init__(self, cluster: Cluster, policy: Policy | None = None) -> None:
        self._cluster, self._policy = cluster, policy

    def settled(self, where: str, spec: JobSpec, now: Callable[[], float]) -> JobSpec:
        """Returns a job with the account, the queue and the time limit that are implied.

        Raises InputError for what it may not name, and for more GPUs than it may ever hold.
        """
        self._check_names(where, spec, now)
        spec = replace(spec, account=self._account(where, spec))
        spec = replace(spec, queue=self._queue(where, spec))
        self._check_priority(where, spec)
        qos = next((q for q in self._cluster.qos if q.name == spec.qos), None)
        if qos is not None and qos.max_time_s < INFINITE:
            if qos.max_time_s < spec.time_limit_s < INFINITE:
                most = f"qos '{qos.name}' allows {qos.max_time_s / 3600:g} h"
                raise InputError(where, f"its time limit is too long: {most}", "shorten --time")
            spec = replace(spec, time_limit_s=min(spec.time_limit_s, qos.max_time_s))
        self._check_limits(where, spec)
        return spec

    def _check_names(self, where: str, spec: JobSpec, now: Callable[[], float]) -> None:
        cluster = self._cluster
        _check_name(where, "queue", spec.queue, [q.name for q in cluster.queues])
        _check_name(where, "account", spec.account, [a.name for a in cluster.accounts])
        _check_name(where, "qos", spec.qos, [q.name for q in cluster.qos])
        named = [r for r in cluster.reservations if r.accounts or r.users]
        _check_name(where, "reservation", spec.reservation, [r.name for r in named])
        for reservation in named:
            if reservation.name == spec.reservation and reservation.end_s <= now():
                raise InputError(where, f"reservation '{spec.reservation}' is over")

    def _account(self, where: str, spec: JobSpec) -> str:
        """Returns the account of a job: the one it names, or the only one its user may use."""
        accounts = self._cluster.accounts
        if not accounts:
            return ""
        mine = [a.name for a in accounts if _may_use(a, spec.user)]
        if spec.account and spec.account not in mine:
            what = f"user '{spec.user}' may not use account '{spec.account}'"
            raise InputError(where, what, _one_of(mine))
        if not spec.account and len(mine) != 1:
            what = f"user '{spec.user}' may use no account here"
            raise InputError(where, "it names no account" if mine else what, _one_of(mine))
        account = spec.account or mine[0]
        for reservation in self._cluster.reservations:
            named = reservation.name == spec.reservation
            if named and not reservation.admits(account, spec.user):
                what = f"reservation '{spec.reservation}' is not for account '{account}'"
                raise InputError(where, f"{what} or user '{spec.user}'")
        return account

    def _queue(self, where: str, spec: JobSpec) -> str:
        """Returns the queue of a job: that of its user or account, else the one it names."""
        queue = queue_of(self._cluster.queues, spec.queue, spec.account, spec.user)
        if spec.queue and queue != spec.queue:
            whose = f"jobs of user '{spec.user}' and account '{spec.account}'"
            raise InputError(where, f"{whose} belong to queue '{queue}'", "leave --queue out")
        return queue

    def _check_priority(self, where: str, spec: JobSpec) -> None:
        policy = self._policy
        if policy is None or not spec.priority or "priority" in heeded(policy):
            return
        name = name_of(policy)
        what = f"policy {name} ignores priorities, and the job states {spec.priority:g}"
        raise InputError(where, what, f"leave it out, or start with --policy tenancy:inner={name}")

    def _check_limits(self, where: str, spec: JobSpec) -> None:
        """Raises InputError for a job over its limits even if it were alone in the cluster."""
        jobs = JobTable.build([], np.empty(0), np.empty(0, np.int64))
        jobs.append([job_request(spec, 1, 0.0)])
        if TenantLimits.of(self._cluster, jobs) is None:
            return
        # NOTE: the tables of many nodes take milliseconds to make.
        tables = Occupancy(self._cluster, jobs)
        assert tables.tenants is not None
        shape = tables.shape(0)
        over = tables.tenants.over(shape, spec.gpus)
        if over is not None:
            raise InputError(where, f"it asks for {spec.gpus} GPUs, and {over}", "ask for fewer")
        if Placing("none").find(tables, shape) is None:
            what = f"{spec.gpus} GPUs are more than queue '{spec.queue}' may have on its nodes"
            raise InputError(where, what, "ask for fewer, or name another queue")


def _check_name(where: str, kind: str, name: str, known: Sequence[str]) -> None:
    if name and name not in known:
        hint = nearest(name, known) if known else f"there are none here; {FILE}"
        raise InputError(where, f"unknown {kind} '{name}'", hint)


def _may_use(account: AccountSpec, user: str) -> bool:
    return not account.users or any(name == user for name, _ in account.users)


def _one_of(names: Sequence[str]) -> str:
    return f"name one of: {', '.join(names)}" if names else "ask an administrator"
