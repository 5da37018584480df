"""GPUs by name: which are idle, which jobs share them, and placements on them.

GPUs are shared by naming them, so a job that allows sharing is started on named GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail.core.beliefs import Neighbour
from dovetail.core.errors import IllegalPlan
from dovetail.core.job import Shape
from dovetail.core.node_sets import ANYWHERE
from dovetail.core.occupancy import Occupancy
from dovetail.core.placement import Placement, Spans
from dovetail.core.plan import Draft
from dovetail.core.view import View

Gpu = tuple[int, int]
"""(node, GPU id)."""


def idle_gpus(draft: Draft, spans: Spans) -> list[Gpu]:
    """Returns the lowest idle GPUs of each node; each node has one span."""
    return [(node, gpu) for node, n in spans for gpu in draft.occupancy.idle_ids(node, n)]


def placement_on(gpus: Sequence[Gpu], steps: int = 1) -> Placement:
    """Returns a placement on named GPUs; nodes in order of their first GPU."""
    by_node: dict[int, list[int]] = {}
    for node, gpu in gpus:
        by_node.setdefault(node, []).append(gpu)
    spans = tuple((node, len(ids)) for node, ids in by_node.items())
    return Placement(spans, tuple(tuple(sorted(ids)) for ids in by_node.values()), steps)


def try_place(draft: Draft, job: int, placement: Placement) -> bool:
    """Places a job; False where a quota, or the CPUs or memory of a host, refuses it."""
    try:
        draft.place(job, placement)
    except IllegalPlan:
        return False
    return True


def free_gpus(draft: Draft, shape: Shape) -> int:
    """Returns the number of free GPUs on the open nodes that a job of a shape may use together."""
    occupancy = draft.occupancy
    sets = occupancy.node_sets.of(shape)
    if sets == ANYWHERE:
        return occupancy.free_gpus
    free = [(n, gpus) for n, gpus in enumerate(occupancy.free) if n not in occupancy.closed]
    return max(sum(gpus for n, gpus in free if one >> n & 1) for one in sets)


def fewest_nodes(view: View, gpus: int) -> int:
    """Returns the least number of nodes that a gang of this size needs on this cluster."""
    return -(-gpus // max(view.cluster.installed))


def is_too_spread(view: View, placement: Placement) -> bool:
    """Returns whether a gang uses more nodes than it needs, where the run forbids that."""
    strict = view.placing.consolidate == "strict"
    return strict and placement.nodes > fewest_nodes(view, placement.gpus)


def neighbours(draft: Draft, job: int, placement: Placement) -> set[int]:
    """Returns the other jobs on the GPUs of a placement."""
    sharers = draft.occupancy.sharers
    return {other for gpu in placement.named() for other in sharers(*gpu)} - {job}


def connected(occupancy: Occupancy, job: int) -> set[int]:
    """Returns a job and all jobs that share GPUs with it, directly or through others."""
    members, frontier = {job}, [job]
    while frontier:
        placement = occupancy.placement_of[frontier.pop()]
        near = {j for gpu in placement.named() for j in occupancy.sharers(*gpu)} - members
        members |= near
        frontier.extend(near)
    return members


def fit_together(view: View, occupants: Iterable[Neighbour], memory_bytes: float) -> bool:
    """Returns whether jobs fit one GPU's memory.

    Physics gets the jobs in ascending order, so that sums of floats do not depend on the caller.
    """
    ordered = sorted(occupants, key=lambda occupant: occupant[0])
    return view.physics.memory.fits(ordered, memory_bytes)


def least_memory_bytes(view: View, placement: Placement) -> float:
    """Returns the memory of the smallest GPU of a placement."""
    return min(view.cluster.group_of(node).gpu_memory_bytes for node, _ in placement.spans)
