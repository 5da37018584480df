"""Processor sharing by units of time, while not all jobs fit and no lengths are known.

Each job counts the whole units it has run. Jobs with the fewest units are chosen first, among them
those that have waited longest. A chosen job runs for one unit; then its count rises by one and it
joins the end of the line of that count. As soon as all jobs fit, running units are cancelled.

A gang whose turn has come but that does not fit reserves the free GPUs: it starts before any job
behind it gets a turn on them, at the latest when the units running now have ended. Until then jobs
behind it backfill: they run on reserved GPUs and are stopped, without counting a unit, as soon as
the gang can start.

Source: AFS section 3.3; ALGORITHMS section 2.3. A rotation is an immutable value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.core.messages import RESUME, START
from dovetail.core.view import View
from dovetail.mechanisms.elastic.budget import Budget, Pool, is_limited
from dovetail.mechanisms.elastic.shares import movable

Lines = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Rotation:
    """Whole units of the jobs, and the waiting and running jobs while not all fit.

    `lines[u]` are the waiting jobs with u units in order of waiting, empty while all fit. `units`
    are (job, units) of the jobs in no line, without zeros; `until_s` are (job, end of its unit) of
    the running jobs. `reserving` are the waiting gangs with reserved GPUs, in order of reservation;
    `backfilled` the running jobs on such GPUs, which keep their place in line.
    """

    crowded: bool = False
    lines: Lines = ()
    units: tuple[tuple[int, int], ...] = ()
    until_s: tuple[tuple[int, float], ...] = ()
    reserving: tuple[int, ...] = ()
    backfilled: tuple[int, ...] = ()

    @property
    def runners(self) -> list[int] | None:
        """Returns the jobs to run; None means all jobs."""
        return [job for job, _ in self.until_s] if self.crowded else None

    @property
    def wake_at(self) -> float:
        """Returns when the next unit ends."""
        return min((end_s for _, end_s in self.until_s), default=float("inf"))

    def settled(self, placed: Mapping[int, object]) -> Rotation:
        """Returns the turns after chosen jobs that found no room returned to their places."""
        missed = [j for j, _ in self.until_s if j not in placed]
        if not missed:
            return self
        lines, units = self.lines, dict(self.units)
        for job in sorted(set(missed).difference(self.backfilled), reverse=True):
            level = units.pop(job, 0)
            lines = _with_line(lines, level, (job, *_line(lines, level)))
        until_s = {j: t for j, t in self.until_s if j in placed}
        backfilled = tuple(j for j in self.backfilled if j in placed)
        return _turns(lines, units, until_s, self.reserving, backfilled)


NO_TURNS = Rotation()
"""The turns before any job had to wait."""


def next_turns(view: View, turns: Rotation, pool: Pool, unit_s: float) -> Rotation:
    """Returns the turns after the events since the last decision.

    While `crowded`, the jobs of `until_s` run, and no other job that may be stopped.
    """
    if _all_fit(view, pool):
        return Rotation(units=tuple(_present_units(view, turns).items()))
    if not turns.crowded:
        turns = _begun(view, turns, unit_s)
    else:
        turns = _moved_on(view, turns, unit_s)
    return _chosen(view, turns, pool, unit_s)


def _all_fit(view: View, pool: Pool) -> bool:
    """Returns whether the least shares of all jobs that could ever run fit together."""
    runners = view.progress.running().jobs[movable(view)]
    limited = is_limited(view)
    if not limited and len(runners) + len(view.waiting) > 2 * pool.gpus:
        return False  # NOTE: spares a pass over the thousands that wait.
    all_jobs = np.concatenate([runners, np.array(list(view.waiting), np.int64)])
    least = pool.booked(view.jobs.least_gpus[all_jobs])
    if not limited:
        return int(least[least <= pool.gpus].sum()) <= pool.gpus
    budget = Budget(view, pool)
    return all(budget.take(job) for job in all_jobs.tolist() if budget.could_run(job))


def _present_units(view: View, turns: Rotation) -> dict[int, int]:
    """Returns the units of all present jobs, without zeros."""
    ended = set(view.changes.ended)
    units = {j: u for j, u in turns.units if j not in ended}
    for level, line in enumerate(turns.lines):
        if level:
            units.update((j, level) for j in line if j not in ended)
    return units


def _begun(view: View, turns: Rotation, unit_s: float) -> Rotation:
    """Returns the first turns: the units of running jobs start now, waiting jobs line up."""
    units = _present_units(view, turns)
    since_s = view.progress.pending_since_s
    waiting = sorted(view.waiting, key=lambda j: (since_s(j), j))
    lines: Lines = ()
    for level in sorted({units.get(j, 0) for j in waiting}):
        lines = _with_line(lines, level, tuple(j for j in waiting if units.get(j, 0) == level))
    runners = view.progress.running().jobs[movable(view)].tolist()
    until_s = dict.fromkeys(sorted(runners), view.now + unit_s)
    return _turns(lines, {j: units[j] for j in units if j not in view.waiting}, until_s)


def _joining(
    view: View, backfilled: tuple[int, ...], units: dict[int, int], until_s: dict[int, float]
) -> list[tuple[int, int]]:
    """Removes jobs whose unit is over, or that were evicted, from both tables.

    Returns these jobs and the arrivals with the line that each joins, in order of job.
    """
    joining = [(job, 0) for job in view.changes.arrived]
    for job in view.changes.evicted:
        until_s.pop(job, None)
        if job not in backfilled:
            joining.append((job, units.pop(job, 0)))
    for job in [j for j, end_s in until_s.items() if end_s <= view.now]:
        del until_s[job]
        joining.append((job, units.pop(job, 0) + 1))
    return sorted(joining)


def _moved_on(view: View, turns: Rotation, unit_s: float) -> Rotation:
    """Returns the turns after ends, evictions, finished units and arrivals, by (time, id)."""
    units, until_s, lines = dict(turns.units), dict(turns.until_s), turns.lines
    ended, preemptible = view.changes.ended, view.preemptible
    # First, so that `units` has the units of ended backfilled jobs when ends remove them.
    lines = _out_of_line(lines, units, _leaving_backfill(view, turns))
    if any(j not in until_s for j in ended):
        gone = set(ended)
        lines = tuple(tuple(j for j in line if j not in gone) for line in lines)
    for job in ended:
        units.pop(job, None)
        until_s.pop(job, None)
    for job in [j for j in until_s if not preemptible[j]]:
        del until_s[job]  # from now on it runs outside the rotation
    if view.changes.capacity:
        # Jobs left out on a draining node take turns again when the node is back.
        back = set(view.progress.running().jobs[movable(view)].tolist()).difference(until_s)
        until_s.update(dict.fromkeys(sorted(back), view.now + unit_s))
    for job, level in _joining(view, turns.backfilled, units, until_s):
        lines = _with_line(lines, level, (*_line(lines, level), job))
    backfilled = tuple(j for j in turns.backfilled if j in until_s)
    return _turns(lines, units, until_s, turns.reserving, backfilled)


def _leaving_backfill(view: View, turns: Rotation) -> list[int]:
    """Returns the backfilled jobs that give up their place in line: ended, fixed, or unit over."""
    ended, preemptible, until_s = set(view.changes.ended), view.preemptible, dict(turns.until_s)
    return [
        job
        for job in turns.backfilled
        if job in ended or not preemptible[job] or until_s[job] <= view.now
    ]


def _chosen(view: View, turns: Rotation, pool: Pool, unit_s: float) -> Rotation:
    """Returns the turns after free GPUs went to the first jobs in line.

    Gangs with reserved GPUs come before the lines and before backfilled jobs: otherwise a gang
    could wait forever behind small jobs that come and go.
    """
    choice = _Choice(view, turns, pool, unit_s)
    choice.serve_reserving(turns.reserving)
    choice.keep_backfilled(turns.backfilled)
    choice.serve_lines()
    return _turns(
        choice.lines,
        choice.units,
        choice.until_s,
        tuple(choice.reserving),
        tuple(choice.backfilled),
    )


class _Choice:
    """The turns while free GPUs are handed out."""

    def __init__(self, view: View, turns: Rotation, pool: Pool, unit_s: float) -> None:
        self._view, self._unit_s = view, unit_s
        self._budget = Budget(view, pool)
        self.until_s, self.units, self.lines = dict(turns.until_s), dict(turns.units), turns.lines
        self.reserving: list[int] = []
        self.backfilled: list[int] = []
        # A unit is running time: the time of a start comes on top.
        self._switch_s = max(view.switch_s.get(START, 0.0), view.switch_s.get(RESUME, 0.0))
        self._budget.promise([j for j in self.until_s if j not in turns.backfilled])

    def serve_reserving(self, jobs: Sequence[int]) -> None:
        """Starts the waiting gangs with a reservation that fit now; the others reserve again."""
        for job in jobs:
            if job not in self._view.waiting:
                continue  # it has ended
            if self._budget.take(job):
                self.lines = _out_of_line(self.lines, self.units, [job])
                self._begin(job)
            elif self._budget.could_run(job):
                self._budget.reserve(job)
                self.reserving.append(job)

    def keep_backfilled(self, jobs: Sequence[int]) -> None:
        """Keeps jobs on reserved GPUs running; a job in the way of a gang waits for its turn."""
        for job in jobs:
            if self._budget.take(job):
                self.lines = _out_of_line(self.lines, self.units, [job])
            elif self._budget.backfill(job):
                self.backfilled.append(job)
            else:
                del self.until_s[job]

    def serve_lines(self) -> None:
        """Gives turns along the lines; a gang that finds too few GPUs reserves the rest."""
        for level, line in enumerate(self.lines):
            if not self._any_left():
                break
            staying: list[int] = []
            for position, job in enumerate(line):
                if not self._any_left():
                    staying.extend(line[position:])
                    break
                if job in self.reserving or job in self.backfilled or not self._takes(job):
                    staying.append(job)
                elif level:
                    self.units[job] = level
            if len(staying) < len(line):
                self.lines = _with_line(self.lines, level, tuple(staying))

    def _any_left(self) -> bool:
        return self._budget.gpus > 0 or self._budget.reserved > 0

    def _takes(self, job: int) -> bool:
        """Begins a waiting job's turn; one that does not fit backfills or reserves (False)."""
        if self._budget.take(job):
            self._begin(job)
            return True
        if self._view.preemptible[job] and self._budget.backfill(job):
            self._begin(job)
            self.backfilled.append(job)
        elif self._budget.reserve(job):
            self.reserving.append(job)
        return False

    def _begin(self, job: int) -> None:
        view = self._view
        begins_s = view.now if job in view.running else view.now + self._switch_s
        endless = not view.preemptible[job]
        self.until_s[job] = float("inf") if endless else begins_s + self._unit_s


def _out_of_line(lines: Lines, units: dict[int, int], jobs: Sequence[int]) -> Lines:
    """Returns the lines without these jobs, and moves their units to `units`."""
    for job in jobs:
        level = _level(lines, job)
        lines = _with_line(lines, level, tuple(j for j in lines[level] if j != job))
        if level:
            units[job] = level
    return lines


def _level(lines: Lines, job: int) -> int:
    """Returns the units of a job in line."""
    return next(level for level, line in enumerate(lines) if job in line)


def _turns(
    lines: Lines,
    units: Mapping[int, int],
    until_s: Mapping[int, float],
    reserving: tuple[int, ...] = (),
    backfilled: tuple[int, ...] = (),
) -> Rotation:
    return Rotation(
        True, lines, tuple(units.items()), tuple(until_s.items()), reserving, backfilled
    )


def _line(lines: Lines, level: int) -> tuple[int, ...]:
    return lines[level] if level < len(lines) else ()


def _with_line(lines: Lines, level: int, line: Sequence[int]) -> Lines:
    """Returns the lines with one of them replaced."""
    longer = lines + ((),) * (level + 1 - len(lines))
    return (*longer[:level], tuple(line), *longer[level + 1 :])
