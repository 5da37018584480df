"""The jobs to group: as many as full groups on all GPUs can serve (Muri; FIX-13).

All jobs are scanned by priority. A job whose gang finds room takes a slot: its GPUs are counted
once, and the next jobs of equal size share the slot, up to a full group. A job without room is
skipped. Jobs that may not be interleaved take a slot each.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from dovetail.core.errors import IllegalPlan
from dovetail.core.job import Floats
from dovetail.core.messages import MOVE, RESUME, START
from dovetail.core.occupancy import Occupancy
from dovetail.core.placement import Placement, Spans
from dovetail.core.view import Running, View
from dovetail.mechanisms.interleaving.rules import SetRules

Entry = tuple[float, int, int]
"""(key, rank among equal keys, job): the smallest first."""
Keys = Callable[[Running], Floats]
TIES = ("submission", "gpus")
JUST_ARRIVED = 1


@dataclass(frozen=True, slots=True)
class Priority:
    """The rank of jobs: by key; among equals by submission, or by most GPUs.

    Muri's artifact sorts its list by GPUs between events and appends arrivals, so with `gpus` jobs
    of equal keys are sorted by most GPUs, and arrivals come last.
    """

    keys: Keys
    ties: str = "submission"

    def __post_init__(self) -> None:
        if self.ties not in TIES:
            raise ValueError(f"ties is {' or '.join(TIES)}, not '{self.ties}'")

    def rank(self, view: View) -> Callable[[int], int]:
        """Returns the rank of a job among jobs of equal keys."""
        if self.ties == "submission":
            return lambda job: 0
        arrived, gpus = frozenset(view.changes.arrived), view.jobs.gpus
        return lambda job: JUST_ARRIVED if job in arrived else -int(gpus[job])


@dataclass(frozen=True, slots=True)
class StayingJobs:
    """The running jobs that stay, and the cluster with these alone."""

    jobs: frozenset[int]
    occupancy: Occupancy

    @staticmethod
    def of(view: View, tick_s: float) -> StayingJobs:
        """Returns the jobs on GPUs of a job that may not be stopped now.

        A job that has not trained since it was placed is not stopped: if a tick is no longer than
        a switch, jobs would take each other's GPUs forever without progress.
        """
        occupancy = view.plan.occupancy.emptied()
        may_stop = view.preemptible
        switch_s = max(view.switch_s[how] for how in (START, RESUME, MOVE))
        hasty = 0 < tick_s <= switch_s
        if view.all_preemptible and not hasty:
            return StayingJobs(frozenset(), occupancy)
        stay: set[int] = set()
        sharers = view.plan.occupancy.sharers
        since_s = view.progress.running_since_s
        for job, placement in sorted(view.running.items()):
            if not may_stop[job] or (hasty and view.now <= since_s(job) + switch_s):
                stay.add(job)
                stay.update(j for gpu in placement.named() for j in sharers(*gpu))
        for job in sorted(stay):
            occupancy.hold(job, view.running[job])
        return StayingJobs(frozenset(stay), occupancy)

    def another(self, view: View) -> Occupancy:
        """Returns a second cluster with the staying jobs alone."""
        occupancy = self.occupancy.emptied()
        for job in sorted(self.jobs):
            occupancy.hold(job, view.running[job])
        return occupancy


@dataclass(slots=True)
class SizeQueue:
    """The jobs of equal size, best first, and those that were taken."""

    gpus: int
    gpu_type: str
    groups: tuple[str, ...]
    alone: bool
    entries: list[Entry]
    at: int = 0
    taken: list[Entry] = field(default_factory=list)


def take(
    view: View, rules: SetRules, priority: Priority, settled: StayingJobs, group_limit: int
) -> list[SizeQueue]:
    """Returns the queues of taken jobs, in order of their best job. Fills `settled.occupancy`."""
    occupancy = settled.occupancy
    lines = _lines(view, rules, priority, settled, group_limit)
    heads = [(line.entries[0], number) for number, line in enumerate(lines)]
    heapq.heapify(heads)
    find = view.placing.find
    while heads and occupancy.free_gpus:
        (_, _, job), number = heads[0]
        line = lines[number]
        spans = find(occupancy, view.shape(job)) if line.gpus <= occupancy.free_gpus else None
        if spans is not None and hold(occupancy, job, spans):
            size = 1 if line.alone else group_limit
            line.taken += line.entries[line.at : line.at + size]
            line.at += size
        elif occupancy.books_more:
            line.at += 1  # a quota or host refuses one job; the next may fit
        else:
            line.at = len(line.entries)  # no room for any job of this size
        if line.at < len(line.entries):
            heapq.heapreplace(heads, (line.entries[line.at], number))
        else:
            heapq.heappop(heads)
    return sorted((line for line in lines if line.taken), key=lambda line: line.entries[0])


def hold(occupancy: Occupancy, job: int, spans: Spans) -> bool:
    """Occupies the GPUs of a gang; False where a quota or a host refuses."""
    try:
        occupancy.hold(job, occupancy.on_islands(job, Placement(spans), None))
    except IllegalPlan:
        return False
    return True


def _lines(
    view: View, rules: SetRules, priority: Priority, settled: StayingJobs, group_limit: int
) -> list[SizeQueue]:
    """Returns every queue, as far as its jobs could be taken."""
    rank = priority.rank(view)
    lines: dict[tuple[int, str, tuple[str, ...], bool], SizeQueue] = {}

    def add(key: float, job: int) -> None:
        shape = view.shape(job)
        alike = (shape.gpus, shape.gpu_type, shape.groups, not rules.interleaves[job])
        line = lines.get(alike)
        if line is None:
            line = lines[alike] = SizeQueue(*alike, [])
        line.entries.append((key, rank(job), job))

    running = view.progress.running()
    for key, job in zip(priority.keys(running).tolist(), running.jobs.tolist(), strict=True):
        if job not in settled.jobs:
            add(key, job)
    pool = settled.occupancy.free_gpus
    for shape in view.waiting.shapes_waiting():
        most = group_limit * (pool // view.shapes[shape].gpus)
        if settled.occupancy.books_more:
            most = len(view.waiting)
        for key, job in _first_waiting(view, rules, shape, most):
            add(key, job)
    for line in lines.values():
        line.entries.sort()
    return list(lines.values())


def _first_waiting(
    view: View, rules: SetRules, shape: int, most: int
) -> Iterator[tuple[float, int]]:
    """Yields (key, job) of the first `most` waiting jobs that interleave, and of the others."""
    room = dict.fromkeys(rules.sorts, most)
    key = view.waiting.key
    for job in view.waiting.of_shape(shape):
        sort = rules.interleaves[job]
        if room[sort] > 0:
            room[sort] -= 1
            yield key(job), job
        elif max(room.values()) <= 0:
            return
