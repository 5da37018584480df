"""Co-location sets that are stars: one job shares GPUs with smaller ones that share with no other.

Without such a rule a change of one job's speed would spread from neighbour to neighbour through the
cluster. At most two jobs share a GPU, every member is on the fewest possible nodes, and jobs of
equal size share only if they have exactly the same GPUs, with no other job. GIMBAL section 5.1;
ALGORITHMS 3.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dovetail.core.job import Shape
from dovetail.core.placement import Placement
from dovetail.core.plan import Draft
from dovetail.core.view import View
from dovetail.mechanisms.sharing.named_gpus import (
    Gpu,
    connected,
    fewest_nodes,
    fit_together,
    least_memory_bytes,
    neighbours,
    placement_on,
    try_place,
)

MEMBERS_MAX = 5
"""Most members of a set, as on the testbed of GIMBAL (ALGORITHMS 3.3)."""
SHARERS_MAX = 2


@dataclass(frozen=True, slots=True)
class Star:
    """A set of jobs that share: `centre` is the largest (of equals the first submitted)."""

    centre: int
    others: tuple[int, ...]

    @property
    def members(self) -> tuple[int, ...]:
        """Returns all of them, the centre first."""
        return (self.centre, *self.others)


def keeps_stars(view: View, draft: Draft, job: int, placement: Placement) -> bool:
    """Returns whether every co-location set is a star if a job is placed there."""
    sharers = draft.occupancy.sharers
    if any(len({*sharers(*gpu), job}) > SHARERS_MAX for gpu in placement.named()):
        return False
    near = neighbours(draft, job, placement)
    if not near:
        return True
    members = {job: placement, **{other: draft.placed[other] for other in near}}
    if any(p.nodes > fewest_nodes(view, p.gpus) for p in members.values()):
        return False
    if len(members) > MEMBERS_MAX:
        return False
    return all(_pair_allowed(draft, job, placement, other, near) for other in near)


def _pair_allowed(draft: Draft, job: int, placement: Placement, other: int, near: set[int]) -> bool:
    there = draft.placed[other]
    beyond = neighbours(draft, other, there) - {job}
    if there.gpus == placement.gpus:
        same = set(there.named()) == set(placement.named())
        return same and not beyond and near == {other}
    if there.gpus < placement.gpus:
        return not beyond
    smaller = all(draft.placed[third].gpus < there.gpus for third in beyond)
    return smaller and near == {other} and len(beyond) + 2 <= MEMBERS_MAX


def fits_beside(view: View, draft: Draft, job: int, placement: Placement) -> bool:
    """Returns whether a job and each of its neighbours fit the memory of their shared GPUs.

    With even samples: a new member ends the split of batches in its set.
    """
    memory = least_memory_bytes(view, placement)
    return all(
        fit_together(view, [(job, placement), (other, draft.placed[other].free())], memory)
        for other in neighbours(draft, job, placement)
    )


def stars_of(draft: Draft) -> list[Star]:
    """Returns the sets of jobs that share GPUs and are stars, by their first job."""
    placed, stars = draft.placed, list[Star]()
    seen: set[int] = set()
    shared = {h for holders in draft.occupancy.named.values() if len(holders) > 1 for h in holders}
    for first in sorted(shared):
        if first in seen:
            continue
        members = connected(draft.occupancy, first)
        seen |= members
        centre = min(members, key=lambda j: (-placed[j].gpus, j))
        others = tuple(sorted(members - {centre}))
        if all(neighbours(draft, j, placed[j]) == {centre} for j in others):
            stars.append(Star(centre, others))
    return stars


class StarSeats:
    """Places beside running jobs that keep every co-location set a star.

    `rank` orders the hosts, best first. Without `unequal` only jobs of equal size share.
    """

    def __init__(
        self, view: View, draft: Draft, rank: Callable[[int], float], *, unequal: bool
    ) -> None:
        self._view = view
        self._draft = draft
        self._rank = rank
        self._unequal = unequal
        self._hosts: list[int] | None = None
        self._shared: set[int] = set()

    def start(self, guest: int, welcome: Callable[[int], bool]) -> bool:
        """Starts a waiting job beside welcome jobs; False if it finds no place.

        Beside a job of its size; else inside a larger one; else over smaller ones and free GPUs.
        """
        if not self._view.jobs.shareable[guest]:
            return False
        for placement in self._candidates(guest, welcome):
            if self._sits(guest, placement):
                self._hosts = None
                return True
        return False

    def _candidates(self, guest: int, welcome: Callable[[int], bool]) -> Iterator[Placement]:
        shape, placed = self._view.shape(guest), self._draft.placed
        willing, shared = self._willing(), self._shared

        def equal(host: int) -> bool:
            return placed[host].gpus == shape.gpus and host not in shared

        hosts = [
            host
            for host in willing
            if (self._unequal or equal(host)) and welcome(host) and self._may_use(shape, host)
        ]
        for host in filter(equal, hosts):
            yield Placement(placed[host].spans, placed[host].gpu_ids)
        if not self._unequal:
            return
        for host in hosts:
            if placed[host].gpus > shape.gpus:
                inside = self._inside(host, shape.gpus)
                if inside:
                    yield placement_on(inside)
        smaller = [h for h in hosts if placed[h].gpus < shape.gpus]
        over = self._over(smaller, shape)
        if over:
            yield placement_on(over)

    def _willing(self) -> list[int]:
        """Returns the possible hosts by rank: shareable jobs on named GPUs of open nodes."""
        if self._hosts is None:
            closed, shareable = self._draft.occupancy.closed, self._view.jobs.shareable
            held = self._draft.occupancy.named.values()
            self._shared = {job for holders in held if len(holders) > 1 for job in holders}
            self._hosts = sorted(
                (
                    job
                    for job, p in self._draft.placed.items()
                    if p.gpu_ids
                    and shareable[job]
                    and p.interleave is None
                    and not any(node in closed for node, _ in p.spans)
                ),
                key=lambda job: (self._rank(job), job),
            )
        return self._hosts

    def _may_use(self, shape: Shape, host: int) -> bool:
        nodes = (node for node, _ in self._draft.placed[host].spans)
        return self._draft.occupancy.node_sets.holds(shape, nodes)

    def _inside(self, host: int, need: int) -> list[Gpu]:
        """Returns GPUs that a larger host has alone, on the fewest nodes."""
        sharers = self._draft.occupancy.sharers
        alone = [gpu for gpu in self._draft.placed[host].named() if len(sharers(*gpu)) == 1]
        on_node = Counter(node for node, _ in alone)
        whole = [node for node, count in on_node.items() if count >= need]
        if whole:
            best = min(whole, key=lambda node: (on_node[node], node))
            return [gpu for gpu in alone if gpu[0] == best][:need]
        alone.sort(key=lambda gpu: (-on_node[gpu[0]], gpu))
        return alone[:need] if len(alone) >= need else []

    def _over(self, hosts: Sequence[int], shape: Shape) -> list[Gpu]:
        """Returns free GPUs and those of smaller unshared hosts, on few nodes."""
        draft, cluster, need = self._draft, self._view.cluster, shape.gpus
        allowed = draft.occupancy.node_sets.union(shape)
        held: dict[int, list[Gpu]] = {}
        for host in hosts:
            if not neighbours(draft, host, draft.placed[host]):
                for gpu in draft.placed[host].named():
                    held.setdefault(gpu[0], []).append(gpu)
        if not held:
            return []
        free = draft.occupancy.free
        nodes = [
            node
            for node in range(cluster.nodes)
            if node not in draft.occupancy.closed and allowed >> node & 1
        ]
        room = {node: free[node] + len(held.get(node, ())) for node in nodes}
        fewest = fewest_nodes(self._view, need)
        # The nodes with most room first; among equals those with most free GPUs.
        chosen = sorted(nodes, key=lambda n: (-min(room[n], need), -free[n], n))[:fewest]
        taken: list[Gpu] = []
        for node in chosen:
            idle = [(node, gpu) for gpu in draft.occupancy.idle_ids(node, free[node])]
            taken += [*idle, *held.get(node, ())][: need - len(taken)]
        return taken if len(taken) == need else []

    def _sits(self, guest: int, placement: Placement) -> bool:
        view, draft = self._view, self._draft
        return (
            keeps_stars(view, draft, guest, placement)
            and fits_beside(view, draft, guest, placement)
            and try_place(draft, guest, placement)
        )
