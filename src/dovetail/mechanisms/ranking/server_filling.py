"""ServerFilling: the first jobs in order that together need all GPUs, the widest of them first.

The *front* is the shortest prefix of all jobs, in order of key, that asks for at least as many GPUs
as there are. Of it the widest jobs run, until all GPUs are in use. If every number of GPUs is a
power of two, and so is their sum, they always fit exactly; else what is left over goes to the rest
of the front and to the jobs behind it, in order.

Running jobs stay where they are. Only if a chosen job then finds no room are all packed anew, the
widest first, each where it was if that is free: powers of two then leave no gap.

Source: Grosof, Scully, Harchol-Balter and Scheller-Wolf, SIGMETRICS 2023, section 3.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from dovetail.core.errors import IllegalPlan
from dovetail.core.job import Ints
from dovetail.core.passes import NO_ROOM, Because, Keys, keep_settled
from dovetail.core.plan import Draft
from dovetail.core.queue import Scan
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import View
from dovetail.mechanisms.elastic.by_count import pool_gpus


def fill_servers(view: View, keys: Keys) -> tuple[Draft | None, Because]:
    """Gives the GPUs to the front of all jobs, the widest first; `keys` ranks the running ones."""
    if not view.waiting and view.placing.running == "keep":
        return None, ()
    pool = pool_gpus(view)
    line = _Line.of(view, keys, pool)
    chosen, rest = line.split(pool)
    draft = None if view.placing.running == "repack" else _kept(view, line, chosen)
    if draft is None:
        draft = _repacked(view, chosen)
    if draft.free_gpus:
        _fill_up(view, draft, rest, line)
    all_run = len(draft.placed) == len(view.running) + len(view.waiting)
    return draft, () if all_run else NO_ROOM


@dataclass(slots=True)
class _Line:
    """The running jobs that may be stopped, in order of key, and a pass over the waiting ones.

    `ahead[r]` are the GPUs that the first r running jobs hold; `front` of them are in the front.
    """

    view: View
    running: list[int]
    entries: list[tuple[float, int]]
    gpus: Ints
    ahead: Ints
    scan: Scan
    front: int = 0

    @staticmethod
    def of(view: View, keys: Keys, pool: int) -> _Line:
        """Returns the line of a view with so many GPUs to give. Running jobs win exact ties."""
        columns = view.progress.running()
        jobs, key, gpus = columns.jobs, keys(columns), columns.gpus
        if not view.all_preemptible:
            movable = view.preemptible[jobs]
            jobs, key, gpus = jobs[movable], key[movable], gpus[movable]
        key = key - RELATIVE_TOLERANCE * np.abs(key)
        order = np.lexsort((jobs, key))
        held = gpus[order].astype(np.int64)
        ahead = np.concatenate(([0], np.cumsum(held)))
        running = jobs[order].tolist()
        entries = list(zip(key[order].tolist(), running, strict=True))
        return _Line(view, running, entries, held, ahead, view.waiting.scan(pool))

    def split(self, pool: int) -> tuple[list[int], list[int]]:
        """Returns who of the front runs, the widest first, and who of it does not fit."""
        waiting = self._waiting_in_front(pool)
        jobs = np.array([*self.running[: self.front], *(job for _, job in waiting)], np.int64)
        key = np.array([key for key, _ in (*self.entries[: self.front], *waiting)])
        wants = [self.view.shape(job).gpus for _, job in waiting]
        gpus = np.concatenate((self.gpus[: self.front], np.array(wants, np.int64)))
        order = np.lexsort((jobs, key, -gpus))
        fits = np.cumsum(gpus[order]) <= pool
        return jobs[order][fits].tolist(), jobs[order][~fits].tolist()

    def _waiting_in_front(self, pool: int) -> list[tuple[float, int]]:
        """Returns the waiting jobs of the front, and sets how many running ones it has."""
        found: list[tuple[float, int]] = []
        asked, count = 0, len(self.running)
        while True:
            head = self.scan.next()
            before = count if head is None else bisect_left(self.entries, (self.scan.key(), head))
            if head is None or self.ahead[before] + asked >= pool:
                enough = int(np.searchsorted(self.ahead, pool - asked))
                self.front = min(enough, before)
                return found
            found.append((self.scan.key(), head))
            asked += self.view.shape(head).gpus
            if self.ahead[before] + asked >= pool:
                self.front = before
                self.scan.next()
                return found


def _kept(view: View, line: _Line, chosen: list[int]) -> Draft | None:
    """Returns the draft in which chosen jobs that run stay, or None if another finds no room."""
    draft, runs = view.plan.draft(), set(chosen)
    for job in line.running:
        if job not in runs:
            draft.remove(job)
    for job in chosen:
        if job not in draft.placed and not _find(view, draft, job):
            return None
    return draft


def _repacked(view: View, chosen: list[int]) -> Draft:
    """Returns the draft in which all are packed anew, the widest first."""
    draft = view.plan.repack()
    keep_settled(view, draft)
    running = view.running
    # Of equally wide jobs those that can stay go first.
    for job in sorted(chosen, key=lambda j: (-view.shape(j).gpus, j not in running)):
        _ = _stay(view, draft, job) or _find(view, draft, job)
    return draft


def _fill_up(view: View, draft: Draft, rest: list[int], line: _Line) -> None:
    """Gives the GPUs left over to the rest of the front and to the jobs behind it, in order."""
    failed: set[int] = set()
    for job in rest:
        _try(view, draft, job, failed)
    scan, at = line.scan, line.front
    while draft.free_gpus:
        head = scan.peek()
        waits = head is not None and (at == len(line.running) or head < line.entries[at])
        if head is not None and waits:
            _try(view, draft, head[1], failed)
            if view.shape_of[head[1]] in failed:
                scan.drop()
            scan.next()
        elif at < len(line.running):
            _try(view, draft, line.running[at], failed)
            at += 1
        else:
            return


def _try(view: View, draft: Draft, job: int, failed: set[int]) -> None:
    """Places a job where it was or elsewhere, or notes that its shape finds no room."""
    shape = view.shape_of[job]
    if shape not in failed and not (_stay(view, draft, job) or _find(view, draft, job)):
        failed.add(shape)


def _stay(view: View, draft: Draft, job: int) -> bool:
    """Places a job where it runs; False if it does not run or its GPUs are taken."""
    placement = view.running.get(job)
    if placement is None:
        return False
    try:
        draft.place(job, placement)
    except IllegalPlan:
        return False
    return True


def _find(view: View, draft: Draft, job: int) -> bool:
    """Places a job where the placement rule finds room; False if it finds none."""
    spans = view.placing.find(draft.occupancy, view.shape(job))
    if spans is None:
        return False
    draft.place(job, spans)
    return True
