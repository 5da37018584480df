"""The two passes of queue policies: fill the free GPUs, or rank all jobs anew.

`fill` starts waiting jobs in order and changes no running one. `rank` orders waiting and running
jobs by key and stops the running jobs that lose their GPUs. Both use the placement rule of the run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import numpy as np

from dovetail.core.errors import IllegalPlan
from dovetail.core.job import Floats, Ints, Shape
from dovetail.core.messages import Reason
from dovetail.core.placement import Placement
from dovetail.core.plan import Draft
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import Running, View

BYPASS = ("strict", "skip")

Because = tuple[Reason, ...]
Keys = Callable[[Running], Floats]
"""Returns the key of every running job."""
NO_ROOM: Because = (Reason("Resources"),)


def check_bypass(bypass: str) -> None:
    """Raises ValueError unless `bypass` is `strict` or `skip`."""
    if bypass not in BYPASS:
        raise ValueError(f"bypass is strict or skip, not '{bypass}'")


def refuses(view: View) -> bool:
    """True if a job may find no place although enough GPUs are free by count."""
    return view.placing.consolidate == "strict" or view.plan.occupancy.books_more


def behind(head: int) -> Because:
    """Returns the reasons of a strict queue whose head finds no room."""
    return (Reason("Resources", job=head), Reason("Priority", behind=head))


def fill(view: View, bypass: str) -> tuple[Draft | None, Because]:
    """Starts waiting jobs in order on free GPUs; returns the draft and why the rest waits.

    strict: the first job that finds no room blocks all behind it. skip: it is passed over.
    """
    free = view.plan.free_gpus
    parts = view.plan.occupancy.takes_parts
    if not (free or parts) or not view.waiting:
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
            if not (occupancy.free_gpus or parts):
                break
    return draft if started else None, NO_ROOM if started < len(view.waiting) else ()


def _fill_strictly(view: View) -> tuple[Draft | None, Because]:
    find = view.placing.find
    draft: Draft | None = None
    occupancy = view.plan.occupancy
    scan = view.waiting.scan()
    while (job := scan.next()) is not None:
        spans = find(occupancy, view.shape(job))
        if spans is None:
            return draft, behind(job)
        if draft is None:
            draft = view.plan.draft()
        draft.place(job, spans)
    return draft, ()


def rank(view: View, keys: Keys, bypass: str) -> tuple[Draft | None, Because]:
    """Gives the GPUs to the jobs of smallest key; `keys` ranks the running ones.

    With the placement option `repack` the cluster is filled anew in order of key; a strict
    queue then stops even the running jobs behind the first one that finds no room. With `keep` a
    running job holds its GPUs until a job of smaller key needs them.
    """
    if view.placing.running == "repack":
        running = view.progress.running()
        return _repack(view, _sorted(keys(running), running.jobs), bypass)
    if not view.waiting:
        return None, ()
    return _preempt(view, keys, bypass)


def _sorted(keys: Floats, jobs: Ints) -> list[tuple[float, int]]:
    order = np.lexsort((jobs, keys))
    return list(zip(keys[order].tolist(), jobs[order].tolist(), strict=True))


def _repack(
    view: View, running: list[tuple[float, int]], bypass: str
) -> tuple[Draft | None, Because]:
    draft = view.plan.repack()
    keep_settled(view, draft)
    running = [entry for entry in running if entry[1] not in draft.placed]
    settled = len(draft.placed)
    occupancy, find = draft.occupancy, view.placing.find
    shape_of, shapes = view.shape_of, view.shapes
    failed: set[int] = set()
    scan = view.waiting.scan()
    job = scan.next()
    position, count = 0, len(running)
    while occupancy.free_gpus or occupancy.takes_parts:
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
    all_run = len(draft.placed) == settled + count + len(view.waiting)
    return draft, () if all_run else NO_ROOM


def keep_settled(view: View, draft: Draft) -> None:
    """Places the running jobs that may not be stopped where they are, before all others."""
    if view.all_preemptible:
        return
    for job, placement in view.running.items():
        if not view.preemptible[job]:
            draft.place(job, placement)


def _preempt(view: View, keys: Keys, bypass: str) -> tuple[Draft | None, Because]:
    draft = view.plan.draft()
    contest = _Contest(view, draft, keys)
    evicted, shape_of = contest.evicted, view.shape_of
    scan = view.waiting.scan()
    failed: set[int] = set()
    placed = 0
    head = scan.next()
    while head is not None or evicted:
        if head is None or (evicted and evicted[0] < (scan.key(), head)):
            key, job = heapq.heappop(evicted)
            waits = False
        else:
            key, job, waits = scan.key(), head, True
        shape = shape_of[job]
        if shape not in failed:
            if contest.seat(key, job):
                placed += 1
            elif bypass == "strict":
                return draft, behind(job)
            else:
                failed.add(shape)
        if waits:
            if shape in failed:
                scan.drop()
            head = scan.next()
        if not draft.may_hold_more and not contest.open_to(scan.peek()):
            break
    all_run = len(draft.placed) == len(view.running) + len(view.waiting)
    return draft if placed else None, () if all_run else NO_ROOM


class _Contest:
    """The running jobs that may lose their GPUs to jobs of smaller key, ranked when needed.

    Candidates come in order of key, so only running jobs with a larger key than the first
    candidate that finds no free GPUs need be sorted.
    """

    __slots__ = ("_draft", "_gpus", "_jobs", "_keys", "_keys_of", "_victims", "_view", "evicted")

    def __init__(self, view: View, draft: Draft, keys: Keys) -> None:
        self._view = view
        self._draft = draft
        self._keys_of = keys
        self._jobs: Ints
        self._gpus: Floats
        self._keys: Floats | None = None
        self._victims: list[tuple[float, int]] | None = None
        self.evicted: list[tuple[float, int]] = []

    def _rank_above(self, key: float) -> Floats:
        """Returns the keys of the running jobs of larger key that may be stopped."""
        if self._keys is None:
            running = self._view.progress.running()
            keys, jobs, gpus = self._keys_of(running), running.jobs, running.gpus
            if self._draft.occupancy.takes_parts:
                # The end of one part may free the whole GPU.
                table = self._view.jobs
                gpus = np.where(table.gpu_part[jobs] < 1.0, table.gpus[jobs], gpus)
            above = keys > key
            if not self._view.all_preemptible:
                above &= self._view.preemptible[jobs]
            self._keys, self._jobs, self._gpus = keys[above], jobs[above], gpus[above]
        return self._keys

    def open_to(self, head: tuple[float, int] | None) -> bool:
        """True if any candidate left has a smaller key than the last victim."""
        if self.evicted and (head is None or self.evicted[0] < head):
            head = self.evicted[0]
        if head is None:
            return False
        first, keys = head[0], self._rank_above(head[0])
        if self._victims is not None:
            return bool(self._victims) and first < self._victims[-1][0]
        return len(keys) > 0 and first < float(keys.max())

    def seat(self, key: float, job: int) -> bool:
        """Places a job on free GPUs, or on those of victims of clearly larger key."""
        draft = self._draft
        shape = self._view.shape(job)
        spans = self._view.placing.find(draft.occupancy, shape)
        if spans is not None:
            draft.place(job, spans)
            return True
        margin = key + RELATIVE_TOLERANCE * abs(key)
        if not self._enough(key, margin, shape.whole_gpus):
            return False
        return self._take_over(job, shape, margin)

    def _take_over(self, job: int, shape: Shape, margin: float) -> bool:
        if self._victims is None:
            assert self._keys is not None
            self._victims = _sorted(self._keys, self._jobs)
        draft, victims = self._draft, self._victims
        savepoint = draft.savepoint()
        taken: list[tuple[tuple[float, int], Placement]] = []
        last, spans = len(victims), None
        while spans is None and last and victims[last - 1][0] > margin:
            last -= 1
            victim = victims[last]
            taken.append((victim, draft.placed[victim[1]]))
            draft.remove(victim[1])
            if draft.free_gpus >= shape.whole_gpus:
                spans = self._view.placing.find(draft.occupancy, shape)
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
                heapq.heappush(self.evicted, victim)
        return True

    def _enough(self, key: float, margin: float, need: int) -> bool:
        """True if the free GPUs and those of all victims are enough by count."""
        keys = self._rank_above(key)
        have = self._draft.free_gpus + float(self._gpus[keys > margin].sum())
        return have >= need


def serve(view: View, jobs: Sequence[int]) -> tuple[Draft, Because]:
    """Gives the GPUs to all jobs in the order of `jobs`, by count, skipping jobs that do not fit.

    GPU counts alone decide which jobs run; then the others stop and the chosen ones are placed.
    For policies whose order is in their memory and not a key.
    """
    free = view.plan.free_gpus + sum(p.gpus for p in view.running.values())
    settled = [j for j in view.running if not view.preemptible[j]]
    free -= sum(view.running[j].gpus for j in settled)
    chosen: list[int] = []
    for job in jobs:
        if job in settled:
            continue
        gpus = view.shape(job).gpus
        if gpus <= free:
            free -= gpus
            chosen.append(job)
    draft = view.plan.draft()
    keep = {*chosen, *settled}
    for job in sorted(view.running):
        if job not in keep:
            draft.remove(job)
    for job in chosen:
        if job not in draft.placed:
            spans = view.placing.find(draft.occupancy, view.shape(job))
            if spans is not None:
                draft.place(job, spans)
    return draft, () if len(draft.placed) == len(jobs) else NO_ROOM


def runs_on(view: View, draft: Draft | None) -> tuple[Floats, Floats]:
    """Returns the attained service (GPU-s) and the GPUs of the jobs that run from now on.

    For policies that ask to be woken when the next of them reaches some service.
    """
    running = view.progress.running()
    attained, gpus = running.attained_gpu_s, running.gpus
    if draft is None:
        return attained, gpus
    changes = draft.changes()
    stay = ~np.isin(running.jobs, [c.job for c in changes if c.after is None])
    begin = [c for c in changes if c.before is None and c.after is not None]
    begun = np.array(view.progress.attained_gpu_s([c.job for c in begin]))
    held = np.array([float(c.after.held_gpus) for c in begin if c.after is not None])
    return np.append(attained[stay], begun), np.append(gpus[stay], held)
