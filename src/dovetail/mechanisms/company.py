"""Company on GPUs for policies that know no lengths: who is alone where, and how others join.

GPUs are shared by naming them, so a job that allows sharing is started on named GPUs.
`mechanisms.shared_gpus` does the same for policies that weigh lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dovetail.core.errors import IllegalPlan
from dovetail.core.placement import Placement, Spans
from dovetail.core.plan import Draft
from dovetail.core.view import View

Gpu = tuple[int, int]
"""(node, GPU id)."""


def utilisation(view: View, job: int) -> float:
    """Returns the part of a GPU's time a job uses, as far as sharing tells it.

    Two that use a part u each need 2u of the time of one GPU, so beside its like a job takes
    max(1, 2u) of the time it takes alone. What takes no longer at all uses half or less.
    """
    return view.physics.interference(job, 1, job, 1)[0] / 2


def start(view: View, draft: Draft, job: int) -> bool:
    """Starts a job on free GPUs by the placement rule; False if it finds no room."""
    spans = view.placing.find(draft.occupancy, view.shape(job))
    if spans is None:
        return False
    if view.jobs.shareable[job]:
        draft.place(job, _on(_idle(draft, spans)))
    else:
        draft.place(job, spans)
    return True


def seats(view: View, draft: Draft, job: int, welcome: Callable[[int], bool]) -> list[Gpu]:
    """Returns the GPUs that hold one job, welcome to the newcomer, with memory for both.

    By node and number. Only GPUs of the newcomer's type, on nodes open for work.
    """
    jobs, occupancy, cluster = view.jobs, draft.occupancy, view.cluster
    if not jobs.shareable[job]:
        return []
    gpu_type = view.shape(job).gpu_type
    guest = Placement(((0, int(jobs.gpus[job])),))
    good: dict[tuple[int, float], bool] = {}
    found: list[Gpu] = []
    for (node, gpu), holders in occupancy.named.items():
        if len(holders) > 1 or node in occupancy.closed:
            continue
        host, group = holders[0], cluster.group_of(node)
        if gpu_type and group.gpu_type != gpu_type:
            continue
        known = good.get((host, group.gpu_memory_bytes))
        if known is None:
            both = sorted([(job, guest), (host, occupancy.placement_of[host])], key=_job)
            known = bool(jobs.shareable[host]) and welcome(host)
            known = known and view.physics.fits_memory(both, group.gpu_memory_bytes)
            good[host, group.gpu_memory_bytes] = known
        if known:
            found.append((node, gpu))
    return sorted(found)


def start_beside(view: View, draft: Draft, job: int, where: Sequence[Gpu]) -> bool:
    """Starts a gang on the free GPUs there are, and on as many of these as it takes besides.

    Nodes that offer most come first. False, and nothing changes, if there are too few, if the
    gang may not be spread and would be, or where a quota or a host says no.
    """
    shape, occupancy = view.shape(job), draft.occupancy
    missing = max(0, shape.gpus - _free_gpus(view, draft, shape.gpu_type))
    if missing > len(where):
        return False
    on_node: dict[int, int] = {}
    for node, _ in where:
        on_node[node] = on_node.get(node, 0) + 1
    taken = sorted(where, key=lambda g: (-on_node[g[0]], g))[:missing]
    if missing < shape.gpus:
        spans = view.placing.find(occupancy, shape, shape.gpus - missing)
        if spans is None:
            return False
        taken += _idle(draft, spans)
    placement = _on(taken)
    fewest = -(-shape.gpus // max(view.cluster.installed))
    if view.placing.consolidate == "strict" and placement.nodes > fewest:
        return False
    try:
        draft.place(job, placement)
    except IllegalPlan:
        return False
    return True


def join(draft: Draft, guest: int, host: int) -> bool:
    """Starts a job on just the GPUs of another; False where a quota or a host says no."""
    there = draft.placed[host]
    try:
        draft.place(guest, Placement(there.spans, there.gpu_ids))
    except IllegalPlan:
        return False
    return True


def _job(occupant: tuple[int, Placement]) -> int:
    return occupant[0]


def _free_gpus(view: View, draft: Draft, gpu_type: str) -> int:
    occupancy, cluster = draft.occupancy, view.cluster
    if not gpu_type:
        return occupancy.free_gpus
    nodes = (n for n in range(cluster.nodes) if n not in occupancy.closed)
    return sum(occupancy.free[n] for n in nodes if cluster.group_of(n).gpu_type == gpu_type)


def _idle(draft: Draft, spans: Spans) -> list[Gpu]:
    """Returns the lowest idle GPUs of each node; a node comes once in what placement finds."""
    return [(node, gpu) for node, n in spans for gpu in draft.occupancy.idle_ids(node, n)]


def _on(gpus: Sequence[Gpu]) -> Placement:
    """Returns a placement on these GPUs, node by node in the order they were taken."""
    by_node: dict[int, list[int]] = {}
    for node, gpu in gpus:
        by_node.setdefault(node, []).append(gpu)
    spans = tuple((node, len(ids)) for node, ids in by_node.items())
    return Placement(spans, tuple(tuple(sorted(ids)) for ids in by_node.values()))
