"""Time slices: waiting jobs take the GPUs of groups whose slice is over, in turn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from dovetail.core.errors import IllegalPlan
from dovetail.core.placement import Placement
from dovetail.core.plan import Draft
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import View
from dovetail.mechanisms.sharing.candidates import SharingCandidates
from dovetail.mechanisms.sharing.gpu_groups import GpuGroup


@dataclass(frozen=True, slots=True)
class Turn:
    """A group that may be stopped, and the urgency of its most urgent job (small: urgent)."""

    urgency: float
    gang: GpuGroup


def take_turns(
    view: View,
    draft: Draft,
    company: SharingCandidates,
    waiting: Iterable[tuple[float, int]],
    turns: list[Turn],
) -> None:
    """Starts waiting jobs, given as (urgency, job) in order, and stops groups for them.

    The least urgent groups are stopped first, of equals those that have run longest; only groups
    less urgent than the waiting job, or any if both have infinite urgency. A stopped group whose
    GPUs are not needed stays where it was.
    """
    turns = sorted(turns, key=lambda t: (-t.urgency, t.gang.since_s, t.gang.jobs))
    failed: set[int] = set()
    stoppable = sum(turn.gang.gpus for turn in turns)
    for urgency, job in waiting:
        if not draft.free_gpus and not turns:
            return
        shape = view.shape_of[job]
        if shape in failed or view.shapes[shape].gpus > draft.free_gpus + stoppable:
            continue
        if company.start(job):
            continue
        left = _make_room(view, draft, company, (urgency, job), turns)
        if left is None:
            failed.add(shape)
        else:
            turns = left
            stoppable = sum(turn.gang.gpus for turn in turns)


def _make_room(
    view: View,
    draft: Draft,
    company: SharingCandidates,
    waits: tuple[float, int],
    turns: list[Turn],
) -> list[Turn] | None:
    """Stops groups until a job finds room; returns the stoppable rest, None if it finds none."""
    urgency, job = waits
    gpus = view.shape(job).gpus
    savepoint = draft.savepoint()
    stopped: list[tuple[Turn, list[tuple[int, Placement]]]] = []
    for turn in turns:
        if not _gives_way(turn.urgency, urgency):
            break
        stopped.append((turn, [(member, draft.placed[member]) for member in turn.gang.jobs]))
        for member in turn.gang.jobs:
            draft.remove(member)
        if draft.free_gpus >= gpus and company.start(job):
            # The most urgent of the stopped groups is put back first.
            back = [turn for turn, held in reversed(stopped) if _put_back(draft, held)]
            return [*reversed(back), *turns[len(stopped) :]]
    draft.undo_to(savepoint)
    return None


def _gives_way(runs: float, waits: float) -> bool:
    return runs == waits == inf or runs > waits + RELATIVE_TOLERANCE * abs(waits)


def _put_back(draft: Draft, held: list[tuple[int, Placement]]) -> bool:
    """Puts a group back onto its GPUs, all its jobs or none; False if they are taken."""
    if any(gpu in draft.occupancy.named for _, p in held for gpu in p.named()):
        return False
    savepoint = draft.savepoint()
    try:
        for member, placement in held:
            draft.place(member, placement)
    except IllegalPlan:
        draft.undo_to(savepoint)
        return False
    return True
