"""The pass of SJF-BSBF's Algorithm 1: waiting jobs in order, on free GPUs or beside a host.

A job that finds enough free GPUs starts there; otherwise the policy chooses hosts for it; a job
without a place is skipped.

Thousands may wait, but jobs of one class differ in length only, and a longer job finds no place
if a shorter one of its class found none: neither in this pass, in which a start takes at least as
much from all jobs as the new host offers, nor later, since hosts only get closer to their ends. So
each class is tried until one of its jobs fails, and while no job ends only arrivals are tried.

This is true if counts alone decide. If a place can be refused for another reason (a gang that may
not be spread, quotas, CPUs and memory of hosts), a longer job may be offered other hosts, and the
order of hosts changes over time: then every decision tries all jobs, until no other can start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar, Protocol

import numpy as np

from dovetail.core.job import Bools, Floats, Ints
from dovetail.core.messages import Reason
from dovetail.core.passes import NO_ROOM, Because, refuses
from dovetail.core.plan import Draft
from dovetail.core.policy import Decision
from dovetail.core.view import View
from dovetail.mechanisms.sharing.pair_rules import PairRules, rules_of
from dovetail.mechanisms.sharing.shared_gpus import Looked, Seat, SharedGpus

NO_BENEFIT = "SharingDoesNotPay"
"""Reason of a job that would fit beside others, but is faster if it waits."""
IN_A_ROW = 2
"""Classes short of GPUs in a row, after which all remaining classes are checked at once."""


class HostChoice(Protocol):
    """A policy's choice of hosts for a waiting job; `weighs` if it uses speeds and ratios."""

    weighs: ClassVar[bool]

    def offered(self, gpus: SharedGpus, guests: Ints, shortest_s: Floats) -> Ints:
        """Returns an upper bound on the GPUs that hosts offer to a job of each class and length."""

    def seat(self, gpus: SharedGpus, guest: int, length_s: float, need: int) -> Seat | None:
        """Returns the place of a job that finds too few free GPUs, or None if it waits."""

    def single_hosts(self, gpus: SharedGpus, guest: int, length_s: float) -> Sequence[Seat]:
        """Returns places for the whole gang beside one host each, the best first."""


class Tried(Enum):
    """The outcome for a job: `SHORT` of GPUs by count, or `REFUSED` although there are enough.

    `REFUSED_ALL` is a refusal for any length.
    """

    STARTED = auto()
    SHORT = auto()
    REFUSED = auto()
    REFUSED_ALL = auto()


@dataclass(frozen=True, slots=True)
class WaitingJobs:
    """Waiting jobs: their numbers, keys, solo lengths and classes."""

    jobs: Ints
    keys: Floats
    length_s: Floats
    guests: Ints

    def only(self, rows: Ints | Bools | slice) -> WaitingJobs:
        """Returns some of them."""
        return WaitingJobs(self.jobs[rows], self.keys[rows], self.length_s[rows], self.guests[rows])

    def __len__(self) -> int:
        return len(self.jobs)


def decide(view: View, memory: object, beside: HostChoice, *, by_service: bool = False) -> Decision:
    """Starts all jobs that can start; `memory` is that of the last decision.

    With `by_service` the keys of the queue are length times GPUs, not length.
    """
    draft = view.plan.draft()
    rules = rules_of(view, weighs=beside.weighs)
    gpus = SharedGpus(view, draft, rules, memory)
    search = _Search(gpus, beside)
    version, picky = view.plan.version, refuses(view)
    settled = isinstance(memory, Looked) and memory.holds(view) and not picky
    waiting = (
        _arrived(view, rules)
        if settled and not view.changes.capacity
        else _waiting(view, rules, by_service)
    )
    whole = len(waiting) == len(view.waiting)
    if not whole and search.any_of(waiting):
        waiting, whole = _waiting(view, rules, by_service), True
    started = search.sweep(waiting) if whole else 0
    more = started if picky else 0
    while more:
        left = np.array([j not in draft.placed for j in waiting.jobs.tolist()])
        more = search.sweep(waiting.only(left))
        started += more
    because = search.reasons(waiting, started) if whole else None
    if not started:
        view.plan.discard()
    chosen = draft if started else None
    return Decision(chosen, gpus.looked(version + bool(started)), because=because)


def join_those_that_stay(view: View, draft: Draft, beside: HostChoice) -> bool:
    """Starts waiting jobs of a draft beside jobs that may not be stopped; whether any started.

    Those that may be stopped run elsewhere in the draft, so nobody joins them.
    """
    rules = rules_of(view, weighs=beside.weighs)
    gpus = SharedGpus(view, draft, rules, None, beside=~view.preemptible)
    if not len(gpus.jobs):
        return False
    waiting = _waiting(view, rules, by_service=False)
    left = np.array([job not in draft.placed for job in waiting.jobs.tolist()], bool)
    return bool(_Search(gpus, beside).sweep(waiting.only(left)))


def _waiting(view: View, rules: PairRules, by_service: bool) -> WaitingJobs:
    jobs, keys = view.waiting.columns()
    length_s = keys / view.jobs.gpus[jobs] if by_service else keys
    return WaitingJobs(jobs, keys, length_s, rules.guest_of[jobs])


