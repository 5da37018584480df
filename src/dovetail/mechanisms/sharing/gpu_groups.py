"""Groups of jobs on the same GPUs: packing, separating, and moving spread jobs.

Two jobs of equal size share exactly the same GPUs. Jobs of other sizes share only where the policy
allows it, in stars.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from dovetail.core.placement import Placement
from dovetail.core.plan import Draft
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import View
from dovetail.mechanisms.sharing.candidates import join, utilisation
from dovetail.mechanisms.sharing.named_gpus import (
    connected,
    fit_together,
    idle_gpus,
    least_memory_bytes,
    neighbours,
    placement_on,
)
from dovetail.mechanisms.sharing.stars import StarSeats

Kinds = tuple[int, int]


@dataclass(frozen=True, slots=True)
class GpuGroup:
    """The jobs on some GPUs, in order of start; `since_s` is when the last one was placed."""

    jobs: tuple[int, ...]
    gpus: int
    since_s: float


def gangs_of(view: View) -> list[GpuGroup]:
    """Returns the groups of running jobs, in order of their first submitted job."""
    since_s = view.progress.running_since_s
    groups: list[GpuGroup] = []
    seen: set[int] = set()
    for job, placement in sorted(view.running.items()):
        if job in seen:
            continue
        if not placement.gpu_ids:
            groups.append(GpuGroup((job,), placement.gpus, since_s(job)))
            continue
        members = connected(view.plan.occupancy, job)
        seen |= members
        jobs = tuple(sorted(members, key=lambda j: (since_s(j), j)))
        gpus = {gpu for j in jobs for gpu in view.running[j].named()}
        groups.append(GpuGroup(jobs, len(gpus), max(since_s(j) for j in jobs)))
    return groups


def kinds_of(view: View, one: int, other: int) -> Kinds:
    """Returns the kinds of two jobs, the lesser first."""
    kinds = view.physics.kind_of
    a, b = int(kinds[one]), int(kinds[other])
    return min(a, b), max(a, b)


def pays(view: View, *jobs: int) -> bool:
    """Returns whether jobs on shared GPUs do at least as much as the largest of them alone.

    This compares the sum of their speeds now, each over the speed alone and times its GPUs.
    """
    gpus = view.jobs.gpus
    total = sum(int(gpus[job]) * _kept(view, job) for job in jobs)
    return total >= max(int(gpus[job]) for job in jobs) * (1 - RELATIVE_TOLERANCE)


def _kept(view: View, job: int) -> float:
    """Returns the speed of a job now over its speed alone on the same GPUs."""
    here, sharers = view.running[job], view.plan.occupancy.sharers
    others = {other for gpu in here.named() for other in sharers(*gpu)} - {job}
    near = [(other, view.running[other]) for other in sorted(others)]
    speed = view.physics.rate
    return speed(job, here, near) / speed(job, here.free(), ())


class _Alike(NamedTuple):
    """Hosts that are equal for every guest; the least utilised sort first."""

    utilisation: float
    kind: int
    memory_bytes: float
    gpu_types: tuple[str, ...]
    groups: tuple[int, ...]


def pack(view: View, draft: Draft, waiting: Iterator[int], bad: frozenset[Kinds]) -> set[int]:
    """Starts waiting jobs beside jobs alone on as many GPUs, the least utilised hosts first.

    Not if the pair of kinds is `bad`, or owners, memory or GPU types forbid it. Returns the hosts.
    """
    hosts = _hosts(view, draft)
    taken: set[int] = set()
    kind_of, shape_of, shareable = view.physics.kind_of, view.shape_of, view.jobs.shareable
    # NOTE: thousands may wait, of few sorts; checking job by job took 40 times as long.
    welcome: dict[tuple[int, int], list[_Alike]] = {}
    for guest in waiting:
        if not hosts:
            break
        alike = hosts.get(int(view.jobs.gpus[guest]))
        if not alike or not shareable[guest]:
            continue
        sort = (shape_of[guest], int(kind_of[guest]))
        if sort not in welcome:
            welcome[sort] = [
                one
                for one in sorted(alike)
                if _may_join(view, draft, guest, alike[one][-1], one, bad)
            ]
        for one in welcome[sort]:
            if one not in alike:
                continue
            host = alike[one][-1]
            if join(draft, guest, host):
                taken.add(alike[one].pop())
                if not alike[one]:
                    del alike[one]
                break
    return taken


def pack_stars(view: View, draft: Draft, waiting: Iterator[int], bad: frozenset[Kinds]) -> set[int]:
    """Starts waiting jobs beside jobs of any size, as long as every set stays a star.

    The least utilised hosts come first. Returns the hosts.
    """
    kind_of = view.physics.kind_of
    seats = StarSeats(view, draft, lambda job: utilisation(view, job), unequal=True)
    failed: set[tuple[int, int]] = set()
    taken: set[int] = set()
    for guest in waiting:
        alike = (view.shape_of[guest], int(kind_of[guest]))
        if alike in failed or not view.jobs.shareable[guest]:
            continue
        if seats.start(guest, lambda host, guest=guest: kinds_of(view, guest, host) not in bad):  # type: ignore[misc]
            taken |= neighbours(draft, guest, draft.placed[guest])
        else:
            failed.add(alike)
    return taken


def _hosts(view: View, draft: Draft) -> dict[int, dict[_Alike, list[int]]]:
    """Returns the possible hosts by GPUs and sort, the first submitted last."""
    closed, cluster = draft.occupancy.closed, view.cluster
    owned = bool(draft.occupancy.node_sets.groups_of)
    hosts: dict[int, dict[_Alike, list[int]]] = {}
    for host, placement in sorted(draft.placed.items(), reverse=True):
        if not (view.jobs.shareable[host] and placement.gpu_ids and _alone(draft, placement)):
            continue
        nodes = [node for node, _ in placement.spans]
        if any(node in closed for node in nodes):
            continue
        groups = [cluster.group_of(node) for node in nodes]
        alike = _Alike(
            utilisation(view, host),
            int(view.physics.kind_of[host]),
            least_memory_bytes(view, placement),
            tuple(sorted({g.gpu_type for g in groups})),
            tuple(sorted({cluster.node_group[n] for n in nodes})) if owned else (),
        )
        hosts.setdefault(placement.gpus, {}).setdefault(alike, []).append(host)
    return hosts


def _may_join(
    view: View, draft: Draft, guest: int, host: int, alike: _Alike, bad: frozenset[Kinds]
) -> bool:
    there, sets = draft.placed[host], draft.occupancy.node_sets
    allowed = sets.holds(view.shape(guest), (node for node, _ in there.spans))
    if not allowed or kinds_of(view, guest, host) in bad:
        return False
    both = [(guest, Placement(there.spans, there.gpu_ids)), (host, there.free())]
    return fit_together(view, both, alike.memory_bytes)


def part(view: View, draft: Draft) -> None:
    """Moves the later submitted job of each pair to free GPUs, in order, while there are any."""
    if not draft.free_gpus:
        return
    pairs = {holders for holders in draft.occupancy.named.values() if len(holders) > 1}
    for guest in sorted({max(pair) for pair in pairs}):
        if view.preemptible[guest] and guest in view.running:
            spans = view.placing.find(draft.occupancy, view.shape(guest))
            if spans is not None:
                draft.place(guest, placement_on(idle_gpus(draft, spans)))
            if not draft.free_gpus:
                return


def defragment(view: View, draft: Draft) -> None:
    """Moves jobs that are alone on too many nodes to fewer nodes, while any job gains."""
    if view.placing.consolidate == "none":
        return
    largest, preemptible = max(view.cluster.installed), view.preemptible
    moved = True
    while moved and draft.free_gpus:
        spread = sorted(
            job
            for job, placement in draft.placed.items()
            if placement.nodes > 1 and placement.nodes > -(-placement.gpus // largest)
        )
        alone = [job for job in spread if preemptible[job] and _alone(draft, draft.placed[job])]
        moved = sum(_gather(view, draft, job) for job in alone) > 0


def _alone(draft: Draft, placement: Placement) -> bool:
    return all(len(draft.occupancy.sharers(*gpu)) == 1 for gpu in placement.named())


def _gather(view: View, draft: Draft, job: int) -> bool:
    savepoint, placement = draft.savepoint(), draft.placed[job]
    draft.remove(job)
    spans = view.placing.find(draft.occupancy, view.shape(job))
    if spans is not None and len(spans) < placement.nodes:
        draft.place(job, placement_on(idle_gpus(draft, spans)) if placement.gpu_ids else spans)
        return True
    draft.undo_to(savepoint)
    return False
