"""The hard limits of tenants: what each may hold at most, and the nodes that are closed to it.

Limits are counters of GPUs (or jobs) that a placement adds to: a queue and all queues above it, by
GPU type where a limit says so; an account and those above it; a user, also within an account or
QOS; a QOS. Nodes are closed to jobs before and during reservations of others.

A job counts by its labels alone, so jobs that are alike in them share one shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from dovetail.core.cluster import Cluster
from dovetail.core.errors import IllegalPlan
from dovetail.core.gpu_parts import exact_sum
from dovetail.core.job import Floats, JobTable, Shape
from dovetail.core.node_sets import NodeSets, types_of
from dovetail.core.placement import Placement
from dovetail.core.tenants import ANY_USER, AccountSpec, QosSpec, QueueSpec, UserLimits

EVERY_NODE = -1
"""The bit set of all nodes."""
OWNER_LABELS = ("queue", "account", "qos", "user", "reservation")
"""The labels that decide which limits a job counts to, as in a `Shape`."""
Owner = tuple[str, str, str, str, str]
"""The values of these labels."""


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `most` GPUs of a type ("" for any), or at most so many jobs."""

    name: str
    most: int
    gpu_type: str = ""
    counts_jobs: bool = False

    def __str__(self) -> str:
        what = "job" if self.counts_jobs else f"{self.gpu_type} GPU".strip()
        return f"{self.name} may hold {self.most} {what}{'' if self.most == 1 else 's'}"


