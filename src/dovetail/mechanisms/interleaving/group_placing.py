"""Admission of groups by priority, and their placement, larger gangs first (Muri).

Groups are admitted in order of their best job while they fit an empty cluster. Then they are
placed: a group whose members run together stays, unless the placement rule of the run is `repack`;
a changed group takes over the GPUs of most of its members; the others follow, larger gangs first.
All members have the same GPUs by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dovetail.core.placement import Interleave, Placement, Spans
from dovetail.core.plan import Draft
from dovetail.core.view import View
from dovetail.mechanisms.interleaving.rules import SetRules
from dovetail.mechanisms.interleaving.slots import StayingJobs, hold
from dovetail.mechanisms.sharing.named_gpus import idle_gpus, placement_on, try_place

Members = tuple[int, ...]
Seats = tuple[Spans, tuple[tuple[int, ...], ...], int]
"""GPUs that jobs hold together: spans, names, and the job if they are not named."""


class Admitted(NamedTuple):
    """A group that gets GPUs, best member first, and the spans where it fits."""

    jobs: Members
    gpus: int
    spans: Spans


def admit(view: View, settled: StayingJobs, groups: Iterable[Members]) -> list[Admitted]:
    """Returns the groups that find room, tried in this order."""
    occupancy, find = settled.another(view), view.placing.find
    admitted: list[Admitted] = []
    failed: set[int] = set()
    for jobs in groups:
        shape_id = view.shape_of[jobs[0]]
        if shape_id in failed:
            continue
        shape = view.shapes[shape_id]
        spans = find(occupancy, shape)
        if spans is not None and hold(occupancy, jobs[0], spans):
            admitted.append(Admitted(jobs, shape.gpus, spans))
            if not occupancy.free_gpus:
                break
        else:
            failed.add(shape_id)
    return admitted


def put(view: View, rules: SetRules, settled: StayingJobs, admitted: list[Admitted]) -> Draft:
    """Returns a draft in which the settled jobs and the admitted groups run."""
    largest_first = sorted(admitted, key=lambda group: (-group.gpus, min(group.jobs)))
    if view.placing.running != "repack":
        draft = _kept(view, rules, settled, largest_first)
        if draft is not None:
            return draft
    draft = _emptied(view, settled)
    if all(_seat(view, rules, draft, group, None) for group in largest_first):
        return draft
    # Only in order of priority is there certainly room for all.
    draft = _emptied(view, settled)
    for group in admitted:
        _seat(view, rules, draft, group, group.spans)
    return draft


def _emptied(view: View, settled: StayingJobs) -> Draft:
    draft = view.plan.repack()
    for job in sorted(settled.jobs):
        draft.place(job, view.running[job])
    return draft


def _kept(
    view: View, rules: SetRules, settled: StayingJobs, groups: Sequence[Admitted]
) -> Draft | None:
    """Returns a draft that moves few jobs; None if a group then finds no room."""
    draft = view.plan.draft()
    held, of_job = _held(view, settled)
    claims: dict[Seats, Admitted] = {}
    anew: list[Admitted] = []
    for group in groups:
        seats = _claimed(group.jobs, of_job, claims)
        if seats is None:
            anew.append(group)
        else:
            claims[seats] = group
    # Jobs leave their GPUs before groups join, so that joins find room.
    for seats, jobs in held.items():
        stay = claims[seats].jobs if seats in claims else ()
        for job in jobs:
            if job not in stay:
                draft.remove(job)
    for seats, group in claims.items():
        _join(view, rules, draft, group, seats)
    if all(_seat(view, rules, draft, group, None) for group in anew):
        return draft
    return None


def _held(view: View, settled: StayingJobs) -> tuple[dict[Seats, list[int]], dict[int, Seats]]:
    """Returns the jobs on each set of GPUs, and the GPUs of each job, without staying jobs."""
    held: dict[Seats, list[int]] = {}
    of_job: dict[int, Seats] = {}
    for job, placement in sorted(view.running.items()):
        if job in settled.jobs:
            continue
        named = placement.gpu_ids
        seats = (placement.spans, named, -1 if named else job)
        held.setdefault(seats, []).append(job)
        of_job[job] = seats
    return held, of_job


def _claimed(
    jobs: Members, of_job: dict[int, Seats], claims: dict[Seats, Admitted]
) -> Seats | None:
    """Returns the GPUs of most members that no other group has claimed."""
    votes = Counter(of_job[job] for job in jobs if job in of_job)
    for seats, _ in votes.most_common():
        if seats not in claims:
            return seats
    return None


def _join(view: View, rules: SetRules, draft: Draft, group: Admitted, seats: Seats) -> None:
    """Places a group on GPUs that some of its members have."""
    spans, names, _ = seats
    if len(group.jobs) == 1:
        return
    if not names:
        holder = next(job for job in group.jobs if job in draft.placed)
        names = tuple(draft.occupancy.idle_ids(node, count) for node, count in spans)
        draft.place(holder, Placement(spans, names))
    _interleave(view, rules, draft, group.jobs, spans, names)


def _seat(view: View, rules: SetRules, draft: Draft, group: Admitted, spans: Spans | None) -> bool:
    """Places a group on free GPUs; False if its best member finds none."""
    head = group.jobs[0]
    if spans is None:
        spans = view.placing.find(draft.occupancy, view.shape(head))
    if spans is None:
        return False
    if len(group.jobs) == 1:
        return try_place(draft, head, Placement(spans))
    named = placement_on(idle_gpus(draft, spans))
    return _interleave(view, rules, draft, group.jobs, named.spans, named.gpu_ids)


def _interleave(
    view: View,
    rules: SetRules,
    draft: Draft,
    jobs: Members,
    spans: Spans,
    names: tuple[tuple[int, ...], ...],
) -> bool:
    """Places members in the phases of the set; a member that a quota or host refuses waits.

    Returns False if the best member is refused. Phases are those of the accepted members.
    """
    cautious, placed = draft.occupancy.books_more, draft.placed
    inside = [
        job
        for job in jobs
        if not cautious or job in placed or try_place(draft, job, Placement(spans, names))
    ]
    if len(inside) > 1:
        kind_of = rules.kind_of
        line = sorted(inside, key=lambda job: (kind_of[job], job))
        phases = rules.phases(tuple(kind_of[job] for job in line))
        set_id = min(inside)
        for job, phase in zip(line, phases, strict=True):
            seat = Interleave(set_id, phase)
            if job not in placed or placed[job].interleave != seat:
                draft.place(job, Placement(spans, names, interleave=seat))
    return bool(inside) and inside[0] == jobs[0]
