"""Who shares the cluster: queues, accounts, QOS and reservations, as a cluster's file states them.

These are values. Limits among them are legality (`core.legality`); order, borrowing and reclaim
are left to policies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

from dovetail.core.errors import InputError, nearest

GpusByType = tuple[tuple[str, int], ...]
"""GPUs by type, in the order of the file; the type "" is GPUs of any type."""
GUARANTEED, NORMAL, SPOT = "guaranteed", "normal", "spot"
TIERS = (GUARANTEED, NORMAL, SPOT)
"""Who loses GPUs last, to whom lent GPUs return first."""


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue (Slurm: partition) in the tree of queues.

    `quota_gpus` is the most GPUs its jobs may hold, 0 for no limit; `limits` the same by type,
    where 0 means none of that type.
    `guaranteed` GPUs are lent while they idle and come back on demand. `groups` are the node
    groups where its jobs may run; none means all. `weight` divides what is left among siblings.
    Jobs of its `accounts` and `users` belong to it, whatever queue they name.
    `priority_tier` is Slurm's: jobs of a partition with a higher one are tested before all others.
    """

    name: str
    quota_gpus: int = 0
    priority: float = 0.0
    parent: str = ""
    groups: tuple[str, ...] = ()
    weight: float = 1.0
    guaranteed: GpusByType = ()
    limits: GpusByType = ()
    tier: str = NORMAL
    accounts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    priority_tier: int = 1


def queue_of(queues: Sequence[QueueSpec], named: str, account: str, user: str) -> str:
    """Returns the queue of a job: that of its user, else that of its account, else as named."""
    of_user = next((q.name for q in queues if user in q.users), "")
    return of_user or next((q.name for q in queues if account in q.accounts), named)


@dataclass(frozen=True, slots=True)
class AccountSpec:
    """An account (Slurm: association) in the tree of accounts, with its users and their shares.

    `users` are (user, shares) pairs; none means that anybody may use it. Limits are GPUs held at
    one time, 0 for no limit.
    """

    name: str
    parent: str = ""
    shares: int = 1
    users: tuple[tuple[str, int], ...] = ()
    max_gpus: int = 0
    max_gpus_per_user: int = 0


@dataclass(frozen=True, slots=True)
class QosSpec:
    """A quality of service. `preempts` names the QOS whose jobs its jobs may stop.

    A job of this one that is to be stopped runs on for `grace_s`; for its first `exempt_s` it may
    not be stopped, None for as long as the policy says of all jobs. Both are for `slurm`.
    """

    name: str
    priority: float = 0.0
    preempts: tuple[str, ...] = ()
    usage_factor: float = 1.0
    max_gpus: int = 0
    max_gpus_per_user: int = 0
    max_jobs_per_user: int = 0
    max_time_s: float = inf
    grace_s: float = 0.0
    exempt_s: float | None = None


@dataclass(frozen=True, slots=True)
class ReservationSpec:
    """Nodes set aside from `start_s` to `end_s` for some accounts and users, or for maintenance.

    Nobody may use the nodes of a reservation without accounts and users: that is maintenance.
    A job that names a reservation runs there or waits for it; one that does not may use those
    that are open to it.
    """

    name: str
    start_s: float
    end_s: float
    nodes: tuple[int, ...]
    accounts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()

    def admits(self, account: str, user: str) -> bool:
        """Returns whether jobs of an account or a user may run on its nodes meanwhile."""
        return account in self.accounts or user in self.users


ANY_USER = "any"
"""The name of the limits of every user who has none of their own."""


@dataclass(frozen=True, slots=True)
class UserLimits:
    """What a user may hold at one time over all queues and accounts, 0 for no limit.

    Slurm: MaxTRES and MaxJobs of a user's association.
    """

    name: str
    max_gpus: int = 0
    max_jobs: int = 0


class Machines(Protocol):
    """A group of nodes that are alike, as far as tenants are concerned."""

    @property
    def name(self) -> str:
        """Returns the name of the group."""

    @property
    def nodes(self) -> int:
        """Returns the number of nodes."""

    @property
    def gpus_per_node(self) -> int:
        """Returns the GPUs of each node."""

    @property
    def gpu_type(self) -> str:
        """Returns the type of the GPUs."""


@dataclass(frozen=True, slots=True)
class Tenants:
    """All who share a cluster, as its file states them."""

    queues: tuple[QueueSpec, ...] = ()
    accounts: tuple[AccountSpec, ...] = ()
    qos: tuple[QosSpec, ...] = ()
    reservations: tuple[ReservationSpec, ...] = ()
    users: tuple[UserLimits, ...] = ()

    def check(self, file: str, groups: Sequence[Machines]) -> None:
        """Raises InputError for the first of names, trees and guarantees that cannot be."""
        _check_tree(file, "queue", [(q.name, q.parent) for q in self.queues])
        _check_tree(file, "account", [(a.name, a.parent) for a in self.accounts])
        _check_tree(file, "qos", [(q.name, "") for q in self.qos])
        _check_tree(file, "reservation", [(r.name, "") for r in self.reservations])
        _check_tree(file, "user", [(u.name, "") for u in self.users])
        for queue in self.queues:
            _check_guarantee(file, queue, self.queues, groups)
        _check_owners(file, self.queues)
        _check_total(file, self.queues, groups)
        names = [q.name for q in self.qos]
        for qos in self.qos:
            for other in qos.preempts:
                if other not in names:
                    where = f"{file}, qos '{qos.name}'"
                    raise InputError(where, f"unknown qos '{other}'", nearest(other, names))
        known = [a.name for a in self.accounts]
        for reservation in self.reservations:
            for account in reservation.accounts:
                if account not in known:
                    where = f"{file}, reservation '{reservation.name}'"
                    what = f"unknown account '{account}'"
                    raise InputError(where, what, nearest(account, known) or "add an [[account]]")


