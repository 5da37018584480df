"""The two passes that queue policies are made of: fill what is free, or rank everybody anew.

`fill` starts waiting jobs in order and touches no running one. `rank` lets waiting and running
jobs compete by key and stops whoever loses. Both place with the rule of the run.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from dovetail.core.errors import IllegalPlan
from dovetail.core.messages import Reason
from dovetail.core.plan import Draft, Placement
from dovetail.core.view import View

BYPASS = ("strict", "skip")
RELATIVE_TOLERANCE = 1e-9
"""An exact tie takes the conservative branch (ALGORITHMS section 0)."""

Because = tuple[Reason, ...]
NO_ROOM: Because = (Reason("Resources"),)


def check_bypass(bypass: str) -> None:
    """Raises ValueError unless `bypass` is `strict` or `skip`."""
    if bypass not in BYPASS:
        raise ValueError(f"bypass is strict or skip, not '{bypass}'")


def behind(head: int) -> Because:
    """Returns the reasons of a strict queue whose head finds no room."""
    return (Reason("Resources", job=head), Reason("Priority", behind=head))


def fill(view: View, bypass: str) -> tuple[Draft | None, Because]:
    """Starts waiting jobs in order on free GPUs; returns the draft and why the rest waits.

    strict: the first job that finds no room blocks all behind it. skip: it is passed over.
    """
    free = view.plan.free_gpus
    if not free or not view.waiting:
        if bypass == "strict" and (head := view.waiting.first()) is not None:
            return None, behind(head)
        return None, NO_ROOM if view.waiting else ()
    if bypass == "strict":
        return _fill_strictly(view)
    draft = view.plan.draft()
    find, occupancy = view.placing.find, draft.occupancy
    started = 0
    scan = view.waiting.scan(free)
    while (job := scan.next()) is not None:
        spans = find(occupancy, view.shape(job))
        if spans is None:
            scan.drop()
        else:
            draft.place(job, spans)
            started += 1
            if not occupancy.free_gpus:
                break
    return draft if started else None, NO_ROOM if started < len(view.waiting) else ()


def _fill_strictly(view: View) -> tuple[Draft | None, Because]:
    head = view.waiting.first()
    assert head is not None
    find = view.placing.find
    if find(view.plan.occupancy, view.shape(head)) is None:
        return None, behind(head)
    draft = view.plan.draft()
    scan = view.waiting.scan()
    while (job := scan.next()) is not None:
        spans = find(draft.occupancy, view.shape(job))
        if spans is None:
            return draft, behind(job)
        draft.place(job, spans)
    return draft, ()


def rank(
    view: View, running: Sequence[tuple[float, int]], bypass: str
) -> tuple[Draft | None, Because]:
    """Gives the GPUs to the jobs of smallest key, running ones by the keys given here.

    With the placement option `repack` the cluster is filled anew in order of key. With `keep` a
    running job holds its GPUs until a job of smaller key needs them.
    """
    if view.placing.running == "repack":
        return _repack(view, sorted(running), bypass)
    return _preempt(view, sorted(running), bypass)


def _repack(
    view: View, running: list[tuple[float, int]], bypass: str
) -> tuple[Draft | None, Because]:
    draft = view.plan.repack()
    occupancy, find = draft.occupancy, view.placing.find
    shape_of, shapes = view.shape_of, view.shapes
    failed: set[int] = set()
    scan = view.waiting.scan()
    job = scan.next()
    position, count = 0, len(running)
    while occupancy.free_gpus:
        if job is not None and (position == count or (scan.key(), job) < running[position]):
            candidate = job
            waits = True
        elif position < count:
            candidate = running[position][1]
            position += 1
            waits = False
        else:
            break
        shape = shape_of[candidate]
        spans = None if shape in failed else find(occupancy, shapes[shape])
        if spans is not None:
            draft.place(candidate, spans)
        elif bypass == "strict":
            return draft, behind(candidate)
        else:
            failed.add(shape)
            if waits:
                scan.drop()
        if waits:
            job = scan.next()
    return draft, NO_ROOM


def _preempt(
    view: View, running: list[tuple[float, int]], bypass: str
) -> tuple[Draft | None, Because]:
    preemptible = view.jobs.preemptible
    victims = [(key, job) for key, job in running if preemptible[job]]
    draft = view.plan.draft()
    scan = view.waiting.scan()
    evicted: list[tuple[float, int]] = []
    failed: set[int] = set()
    waiting_job = scan.next()
    while waiting_job is not None or evicted:
        if waiting_job is None or (evicted and evicted[0] < (scan.key(), waiting_job)):
            key, job = heapq.heappop(evicted)
            waits = False
        else:
            key, job = scan.key(), waiting_job
            waits = True
        shape = view.shape_of[job]
        if shape not in failed:
            if not _seat(view, draft, key, job, victims, evicted):
                if bypass == "strict":
                    return draft, behind(job)
                failed.add(shape)
        if waits:
            if shape in failed:
                scan.drop()
            waiting_job = scan.next()
        if not draft.free_gpus and (not victims or not _may_gain(victims, scan.peek(), evicted)):
            break
    return draft, NO_ROOM if view.waiting else ()


def _may_gain(
    victims: list[tuple[float, int]], head: tuple[float, int] | None, evicted: list[tuple[float, int]]
) -> bool:
    """Tells whether any candidate left has a smaller key than the last victim."""
    worst = victims[-1]
    return (head is not None and head < worst) or bool(evicted and evicted[0] < worst)


def _seat(
    view: View,
    draft: Draft,
    key: float,
    job: int,
    victims: list[tuple[float, int]],
    evicted: list[tuple[float, int]],
) -> bool:
    """Places a job on free GPUs, or on those of victims of clearly larger key."""
    find, occupancy, shape = view.placing.find, draft.occupancy, view.shape(job)
    spans = find(occupancy, shape)
    if spans is not None:
        draft.place(job, spans)
        return True
    margin = key + RELATIVE_TOLERANCE * abs(key)
    if not _enough(draft, victims, margin, shape.gpus):
        return False
    savepoint = draft.savepoint()
    taken: list[tuple[tuple[float, int], Placement]] = []
    last = len(victims)
    while spans is None and last and victims[last - 1][0] > margin:
        last -= 1
        victim = victims[last]
        taken.append((victim, draft.placed[victim[1]]))
        draft.remove(victim[1])
        if occupancy.free_gpus >= shape.gpus:
            spans = find(occupancy, shape)
    if spans is None:
        draft.undo_to(savepoint)
        return False
    draft.place(job, spans)
    del victims[last:]
    # Victims whose GPUs were not needed after all stay where they are, best key first.
    for victim, placement in reversed(taken):
        try:
            draft.place(victim[1], placement)
            victims.append(victim)
        except IllegalPlan:
            heapq.heappush(evicted, victim)
    return True


def _enough(draft: Draft, victims: list[tuple[float, int]], margin: float, need: int) -> bool:
    """Tells whether the free GPUs and those of all victims would do, by count."""
    have = draft.free_gpus
    for victim_key, job in reversed(victims):
        if have >= need or victim_key <= margin:
            break
        have += draft.placed[job].gpus
    return have >= need
