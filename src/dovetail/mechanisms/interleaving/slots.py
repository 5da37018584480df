"""Which jobs to take: as many as full groups on all GPUs could serve (Muri; FIX-13).

The line of all jobs is scanned by priority. A job whose gang finds room takes a slot: its GPUs
are counted once, and with it go the next jobs that ask for the same GPUs, a full group in all. A
job that finds no room is passed over. Jobs that may not be interleaved take a slot each.
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
    """How jobs are ranked: by key; of equals the first submitted, or those of most GPUs.

    Muri's artifact keeps its list sorted by GPUs between events and adds arrivals at the end, so
    with `gpus` of jobs with equal keys those of most GPUs come first, and arrivals last.
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
    """The running jobs that stay where they are, and the cluster with them alone."""

    jobs: frozenset[int]
    occupancy: Occupancy

    @staticmethod
    def of(view: View, tick_s: float) -> StayingJobs:
        """Returns those on the GPUs of a job that may not be stopped now.

        A job that has not trained since it was placed is not stopped: where a tick is no longer
        than a switch, jobs would take each other's GPUs for ever and none would get on.
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
        """Returns a second cluster with the settled jobs alone."""
        occupancy = self.occupancy.emptied()
        for job in sorted(self.jobs):
            occupancy.hold(job, view.running[job])
        return occupancy


@dataclass(slots=True)
class SizeQueue:
    """The jobs that ask for the same GPUs, best first, and those of them that were taken."""

    gpus: int
    gpu_type: str
    alone: bool
    entries: list[Entry]
    at: int = 0
    taken: list[Entry] = field(default_factory=list)


def take(
    view: View, rules: SetRules, priority: Priority, settled: StayingJobs, group_limit: int
) -> list[SizeQueue]:
    """Returns the lines that gave jobs, in order of their best job. Fills `settled.occupancy`."""
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
            line.at += 1
        else:
            line.at = len(line.entries)
        if line.at < len(line.entries):
            heapq.heapreplace(heads, (line.entries[line.at], number))
        else:
            heapq.heappop(heads)
    found = [line for line in lines if line.taken]
    found.sort(key=lambda line: line.entries[0])
    return found


def hold(occupancy: Occupancy, job: int, spans: Spans) -> bool:
    """Holds the GPUs of a gang; False where a quota or a host says no."""
    try:
        occupancy.hold(job, Placement(spans))
    except IllegalPlan:
        return False
    return True


def _lines(
    view: View, rules: SetRules, priority: Priority, settled: StayingJobs, group_limit: int
) -> list[SizeQueue]:
    """Returns every line, as far as it could be taken."""
    rank = priority.rank(view)
    found: dict[tuple[int, str, bool], SizeQueue] = {}

    def add(key: float, job: int) -> None:
        shape = view.shape(job)
        alike = (shape.gpus, shape.gpu_type, not rules.interleaves[job])
        line = found.get(alike)
        if line is None:
            line = found[alike] = SizeQueue(*alike, [])
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
    for line in found.values():
        line.entries.sort()
    return list(found.values())


def _first_waiting(
    view: View, rules: SetRules, shape: int, most: int
) -> Iterator[tuple[float, int]]:
    """Yields key and job of the first `most` that wait, of those that interleave and of others."""
    room = dict.fromkeys(rules.sorts, most)
    key = view.waiting.key
    for job in view.waiting.of_shape(shape):
        sort = rules.interleaves[job]
        if room[sort] > 0:
            room[sort] -= 1
            yield key(job), job
        elif max(room.values()) <= 0:
            return