def _arrived(view: View, rules: PairRules) -> WaitingJobs:
    jobs = [j for j in view.changes.arrived if j in view.waiting]
    numbers = np.array(jobs, np.int64)
    keys = np.array([view.waiting.key(j) for j in jobs], np.float64)
    length_s = np.array(view.progress.left_s(jobs), np.float64)
    return WaitingJobs(numbers, keys, length_s, rules.guest_of[numbers])


class _Search:
    """One decision: tries waiting jobs, given the jobs that have started so far."""

    def __init__(self, gpus: SharedGpus, beside: HostChoice) -> None:
        self._gpus = gpus
        self._beside = beside

    def any_of(self, waiting: WaitingJobs) -> bool:
        """Returns whether any of these jobs may find a place."""
        return bool(self._hopeful(waiting).any())

    def sweep(self, waiting: WaitingJobs) -> int:
        """Starts jobs in order; returns their number.

        Each class is tried until one of its jobs is short of GPUs. A refused job does not end its
        class, unless any length would be refused, and then only until the next start.
        """
        some = waiting.only(self._hopeful(waiting)[waiting.guests])
        some = some.only(np.lexsort((some.jobs, some.keys)))
        line = zip(some.jobs.tolist(), some.guests.tolist(), strict=True)
        alive = set(some.guests.tolist())
        refused: set[int] = set()
        started = short = 0
        for place, (job, guest) in enumerate(line):
            if guest not in alive or guest in refused:
                continue
            tried = self._try(job, guest)
            if tried is Tried.STARTED:
                started, short = started + 1, 0
                refused.clear()
            elif tried is Tried.REFUSED_ALL:
                refused.add(guest)
            elif tried is Tried.SHORT:
                alive.remove(guest)
                short += 1
                if short == IN_A_ROW:
                    alive = self._still(alive, some.only(slice(place, None)))
                if not alive:
                    break
        return started

    def _still(self, alive: set[int], left: WaitingJobs) -> set[int]:
        """Returns the classes whose next job may still find a place."""
        hopeful = self._hopeful(left.only(np.isin(left.guests, list(alive))))
        return {guest for guest in alive if hopeful[guest]}

    def reasons(self, waiting: WaitingJobs, started: int) -> Because:
        """Returns why jobs wait: too few GPUs, or sharing does not pay."""
        if started == len(waiting):
            return ()
        gpus, placed = self._gpus, self._gpus.draft.placed
        left = waiting.jobs
        if started:
            left = np.array([j for j in left.tolist() if j not in placed], np.int64)
        guests, example = _of_each(gpus.rules.guest_of[left])
        fits = gpus.rules.pairs.fewest[guests[:, None], gpus.hosts] > 0
        room = fits @ gpus.alone
        jobs = left[example][room >= self._needs(guests)].tolist()
        shapes = sorted({gpus.view.shape_of[job] for job in jobs})
        return (*(Reason(NO_BENEFIT, shape=s) for s in shapes), *NO_ROOM)

    def _needs(self, guests: Ints) -> Ints:
        """Returns how many GPUs a job of each class lacks, by count."""
        gpus = self._gpus
        free = [gpus.free_for(guest) for guest in guests.tolist()]
        return gpus.rules.guest_gpus[guests] - np.array(free, np.int64)

    def _hopeful(self, waiting: WaitingJobs) -> Bools:
        """Returns, by class, whether the shortest of some waiting jobs may find a place."""
        gpus = self._gpus
        hopeful = np.zeros(len(gpus.rules.pairs.guests), bool)
        shortest_s = np.full(len(hopeful), np.inf)
        np.minimum.at(shortest_s, waiting.guests, waiting.length_s)
        guests, _ = _of_each(waiting.guests)
        gpus.rules.pairs.meet(guests)
        needs = self._needs(guests)
        offered = self._beside.offered(gpus, guests, shortest_s[guests])
        hopeful[guests] = needs <= np.maximum(offered, 0)
        return hopeful

    def _try(self, job: int, guest: int) -> Tried:
        gpus, beside = self._gpus, self._beside
        need = int(gpus.rules.guest_gpus[guest]) - gpus.free_for(guest)
        if need <= 0:
            return Tried.STARTED if gpus.start_alone(job) else Tried.REFUSED_ALL
        length_s = gpus.view.progress.left_s((job,))[0]
        seat = beside.seat(gpus, guest, length_s, need)
        if seat is None:
            return Tried.SHORT
        if gpus.start_beside(job, seat):
            return Tried.STARTED
        if any(gpus.start_beside(job, s) for s in beside.single_hosts(gpus, guest, length_s)):
            return Tried.STARTED
        return Tried.REFUSED if beside.weighs else Tried.REFUSED_ALL


def _of_each(guests: Ints) -> tuple[Ints, Ints]:
    """Returns the distinct classes, and the position of a job of each."""
    position = np.full(int(guests.max(initial=-1)) + 1, -1, np.int64)
    position[guests] = np.arange(len(guests))
    classes = np.flatnonzero(position >= 0)
    return classes, position[classes]