class TenantLimits:
    """The counters of all limits of a cluster, and the nodes closed to some of its jobs.

    `now` gives the time, for reservations; without it they are not in force.
    """

    def __init__(self, cluster: Cluster, jobs: JobTable) -> None:
        self._cluster, self._jobs = cluster, jobs
        self._queues = {q.name: q for q in cluster.queues}
        self._accounts = {a.name: a for a in cluster.accounts}
        self._qos = {q.name: q for q in cluster.qos}
        self._users = {u.name: u for u in cluster.users}
        self._number: dict[tuple[str, str, str], int] = {}
        self._members: dict[Owner, tuple[int, ...]] = {}
        self._sets = NodeSets(cluster)
        self._types = {g.gpu_type for g in cluster.groups if g.gpu_type}
        self._of_type = {kind: self._nodes_where("gpu_type", (kind,)) for kind in self._types}
        self._reserved = tuple(
            sum(1 << n for n in dict.fromkeys(r.nodes)) for r in cluster.reservations
        )
        self.limits: list[Limit] = []
        self.held: list[float] = []
        self.now: Callable[[], float] | None = None
        self.length_s: list[float] = []
        self.labels = tuple(self._labels())

    @staticmethod
    def of(cluster: Cluster, jobs: JobTable) -> TenantLimits | None:
        """Returns the limits of a cluster, None if no job is limited."""
        limits = TenantLimits(cluster, jobs)
        return limits if limits.labels else None

    def _labels(self) -> Iterator[str]:
        """Yields the labels on which limits depend."""
        cluster = self._cluster
        owners: tuple[AccountSpec | QosSpec, ...] = (*cluster.accounts, *cluster.qos)
        by_user = bool(cluster.users) or any(_limits_users(spec) for spec in owners)
        if any(q.quota_gpus or q.limits for q in cluster.queues):
            yield "queue"
        if any(a.max_gpus or a.max_gpus_per_user for a in cluster.accounts) or self._reserved:
            yield "account"
        if any(q.max_gpus or _limits_users(q) for q in cluster.qos):
            yield "qos"
        if by_user or self._reserved:
            yield "user"
        if self._reserved:
            yield "reservation"

    def emptied(self) -> TenantLimits:
        """Returns the same limits with nothing held."""
        empty = self.copy()
        empty.held = [0] * len(self.held)
        return empty

    def copy(self) -> TenantLimits:
        """Returns the same limits with the same held, to try something with."""
        other = TenantLimits.__new__(TenantLimits)
        vars(other).update(vars(self))
        # Both add limits of users as they appear, each to lists of its own.
        other.held, other.limits = list(self.held), list(self.limits)
        other._number, other._members = dict(self._number), dict(self._members)
        return other

    @property
    def has_reservations(self) -> bool:
        """True if nodes are closed to some jobs for some time."""
        return bool(self._reserved)

    def bounds_s(self, jobs: JobTable, rows: slice) -> Floats:
        """Returns how long jobs may run: by their limit, else by the forecast, else for ever."""
        bounds = jobs.time_limit_s[rows].copy()
        for row, job in enumerate(range(len(jobs))[rows]):
            if bounds[row] == inf and job < len(self.length_s):
                bounds[row] = self.length_s[job]
        return bounds

    def shaped(self, shape: Shape, job: int) -> Shape:
        """Returns a shape with what limits a job as a tenant's."""
        queue, account, qos, user, reservation = self.owner(job)
        return replace(
            shape,
            queue=queue,
            account=account,
            qos=qos,
            user=user,
            reservation=reservation,
            length_s=self._length_s(job) if self.has_reservations else inf,
        )

    def owner(self, job: int) -> Owner:
        """Returns the labels of a job that limits depend on."""
        jobs, used = self._jobs, self.labels
        values = [getattr(jobs, n)[job] if n in used else "" for n in OWNER_LABELS]
        queue, account, qos, user, reservation = values
        return queue, account, qos, user, reservation

    def room(self, shape: Shape, need: float) -> bool:
        """True if no counter of any GPU type forbids `need` more GPUs."""
        return self.over(shape, need) is None

    def over(self, shape: Shape, need: float) -> Limit | None:
        """Returns a limit on GPUs of any type, or on jobs, that forbids `need` more GPUs."""
        for number in self._members_of(_owner_of(shape)):
            if not self.limits[number].gpu_type and self.forbids(number, need):
                return self.limits[number]
        return None

    def counters(self, shape: Shape) -> tuple[int, ...]:
        """Returns the numbers of the limits that count all GPUs of a job wherever it runs."""
        numbers, limits = self._members_of(_owner_of(shape)), self.limits
        return tuple(n for n in numbers if limits[n].gpu_type in ("", shape.gpu_type))

    def forbids(self, number: int, need: float) -> bool:
        """Returns whether a limit forbids a job with `need` more GPUs."""
        limit = self.limits[number]
        return exact_sum(self.held[number] + (1 if limit.counts_jobs else need)) > limit.most

    def expect(self, number: int, need: float) -> None:
        """Counts a job that will run on `need` GPUs."""
        more = 1 if self.limits[number].counts_jobs else need
        self.held[number] = exact_sum(self.held[number] + more)

    def full(self, shape: Shape, need: float) -> str:
        """Returns the limit that keeps a job from `need` GPUs, in words; empty if there is none.

        A limit on a type is named only if the job asks for that type.
        """
        for number in self.counters(shape):
            if self.forbids(number, need):
                return f"{self.limits[number]} and holds {self.held[number]:g}"
        return ""

    def kept_for(self, shape: Shape, need: float) -> str:
        """Returns whom nodes are kept for, in words, if they leave a job fewer than `need` GPUs."""
        if not self._reserved or self.now is None:
            return ""
        closed = self._closed(_owner_of(shape), shape.length_s)
        mine = self._sets.union(shape)
        left = sum(
            gpus
            for node, gpus in enumerate(self._cluster.installed)
            if mine >> node & 1 and not closed >> node & 1
        )
        if left >= need:
            return ""
        if shape.reservation in (r.name for r in self._cluster.reservations):
            return f"its reservation {shape.reservation} has not begun, or has too few GPUs"
        specs = zip(self._cluster.reservations, self._reserved, strict=True)
        now = self.now()
        names = [r.name for r, nodes in specs if r.end_s > now and nodes & closed & mine]
        return f"nodes that it could use are kept for {', '.join(names)}"

    def exceeded_by(self, shape: Shape) -> Limit | None:
        """Returns a limit that a job of a shape exceeds by itself, on any GPUs that it may have."""
        for number in self._members_of(_owner_of(shape)):
            limit = self.limits[number]
            applies = not limit.gpu_type or (
                bool(shape.gpu_type) and types_of(shape.gpu_type) == types_of(limit.gpu_type)
            )
            if applies and (1 if limit.counts_jobs else shape.asked_gpus) > limit.most:
                return limit
        return None

    def nodes(self, shape: Shape, need: float) -> int:
        """Returns the bit set of nodes where a job may start on `need` GPUs.

        Nodes whose GPU type would go over a limit with all of them are left out.
        """
        owner = _owner_of(shape)
        allowed = EVERY_NODE & ~self._closed(owner, shape.length_s)
        for number in self._members_of(owner):
            limit = self.limits[number]
            if limit.gpu_type and exact_sum(self.held[number] + need) > limit.most:
                allowed &= ~self._of_type.get(limit.gpu_type, 0)
        return allowed

    def check(self, job: int, placement: Placement, before: Placement | None) -> None:
        """Raises IllegalPlan if a job may not have a placement.

        A node on which it runs is not closed to it.
        """
        owner, name = self.owner(job), self._jobs.job_id[job]
        for number in self._members_of(owner):
            limit = self.limits[number]
            if exact_sum(self.held[number] + self._adds(limit, placement)) > limit.most:
                raise IllegalPlan(f"job {name}: {limit}, and not more")
        if not self.has_reservations:
            return
        closed = self._closed(owner, self._length_s(job))
        mine = {} if before is None else before.by_node()
        for node, gpus in placement.by_node().items():
            if closed >> node & 1 and gpus > mine.get(node, 0):
                raise IllegalPlan(f"job {name}: node {node} is reserved")

    def book(self, job: int, placement: Placement, sign: int) -> None:
        """Adds a placement to the counters, or takes it away."""
        for number in self._members_of(self.owner(job)):
            more = sign * self._adds(self.limits[number], placement)
            self.held[number] = exact_sum(self.held[number] + more)

    def faults(self, placed: Mapping[int, Placement]) -> list[str]:
        """Returns what is wrong with the counters, as sentences."""
        count: list[float] = [0] * len(self.held)
        for job, placement in placed.items():
            for number in self._members_of(self.owner(job)):
                more = self._adds(self.limits[number], placement)
                count[number] = exact_sum(count[number] + more)
        held = [*self.held, *[0] * (len(self.limits) - len(self.held))]
        rows = zip(self.limits, count, held, strict=True)
        return [
            f"{limit}: {now} are held, {booked} are counted"
            for limit, now, booked in rows
            if now > limit.most or now != booked
        ]

    def booked(self) -> tuple[tuple[str, float], ...]:
        """Returns what is held of each limit, where anything is."""
        pairs = zip(self.limits, self.held, strict=True)
        return tuple(sorted((str(limit), held) for limit, held in pairs if held))

    def shared_by(self) -> Iterator[tuple[str, frozenset[str], int]]:
        """Yields (label, values, most GPUs) of the limits on whole queues, accounts and QOS."""
        for name, queue in sorted(self._queues.items()):
            reach = self._reach(queue) if queue.limits else None
            most = [gpus for gpus in (_most(queue), reach) if gpus is not None]
            if most:
                yield "queue", _below(self._queues, name), min(most)
        for name, account in sorted(self._accounts.items()):
            if account.max_gpus:
                yield "account", _below(self._accounts, name), account.max_gpus
        for name, qos in sorted(self._qos.items()):
            if qos.max_gpus:
                yield "qos", frozenset((name,)), qos.max_gpus

    def for_each_user(self) -> Iterator[tuple[str, frozenset[str], int, bool]]:
        """Yields (label, values, most GPUs or jobs, whether jobs count) of the limits by user."""
        for name, account in sorted(self._accounts.items()):
            if account.max_gpus_per_user:
                values = _below(self._accounts, name)
                yield "account", values, account.max_gpus_per_user, False
        for name, qos in sorted(self._qos.items()):
            if qos.max_gpus_per_user:
                yield "qos", frozenset((name,)), qos.max_gpus_per_user, False
            if qos.max_jobs_per_user:
                yield "qos", frozenset((name,)), qos.max_jobs_per_user, True
        own = frozenset(self._users) - {ANY_USER}
        for name, limits in sorted(self._users.items()):
            values = frozenset((name,)) if name != ANY_USER else self._named_users() - own
            if limits.max_gpus:
                yield "user", values, limits.max_gpus, False
            if limits.max_jobs:
                yield "user", values, limits.max_jobs, True

    def _named_users(self) -> frozenset[str]:
        return frozenset(name for name in self._jobs.user.names if name)

    def _limits_of(self, user: str) -> UserLimits | None:
        """Returns the limits of a user over the whole cluster; jobs without a user have none."""
        return (self._users.get(user) or self._users.get(ANY_USER)) if user else None

    def _reach(self, queue: QueueSpec) -> int:
        """Returns the GPUs of the nodes of a queue, each type up to its limit."""
        cluster, by_type = self._cluster, dict(queue.limits)
        home = self._sets.union(Shape(1, groups=self._sets.groups_of.get(queue.name, ())))
        has: dict[str, int] = {}
        for node, gpus in enumerate(cluster.installed):
            if home >> node & 1:
                kind = cluster.group_of(node).gpu_type
                has[kind] = has.get(kind, 0) + gpus
        return sum(min(n, by_type.get(k, n)) if k else n for k, n in has.items())

    def edges_s(self) -> list[float]:
        """Returns the instants at which reservations begin or end, in order."""
        found = {t for r in self._cluster.reservations for t in (r.start_s, r.end_s)}
        return sorted(found)

    def _adds(self, limit: Limit, placement: Placement) -> float:
        if limit.counts_jobs:
            return 1
        if not limit.gpu_type:
            return placement.held_gpus
        group_of, kind = self._cluster.group_of, limit.gpu_type
        gpus = sum(gpus for node, gpus in placement.spans if group_of(node).gpu_type == kind)
        return gpus if placement.gpu_part == 1.0 else exact_sum(gpus * placement.gpu_part)

    def _length_s(self, job: int) -> float:
        return float(self.bounds_s(self._jobs, slice(job, job + 1))[0])

    def _nodes_where(self, field: str, values: Sequence[str]) -> int:
        cluster = self._cluster
        chosen = (n for n in range(cluster.nodes) if getattr(cluster.group_of(n), field) in values)
        return sum(1 << node for node in chosen)

    def _closed(self, owner: Owner, length_s: float) -> int:
        """Returns the nodes that are reserved for others before a job would end."""
        if not self._reserved or self.now is None:
            return 0
        now = self.now()
        account, user, wanted = owner[1], owner[3], owner[4]
        closed = own = 0
        waits = False
        for spec, nodes in zip(self._cluster.reservations, self._reserved, strict=True):
            if spec.end_s <= now:
                continue
            admitted = spec.admits(account, user)
            if spec.name == wanted and admitted:
                waits = True
                own |= nodes if spec.start_s <= now else 0
            elif spec.start_s < now + length_s and not admitted:
                closed |= nodes
        # A job that names a reservation runs there and nowhere else, until it is over.
        return closed | ~own if waits else closed

    def _members_of(self, owner: Owner) -> tuple[int, ...]:
        members = self._members.get(owner)
        if members is None:
            members = self._members[owner] = tuple(self._counters(owner))
        return members

    def _counters(self, owner: Owner) -> Iterator[int]:
        queue, account, qos, user, _ = owner
        for name in _path(self._queues, queue):
            spec = self._queues[name]
            yield from self._typed(f"queue {name}", _most(spec), spec.limits)
        for name in _path(self._accounts, account):
            yield from self._typed(f"account {name}", self._accounts[name].max_gpus or None, ())
            per_user = self._accounts[name].max_gpus_per_user
            if per_user and user:
                yield from self._typed(f"user {user} in account {name}", per_user, ())
        if qos in self._qos:
            of_qos = self._qos[qos]
            yield from self._typed(f"qos {qos}", of_qos.max_gpus or None, ())
            if of_qos.max_gpus_per_user and user:
                yield from self._typed(f"user {user} in qos {qos}", of_qos.max_gpus_per_user, ())
            if of_qos.max_jobs_per_user and user:
                limit = Limit(f"user {user} in qos {qos}", of_qos.max_jobs_per_user, "", True)
                yield self._counter(limit)
        of_user = self._limits_of(user)
        if of_user is not None and of_user.max_gpus:
            yield self._counter(Limit(f"user {user}", of_user.max_gpus))
        if of_user is not None and of_user.max_jobs:
            yield self._counter(Limit(f"user {user}", of_user.max_jobs, "", True))

    def _typed(
        self, name: str, most: int | None, by_type: Sequence[tuple[str, int]]
    ) -> Iterator[int]:
        if most is not None:
            yield self._counter(Limit(name, most))
        for kind, gpus in by_type:
            if kind:
                yield self._counter(Limit(name, gpus, kind))

    def _counter(self, limit: Limit) -> int:
        key = (limit.name, limit.gpu_type, "jobs" if limit.counts_jobs else "gpus")
        number = self._number.get(key)
        if number is None:
            number = self._number[key] = len(self.limits)
            self.limits.append(limit)
            self.held.append(0)
        return number


def _owner_of(shape: Shape) -> Owner:
    return shape.queue, shape.account, shape.qos, shape.user, shape.reservation


def _limits_users(spec: AccountSpec | QosSpec) -> bool:
    by_jobs = isinstance(spec, QosSpec) and spec.max_jobs_per_user
    return bool(spec.max_gpus_per_user or by_jobs)


def _most(spec: QueueSpec | AccountSpec) -> int | None:
    """Returns the most GPUs of any type that a queue or account may hold, None for no limit."""
    if isinstance(spec, AccountSpec):
        return spec.max_gpus or None
    limits = [gpus for kind, gpus in spec.limits if not kind]
    if spec.quota_gpus:
        limits.append(spec.quota_gpus)
    return min(limits, default=None)


def _below(specs: Mapping[str, QueueSpec] | Mapping[str, AccountSpec], name: str) -> frozenset[str]:
    """Returns a queue or account and those below it."""
    return frozenset(other for other in specs if name in _path(specs, other))


def _path(specs: Mapping[str, QueueSpec] | Mapping[str, AccountSpec], name: str) -> Iterator[str]:
    """Yields a queue or account and those above it; one without a parent may have no name."""
    while name in specs:
        yield name
        above = specs[name].parent
        if above == name:
            return
        name = above
