"""Turns shares into placements: elastic jobs get more or fewer GPUs with the fewest moves.

A job keeps the GPUs it has: a smaller share leaves GPUs that are still made ready, then the
smallest spans; a larger one fills the nodes it is on before it takes others. Where gangs may not
be spread, a job whose larger share finds no such room is placed anew. Only jobs whose share
changes are looked at. What they have besides, names of GPUs, accumulation steps and seats, stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from dovetail.core.errors import IllegalPlan
from dovetail.core.passes import keep_settled
from dovetail.core.placement import Placement
from dovetail.core.plan import Draft
from dovetail.core.restarts import worth_a_restart
from dovetail.core.view import View


def reshare(view: View, shares: Mapping[int, int]) -> Draft:
    """Returns a draft in which each job holds its share; jobs without one do not run.

    A share that finds no room under a strict placement rule is tried smaller, down to the job's
    least number of GPUs; below that the job waits. Jobs that may not be stopped, also because
    their node drains, stay as they are.
    """
    if view.placing.running == "repack":
        return _repacked(view, shares)
    running = view.running
    changed = {j: shares.get(j, 0) for j, p in running.items() if shares.get(j, 0) != p.gpus}
    changed |= {j: share for j, share in shares.items() if share and j not in running}
    return adjust(view, changed)


def adjust(view: View, changed: Mapping[int, int]) -> Draft:
    """Returns a draft in which the jobs of `changed` have these shares, 0 for none.

    All others keep their GPUs, and so do those whose change is not worth the restart that it costs
    (`core.restarts`); else as `reshare`.
    """
    if view.placing.running == "repack":
        return _repacked(view, {**{j: p.gpus for j, p in view.running.items()}, **changed})
    draft, changed = view.plan.draft(), worth_a_restart(view, changed)
    running, preemptible = view.running, view.preemptible
    growing: list[int] = []
    starting: list[int] = []
    for job in sorted(changed):
        share, placement = changed[job], running.get(job)
        if placement is None:
            if share:
                starting.append(job)
        elif not preemptible[job]:
            continue
        elif share == 0:
            draft.remove(job)
        elif share < placement.gpus:
            _settle(draft, job, smaller(view, job, placement, share))
        elif share > placement.gpus:
            growing.append(job)
    for job in growing:
        _grow(view, draft, job, changed[job])
    for job in starting:
        _place(view, draft, job, changed[job])
    return draft


def _repacked(view: View, shares: Mapping[int, int]) -> Draft:
    draft = view.plan.repack()
    keep_settled(view, draft)
    movable = (j for j in shares if shares[j] and j not in draft.placed)
    for job in sorted(movable, key=lambda j: (-shares[j], j)):
        _place(view, draft, job, shares[job])
    return draft


def _place(view: View, draft: Draft, job: int, share: int) -> None:
    least = int(view.jobs.min_gpus[job]) if view.jobs.elastic[job] else share
    for gpus in range(share, least - 1, -1):
        spans = view.placing.find(draft.occupancy, view.shape(job), gpus)
        if spans is not None:
            draft.place(job, spans)
            return


def _grow(view: View, draft: Draft, job: int, share: int) -> None:
    before = draft.placed[job]
    on_its_nodes = wider(draft, before, share)
    if on_its_nodes.gpus < share and view.placing.consolidate == "strict":
        _place_anew(view, draft, job, share)
    elif _try(draft, job, on_its_nodes) and on_its_nodes.gpus < share:
        rest = view.placing.find(draft.occupancy, view.shape(job), share - on_its_nodes.gpus)
        if rest is not None:
            _try(draft, job, extended(draft, on_its_nodes, rest))


def _place_anew(view: View, draft: Draft, job: int, share: int) -> None:
    savepoint = draft.savepoint()
    draft.remove(job)
    anew = view.placing.find(draft.occupancy, view.shape(job), share)
    draft.undo_to(savepoint)
    if anew is not None:
        draft.place(job, anew)


def _try(draft: Draft, job: int, where: Placement) -> bool:
    """Places a job; False, and nothing changes, where a quota or a host is exceeded."""
    try:
        _settle(draft, job, where)
    except IllegalPlan:
        return False
    return True


def _settle(draft: Draft, job: int, where: Placement) -> None:
    """Places a job; where each placement is named for its islands, the tables choose the GPUs."""
    occupancy = draft.occupancy
    if occupancy.islands is not None and occupancy.company(draft.placed[job]) == {job}:
        where = replace(where, gpu_ids=())
    draft.place(job, where)


def smaller(view: View, job: int, before: Placement, gpus: int) -> Placement:
    """Returns a part of a placement, giving up the smallest spans first.

    GPUs that are still made ready go before all that train: a job that keeps none of those would
    start anew. Names of GPUs, accumulation steps and the seat stay.
    """
    left, surplus = before.by_node(), before.gpus - gpus
    trains: set[tuple[int, int]] = set()
    if (expansion := view.expanding.get(job)) is not None:
        trains = set(expansion.training.named())
        ready = expansion.training.by_node()
        surplus -= _give_up(left, {n: held - ready.get(n, 0) for n, held in left.items()}, surplus)
    _give_up(left, dict(left), surplus)
    names = _names(sorted(before.named(), key=lambda gpu: (gpu not in trains, gpu)))
    kept = {node: names.get(node, ())[:held] for node, held in left.items()}
    return _resized(before, {node: held for node, held in left.items() if held}, kept)


def _give_up(left: dict[int, int], spare: Mapping[int, int], surplus: int) -> int:
    """Takes GPUs off nodes, from the smallest spare number on; returns how many."""
    gone = 0
    for node, gpus in sorted(spare.items(), key=lambda item: (item[1], -item[0])):
        taken = min(gpus, surplus - gone)
        left[node] -= taken
        gone += taken
    return gone


def wider(draft: Draft, before: Placement, gpus: int) -> Placement:
    """Returns a placement with more GPUs on the nodes it has, as far as they go up to `gpus`."""
    more, free, closed = gpus - before.gpus, draft.occupancy.free, draft.occupancy.closed
    taken: list[tuple[int, int]] = []
    for node in before.by_node():
        take = 0 if node in closed else min(more, free[node])
        if take:
            taken.append((node, take))
            more -= take
    return extended(draft, before, taken)


def extended(draft: Draft, before: Placement, more: Iterable[tuple[int, int]]) -> Placement:
    """Returns a placement with more GPUs on these nodes: idle ones, if it names its GPUs."""
    wanted, names = before.by_node(), _names(before.named())
    for node, gpus in more:
        wanted[node] = wanted.get(node, 0) + gpus
        if before.gpu_ids:
            idle = draft.occupancy.idle_ids(node, wanted[node])
            fresh = [gpu for gpu in idle if gpu not in names.get(node, ())]
            names[node] = (*names.get(node, ()), *fresh[:gpus])
    return _resized(before, wanted, names)


def _names(gpus: Iterable[tuple[int, int]]) -> dict[int, tuple[int, ...]]:
    names: dict[int, tuple[int, ...]] = {}
    for node, gpu in gpus:
        names[node] = (*names.get(node, ()), gpu)
    return names


def _resized(
    before: Placement, by_node: Mapping[int, int], names: Mapping[int, tuple[int, ...]]
) -> Placement:
    """Returns a placement with other GPUs; limits and samples, one a worker, become even."""
    ids = tuple(tuple(sorted(names[node])) for node in by_node) if before.gpu_ids else ()
    spans = tuple(by_node.items())
    return replace(before, spans=spans, gpu_ids=ids, fractions=(), samples=())