def _check_tree(file: str, kind: str, pairs: Sequence[tuple[str, str]]) -> None:
    parent_of = dict(pairs)
    if len(parent_of) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{file}, {kind} '{twice}'", "two have this name", "rename one")
    for name, parent in pairs:
        where = f"{file}, {kind} '{name}'"
        if parent and parent not in parent_of:
            raise InputError(where, f"unknown parent '{parent}'", nearest(parent, parent_of))
        path = [name]
        while parent:
            path.append(parent)
            if parent == name:
                raise InputError(where, f"its parents form a cycle: {' -> '.join(path)}")
            # A cycle further up is reported at the first queue that is part of it.
            parent = parent_of.get(parent, "") if path.count(parent) == 1 else ""


def _check_owners(file: str, queues: Sequence[QueueSpec]) -> None:
    for kind in ("accounts", "users"):
        owner: dict[str, str] = {}
        for queue in queues:
            for name in getattr(queue, kind):
                other = owner.setdefault(name, queue.name)
                if other != queue.name:
                    where = f"{file}, queue '{queue.name}'"
                    what = f"{kind[:-1]} '{name}' belongs to queue '{other}' already"
                    raise InputError(where, what, "name it in one queue")


def installed_by_type(groups: Sequence[Machines]) -> dict[str, int]:
    """Returns the installed GPUs by type; those of any type under the type ""."""
    gpus = {"": 0}
    for group in groups:
        count = group.nodes * group.gpus_per_node
        gpus[""] += count
        if group.gpu_type:
            gpus[group.gpu_type] = gpus.get(group.gpu_type, 0) + count
    return gpus


def _check_guarantee(
    file: str, queue: QueueSpec, queues: Sequence[QueueSpec], groups: Sequence[Machines]
) -> None:
    where = f"{file}, queue '{queue.name}'"
    own = [g for g in groups if not queue.groups or g.name in queue.groups]
    has, limit = installed_by_type(own), dict(queue.limits)
    if queue.quota_gpus:
        limit[""] = min(limit.get("", queue.quota_gpus), queue.quota_gpus)
    for kind, gpus in limit.items():
        if gpus > has.get(kind, 0):
            named = f"{kind} GPUs".strip()
            what = f"it may hold {gpus} {named}, and its nodes have {has.get(kind, 0)}"
            raise InputError(where, what, "lower the limit, or leave it out for none")
    for kind, gpus in queue.guaranteed:
        most = min(has.get(kind, 0), limit.get(kind, inf))
        if gpus > most:
            what = f"it is guaranteed {gpus} {kind} GPUs".replace("  ", " ")
            raise InputError(where, f"{what}, and may have at most {most:g}")
    _check_below(where, _promised(queues, queue.name), limit)
    children = [q for q in queues if q.parent == queue.name]
    for kind, gpus in _sum(children).items():
        mine = dict(queue.guaranteed).get(kind)
        if mine is not None and gpus > mine:
            named = f" {kind}" if kind else ""
            what = f"its queues are guaranteed {gpus}{named} GPUs, it has {mine} itself"
            raise InputError(where, what, "raise its guarantee, or lower theirs")


def _check_below(where: str, below: Mapping[str, int], limit: Mapping[str, float]) -> None:
    """Raises InputError if the guarantees of the queues below one are above its limits."""
    of_all = {"": sum(below.values())}
    for kind, gpus in {**below, **of_all}.items():
        if gpus > limit.get(kind, inf):
            what = f"the queues below it are guaranteed {gpus} {kind} GPUs".replace("  ", " ")
            mend = "raise its limit, or lower the guarantees"
            raise InputError(where, f"{what}, its limit is {limit[kind]:g}", mend)


def _check_total(file: str, queues: Sequence[QueueSpec], groups: Sequence[Machines]) -> None:
    """Raises InputError if the guarantees together are above the cluster."""
    has = installed_by_type(groups)
    total = _promised(queues, "")
    for kind, gpus in sorted(total.items()):
        if kind and gpus > has.get(kind, 0):
            what = f"the queues are guaranteed {gpus} {kind} GPUs, the cluster has {has[kind]}"
            raise InputError(file, what, "lower the guarantees")
    if sum(total.values()) > has[""]:
        what = f"the queues are guaranteed {sum(total.values())} GPUs, the cluster has {has['']}"
        raise InputError(file, what, "lower the guarantees")


def _promised(queues: Sequence[QueueSpec], parent: str) -> dict[str, int]:
    """Returns the GPUs by type that the queues below one must be able to have at once."""
    total: dict[str, int] = {}
    for queue in (q for q in queues if q.parent == parent):
        below = _promised(queues, queue.name)
        own = dict(queue.guaranteed)
        for kind in {**own, **below}:
            total[kind] = total.get(kind, 0) + max(own.get(kind, 0), below.get(kind, 0))
    return total


def _sum(queues: Sequence[QueueSpec]) -> Mapping[str, int]:
    total: dict[str, int] = {}
    for queue in queues:
        for kind, gpus in queue.guaranteed:
            total[kind] = total.get(kind, 0) + gpus
    return total
