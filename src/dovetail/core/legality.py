"""The rules a finished decision must keep, checked before it is applied.

The draft's tables have already refused GPUs that are not free; here are the rules about jobs,
powers, sharing and memory. Only what changed is looked at; `audit` looks at everything.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.core.gpu_parts import THOUSANDTHS, thousandths
from dovetail.core.occupancy import Occupancy
from dovetail.core.placement import Placement
from dovetail.core.plan import Change
from dovetail.core.view import View

SHARERS_MAX = 2
"""Jobs on one GPU without interleaving (SJF-BSBF equation 9, GIMBAL section 5.1)."""
PHASES = 4
"""Phases of an interleave set, one for each resource (Muri section 4.1)."""
Company = tuple[tuple[int, ...], float]
"""The jobs on a GPU, and its memory."""


def violations(
    view: View, changes: Sequence[Change], occupancy: Occupancy, powers: frozenset[str]
) -> list[str]:
    """Returns a sentence for each rule the changes break; none means the plan is legal."""
    faults: list[str] = []
    preemptible = view.preemptible
    fine: set[Company] = set()
    for change in changes:
        job, before, after = change
        if before is None:
            if job not in view.waiting:
                faults.append(f"{_name(view, job)} is not waiting")
                continue
        elif after is None:
            if "preempt" not in powers:
                faults.append(f"{_name(view, job)} is stopped without the power to preempt")
            elif not preemptible[job]:
                faults.append(f"{_name(view, job)} {_stays(view, job)}")
            continue
        if after is not None:
            _check_placement(view, job, before, after, powers, faults)
            # Parts of GPUs need no power to share; the tables keep their sum.
            if after.gpu_ids and after.gpu_part == 1.0:
                _check_sharing(view, job, after, occupancy, powers, fine, faults)
    return faults


def _name(view: View, job: int) -> str:
    return f"job {view.jobs.job_id[job]}"


def _stays(view: View, job: int) -> str:
    """Returns why a job may not be stopped."""
    if job in view.staying:
        return "may finish on its draining GPU"
    return "may finish on its draining node" if view.jobs.preemptible[job] else "is not preemptible"


def _check_placement(
    view: View,
    job: int,
    before: Placement | None,
    after: Placement,
    powers: frozenset[str],
    faults: list[str],
) -> None:
    shape = view.shape(job)
    if after.gpus != shape.gpus:
        _check_size(view, job, after, powers, faults)
    if after.gpu_part != shape.gpu_part:
        asked = f"{_name(view, job)} asked for {shape.gpu_part:g} of a GPU"
        faults.append(f"{asked} and got {after.gpu_part:g}")
    if before is not None:
        _check_move(view, job, before, after, powers, faults)
    _check_settings(view, job, after, powers, faults)
    if shape.gpu_type or view.plan.occupancy.closed:
        _check_nodes(view, job, before, after, faults)


def _check_size(
    view: View, job: int, after: Placement, powers: frozenset[str], faults: list[str]
) -> None:
    requested = view.shape(job).gpus
    low, high = int(view.jobs.min_gpus[job]), int(view.jobs.max_gpus[job])
    if "resize" not in powers or not view.jobs.elastic[job]:
        without = "" if "resize" in powers else " without the power to resize"
        faults.append(
            f"{_name(view, job)} asked for {requested} GPUs and got {after.gpus}{without}"
        )
    elif not low <= after.gpus <= high:
        faults.append(f"{_name(view, job)} takes {low} to {high} GPUs, not {after.gpus}")


def _check_move(
    view: View,
    job: int,
    before: Placement,
    after: Placement,
    powers: frozenset[str],
    faults: list[str],
) -> None:
    resized, moved = before.gpus != after.gpus, before.moves_to(after)
    if resized and "resize" not in powers:
        faults.append(f"{_name(view, job)} is resized without the power to")
    elif not resized and moved and "migrate" not in powers:
        faults.append(f"{_name(view, job)} is moved without the power to migrate")
    # On a draining node an elastic job may shrink, or grow elsewhere; it is not moved.
    # On a draining GPU it is not even resized: which of its GPUs it keeps, no plan says.
    alone = resized and job not in view.staying
    may = view.jobs.preemptible if alone else view.preemptible
    if moved and not may[job]:
        faults.append(f"{_name(view, job)} {_stays(view, job)} and would move")


def _check_settings(
    view: View, job: int, after: Placement, powers: frozenset[str], faults: list[str]
) -> None:
    if after.accumulation_steps > 1 and "share" not in powers and "change batch" not in powers:
        faults.append(f"{_name(view, job)} accumulates without the power to change its batch")
    if after.fractions and "restrict" not in powers:
        faults.append(f"{_name(view, job)} is restricted without the power to")
    if after.gpu_part < 1.0 and (after.fractions or after.interleave is not None):
        faults.append(f"{_name(view, job)} holds parts of GPUs and is restricted or takes turns")
    if after.interleave is not None and (after.fractions or after.samples):
        faults.append(f"{_name(view, job)} takes turns, whole and even, and is restricted or split")
    if after.batch_size and "change batch" not in powers:
        faults.append(f"{_name(view, job)} gets another batch without the power to change it")
    if after.samples:
        _check_samples(view, job, after, faults)


def _check_nodes(
    view: View, job: int, before: Placement | None, after: Placement, faults: list[str]
) -> None:
    occupancy, shape = view.plan.occupancy, view.shape(job)
    closed, allowed = occupancy.closed, occupancy.node_sets.union(shape)
    held = {} if before is None else before.by_node()
    for node, gpus in after.by_node().items():
        if node in closed and gpus > held.get(node, 0):
            faults.append(f"{_name(view, job)} would start on closed node {node}")
        if not allowed >> node & 1:
            faults.append(f"{_name(view, job)} needs {shape.gpu_type} GPUs; node {node} has none")


def _check_samples(view: View, job: int, after: Placement, faults: list[str]) -> None:
    # Samples of an unknown batch are shares, with any sum.
    batch, samples = after.batch_size or view.physics.batches.samples(job), sum(after.samples)
    if batch and samples != batch:
        faults.append(f"{_name(view, job)}: samples sum to {samples}, batch is {batch}")


def _check_sharing(
    view: View,
    job: int,
    after: Placement,
    occupancy: Occupancy,
    powers: frozenset[str],
    fine: set[Company],
    faults: list[str],
) -> None:
    for node, gpu in after.named():
        jobs = occupancy.sharers(node, gpu)
        if len(jobs) < 2:
            continue
        memory = view.cluster.group_of(node).gpu_memory_bytes
        if (jobs, memory) in fine:
            continue
        known = len(faults)
        where = f"GPU {gpu} of node {node}"
        placed = {j: _placed(view, occupancy, j, job, after) for j in jobs}
        seats = [p.interleave for p in placed.values()]
        if all(seat is not None for seat in seats):
            _check_interleaving(where, seats, powers, faults)
        elif "share" not in powers:
            faults.append(f"{where} is shared without the power to")
        elif len(jobs) > SHARERS_MAX:
            faults.append(f"{where} would hold {len(jobs)} jobs, {SHARERS_MAX} at most")
        for other in jobs:
            if not view.jobs.shareable[other]:
                faults.append(f"{_name(view, other)} does not allow sharing of {where}")
        if not view.physics.memory.fits(sorted(placed.items(), key=_first), memory):
            faults.append(f"{where}: jobs {sorted(placed)} do not fit its memory together")
        if len(faults) == known:
            # NOTE: a gang shares each of its GPUs with the same jobs; one check halves a run.
            fine.add((jobs, memory))


def _first(item: tuple[int, Placement]) -> int:
    return item[0]


def _placed(view: View, occupancy: Occupancy, other: int, job: int, after: Placement) -> Placement:
    return after if other == job else occupancy.placement_of[other]


def _check_interleaving(
    where: str, seats: Sequence[object], powers: frozenset[str], faults: list[str]
) -> None:
    if "interleave" not in powers:
        faults.append(f"{where} is interleaved without the power to")
    sets = {getattr(seat, "set_id", -1) for seat in seats}
    phases = [getattr(seat, "phase", -1) for seat in seats]
    if len(sets) != 1 or len({phase % PHASES for phase in phases}) != len(phases):
        faults.append(f"{where}: interleaved jobs need one set and distinct phases")


def _faults_of_parts(view: View, occupancy: Occupancy) -> list[str]:
    """Returns what is wrong with the GPUs that are held in parts."""
    taken: dict[tuple[int, int], int] = {}
    for placement in view.plan.placed.values():
        if placement.gpu_part < 1.0:
            for one in placement.named():
                taken[one] = taken.get(one, 0) + thousandths(placement.gpu_part)
    faults = []
    if taken != occupancy.open_gpus.taken:
        faults.append("the parts of GPUs that are taken are not those of the jobs")
    for (node, gpu), part in sorted(taken.items()):
        if part > THOUSANDTHS:
            faults.append(f"GPU {gpu} of node {node} is held {part} thousandths")
        if any(occupancy.placement_of[j].gpu_part == 1.0 for j in occupancy.sharers(node, gpu)):
            faults.append(f"GPU {gpu} of node {node} is held as a whole and in part")
    return faults


def audit(view: View, occupancy: Occupancy) -> list[str]:
    """Returns what is wrong with the whole plan: held counts, nodes, free index, quotas, states."""
    faults: list[str] = []
    counted = [0] * view.cluster.nodes
    named: set[tuple[int, int]] = set()
    for job, placement in view.plan.placed.items():
        if job in view.waiting:
            faults.append(f"{_name(view, job)} both runs and waits")
        if not occupancy.may_use(occupancy.shape(job), placement):
            faults.append(f"{_name(view, job)} may not use nodes {sorted(placement.by_node())}")
        if placement.gpu_ids:
            named.update(placement.named())
        elif placement.gpu_part:
            for node, gpus in placement.spans:
                counted[node] += gpus
    for node, _ in named:
        counted[node] += 1
    for node, capacity in enumerate(view.cluster.capacity):
        if counted[node] > capacity:
            faults.append(f"node {node} holds {counted[node]} GPUs of {capacity}")
        if occupancy.free[node] != capacity - counted[node]:
            faults.append(f"node {node}: {occupancy.free[node]} free is wrong")
        level = occupancy.levels[occupancy.free[node]]
        if (node not in occupancy.closed) != bool(level >> node & 1):
            faults.append(f"node {node} is missing from the free index")
    faults += _faults_of_parts(view, occupancy)
    if occupancy.tenants is not None:
        faults += occupancy.tenants.faults(view.plan.placed)
    return faults
