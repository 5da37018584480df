"""A cluster as Slurm sees it: partitions and reservations as sets of nodes, normalised factors.

A set of nodes is an integer with bit `node`, as in `core.occupancy`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key

from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable
from dovetail.core.node_sets import queues_of
from dovetail.core.tenants import AccountSpec, QosSpec, QueueSpec, ReservationSpec
from dovetail.core.units import NEVER_S

NO_QOS = QosSpec("")
NO_QUEUE = QueueSpec("")


@dataclass(frozen=True, slots=True)
class NodesSetAside:
    """A reservation: who may use its nodes must name it."""

    name: str
    start_s: float
    end_s: float
    nodes: int
    accounts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()

    def admits(self, account: str, user: str) -> bool:
        """True if a user of an account may run in it; in maintenance nobody may."""
        return account in self.accounts or user in self.users


@dataclass(frozen=True)
class Site:
    """What does not change while nodes come and go."""

    cluster: Cluster
    nodes: int
    queues: Mapping[str, QueueSpec]
    nodes_of_queue: Mapping[str, int]
    nodes_of_type: Mapping[str, int]
    qos: Mapping[str, QosSpec]
    accounts: Mapping[str, AccountSpec]
    above: Mapping[str, tuple[str, ...]]
    above_queue: Mapping[str, tuple[str, ...]]
    reservations: tuple[NodesSetAside, ...]
    levels: Mapping[str, int] | None
    """By QOS, how many of a chain of QOS it may preempt; None if they are in no such order."""

    @staticmethod
    def of(cluster: Cluster) -> Site:
        """Returns the site of a cluster."""
        everywhere = (1 << cluster.nodes) - 1
        by_group: dict[str, int] = {}
        by_type: dict[str, int] = {}
        for node in range(cluster.nodes):
            group = cluster.group_of(node)
            by_group[group.name] = by_group.get(group.name, 0) | 1 << node
            by_type[group.gpu_type] = by_type.get(group.gpu_type, 0) | 1 << node
        queues = {queue.name: queue for queue in cluster.queues}
        nodes_of_queue = {
            queue.name: _union(by_group.get(group, 0) for group in queue.groups)
            if queue.groups
            else everywhere
            for queue in cluster.queues
        }
        qos = {each.name: each for each in cluster.qos}
        accounts = {account.name: account for account in cluster.accounts}
        aside = tuple(_set_aside(r) for r in cluster.reservations)
        return Site(
            cluster=cluster,
            nodes=everywhere,
            queues=queues,
            nodes_of_queue=nodes_of_queue,
            nodes_of_type=by_type,
            qos=qos,
            accounts=accounts,
            above=_chains({name: account.parent for name, account in accounts.items()}),
            above_queue=_chains({name: queue.parent for name, queue in queues.items()}),
            reservations=aside,
            levels=_levels(qos),
        )

    def partitions_of(self, queue: str) -> tuple[str, ...]:
        """Returns the partitions that a job names: `a,b` are two."""
        if "," not in queue or queue in self.queues:
            return (queue,)
        return queues_of(queue)

    def nodes_for(self, queue: str) -> int:
        """Returns the nodes of a partition."""
        return self.nodes_of_queue.get(queue, self.nodes)

    def type_of(self, queue: str, gpu_type: str) -> str:
        """Returns the type of GPUs that a job gets; "" if it may get several."""
        nodes = self.nodes_of_queue.get(queue, self.nodes)
        kinds = [kind for kind, those in self.nodes_of_type.items() if those & nodes]
        return gpu_type or (kinds[0] if len(kinds) == 1 else "")

    def reservation_of(self, jobs: JobTable, job: int, now: float) -> NodesSetAside | None:
        """Returns the reservation that a job names and may use, until that is over."""
        if not self.reservations or not (name := jobs.reservation[job]):
            return None
        account, user = jobs.account[job], jobs.user[job]
        for each in self.reservations:
            if each.name == name and each.end_s > now and each.admits(account, user):
                return each
        return None

    def next_boundary_s(self, now: float) -> float:
        """Returns when the next reservation starts or ends."""
        times = [t for each in self.reservations for t in (each.start_s, each.end_s) if t > now]
        return min(times, default=NEVER_S)

    def boundary_since(self, then: float, now: float) -> bool:
        """True if a reservation started or ended after `then` and by `now`."""
        return any(
            then < t <= now for each in self.reservations for t in (each.start_s, each.end_s)
        )

    def may_preempt(self, qos: str, other: str) -> bool:
        """True if jobs of a QOS may stop jobs of the other."""
        return other in self.qos.get(qos, NO_QOS).preempts

    def exempt_until_s(self, qos: str, start_s: float, usual_s: float) -> float:
        """Returns from when on a job that started may be stopped."""
        own_s = self.qos.get(qos, NO_QOS).exempt_s
        return start_s + (usual_s if own_s is None else own_s)

    def by_preemption(self, jobs: JobTable) -> Callable[[int, int], int]:
        """Returns a comparison that puts a job before those that it may preempt."""

        def compare(one: int, other: int) -> int:
            mine, theirs = jobs.qos[one], jobs.qos[other]
            return self.may_preempt(theirs, mine) - self.may_preempt(mine, theirs)

        return compare


def places_by(compare: Callable[[int, int], int], jobs: Sequence[int]) -> list[int]:
    """Returns the places of jobs in order of priority, preemptors before what they may preempt.

    As in Slurm a merge sort whose comparison asks for preemption first and then for priority.
    """

    def before(one: int, other: int) -> int:
        return compare(jobs[one], jobs[other]) or one - other

    return sorted(range(len(jobs)), key=cmp_to_key(before))


def _union(sets: Iterable[int]) -> int:
    nodes = 0
    for each in sets:
        nodes |= each
    return nodes


def _chains(parents: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
    """Returns each account or queue with those above it."""
    return {name: _chain(name, parents) for name in parents}


def _chain(name: str, parents: Mapping[str, str]) -> tuple[str, ...]:
    chain: list[str] = []
    while name in parents and name not in chain:
        chain.append(name)
        name = parents[name]
    return tuple(chain)


def _set_aside(spec: ReservationSpec) -> NodesSetAside:
    nodes = _union(1 << node for node in spec.nodes)
    return NodesSetAside(spec.name, spec.start_s, spec.end_s, nodes, spec.accounts, spec.users)


def _levels(qos: Mapping[str, QosSpec]) -> Mapping[str, int] | None:
    """Returns how many QOS each may preempt, if QOS of higher level preempt all of lower level."""
    level = {name: len(set(each.preempts) & qos.keys()) for name, each in qos.items()}
    for name, each in qos.items():
        below = {other for other in qos if level[other] < level[name]}
        if set(each.preempts) & qos.keys() != below:
            return None
    return level
