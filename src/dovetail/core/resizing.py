"""Turns shares into placements: elastic jobs get more or fewer GPUs with the fewest moves.

A job keeps the GPUs it has: a smaller share leaves GPUs that are still made ready, then the
smallest spans; a larger one fills the nodes it is on before it takes others. Where gangs may not
be spread, a job whose larger share finds no such room is placed anew. Only jobs whose share
changes are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.core.errors import IllegalPlan
from dovetail.core.passes import keep_settled
from dovetail.core.placement import Placement, Spans
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
            draft.place(job, _shrunk(view, job, placement, share))
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


def _shrunk(view: View, job: int, placement: Placement, share: int) -> Spans:
    """Returns the spans of a job with `share` GPUs left, giving up the smallest spans first.

    GPUs that are still made ready go before all that train: a job that keeps none of those would
    start anew.
    """
    left = placement.by_node()
    surplus = placement.gpus - share
    expansion = view.expanding.get(job)
    if expansion is not None:
        trained = expansion.training.by_node()
        unready = {node: gpus - trained.get(node, 0) for node, gpus in left.items()}
        surplus -= _give_up(left, unready, surplus)
    _give_up(left, dict(left), surplus)
    return tuple((node, gpus) for node, gpus in left.items() if gpus)


def _give_up(left: dict[int, int], spare: Mapping[int, int], surplus: int) -> int:
    """Takes GPUs off nodes, from the smallest spare number on; returns how many."""
    gone = 0
    for node, gpus in sorted(spare.items(), key=lambda item: (item[1], -item[0])):
        taken = min(gpus, surplus - gone)
        left[node] -= taken
        gone += taken
    return gone


def _grow(view: View, draft: Draft, job: int, share: int) -> None:
    spans = tuple(draft.placed[job].by_node().items())
    more = share - sum(g for _, g in spans)
    grown = dict(spans)
    for node, _ in spans:
        take = min(more, draft.occupancy.free[node])
        grown[node] += take
        more -= take
    if not more:
        _try(draft, job, grown)
        return
    savepoint = draft.savepoint()
    if view.placing.consolidate == "strict":
        draft.remove(job)
        anew = view.placing.find(draft.occupancy, view.shape(job), share)
        draft.undo_to(savepoint)
        if anew is not None:
            draft.place(job, anew)
        return
    if not _try(draft, job, grown):
        return
    rest = view.placing.find(draft.occupancy, view.shape(job), more)
    if rest is None:
        return
    for node, gpus in rest:
        grown[node] = grown.get(node, 0) + gpus
    _try(draft, job, grown)


def _try(draft: Draft, job: int, grown: Mapping[int, int]) -> bool:
    """Places a job; False, and nothing changes, where a quota or a host is exceeded."""
    try:
        draft.place(job, tuple(grown.items()))
    except IllegalPlan:
        return False
    return True
