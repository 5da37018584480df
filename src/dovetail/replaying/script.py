"""Extracts the external events of a live cluster from its log, as a script for the simulator.

Users submit, hold, requeue and cancel jobs, programs fail, and nodes go down. The scheduler causes
none of these events, so a simulation repeats them at the same times. A job that was requeued after
its end becomes one row per life; a job that is alive at the end of the log is cancelled then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dovetail.core.job import JobTable
from dovetail.core.messages import (
    BY_POLICY,
    NODE_DOWN,
    Ended,
    Foreseen,
    NodeChanged,
    Started,
    Stopped,
    Submitted,
    Withdrawn,
)
from dovetail.core.trace import CANCELLED, ENDS, TIMEOUT, Trace
from dovetail.replaying.decisions import Recording
from dovetail.sim.scene import CapacityTimeline
from dovetail.sim.scripted import ScriptedEvents, ScriptedFollower, ScriptedLeave

SOON_S = 60.0
"""A job that arrives this soon after its dependency is assumed to arrive because of it."""
LONGER = 2.0
"""The work of a cancelled job is assumed to be this many times what it did, and a second."""


@dataclass(slots=True)
class ScriptedStay:
    """One life of a job, from its arrival in the queue to its end, which is inf while it lives."""

    job: int
    since_s: float
    entered_s: float
    arrivals: list[float] = field(default_factory=list)
    begun_s: list[float] = field(default_factory=list)
    leaves: list[tuple[float, str, bool]] = field(default_factory=list)
    length_s: float = float("inf")
    distribution: tuple[float, ...] = ()
    did_s: float = 0.0
    how: str = ""
    end_s: float = float("inf")
    ran_at_end: bool = False
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class Happened:
    """The jobs and events of a log for the simulator; `last` is the row of each job's last life."""

    trace: Trace
    script: ScriptedEvents
    length_s: tuple[float, ...]
    distributions: tuple[tuple[float, ...], ...]
    capacity: CapacityTimeline
    last: tuple[int, ...]


def happened(recording: Recording) -> Happened:
    """Returns the jobs and external events of a log."""
    of_jobs = _lives(recording)
    for of_job in of_jobs:
        of_job[-1].is_last = True
    rows = sorted((x for of_job in of_jobs for x in of_job), key=lambda x: (x.entered_s, x.job))
    trace, cancelled_s = _trace(recording, rows)
    after_end, after_start = _follows(recording, rows)
    for other, follows in _places(recording, rows).items():
        after_end.setdefault(other, []).extend(follows)
    script = ScriptedEvents(
        arrivals=sorted((t, row) for row, life in enumerate(rows) for t in life.arrivals),
        leaves=sorted(
            (
                ScriptedLeave(t, row, why, keeps)
                for row, x in enumerate(rows)
                for t, why, keeps in x.leaves
            ),
            key=lambda leave: leave.t,
        ),
        cancelled_s=cancelled_s,
        after_end=after_end,
        after_start=after_start,
    )
    lengths = zip(rows, trace.duration_s.tolist(), strict=True)
    length_s = tuple(x.length_s if x.length_s < float("inf") else work_s for x, work_s in lengths)
    last = {life.job: row for row, life in enumerate(rows) if life.is_last}
    numbered = tuple(last[job] for job in range(len(of_jobs)))
    distributions = tuple(x.distribution for x in rows)
    return Happened(trace, script, length_s, distributions, _capacity(recording), numbered)


def _lives(recording: Recording) -> list[list[ScriptedStay]]:
    """Returns the lives of each job, at least one."""
    lives: list[list[ScriptedStay]] = [[] for _ in recording.trace.jobs.job_id]
    placed: set[int] = set()
    for fact in recording.facts:
        match fact:
            case Submitted(t, job, length_s, numbers):
                if not lives[job]:
                    lives[job].append(
                        ScriptedStay(job, t, float(recording.trace.jobs.submit_s[job]))
                    )
                elif lives[job][-1].how:
                    # A job that is requeued after its end queues behind earlier submissions.
                    lives[job].append(ScriptedStay(job, t, t))
                lives[job][-1].arrivals.append(t)
                lives[job][-1].length_s, lives[job][-1].distribution = length_s, numbers
            case Foreseen(_, job, length_s, numbers):
                lives[job][-1].length_s, lives[job][-1].distribution = length_s, numbers
            case Started(t, job):
                if job not in placed:
                    lives[job][-1].begun_s.append(t)
                placed.add(job)
            case Stopped(t, job, why, done_s):
                placed.discard(job)
                # Preemptions are the policy's, and nodes go down by the capacity timeline: both
                # happen again by themselves in the simulation.
                if why not in (*BY_POLICY, NODE_DOWN):
                    lives[job][-1].leaves.append((t, why, done_s > 0))
            case Withdrawn(t, job):
                lives[job][-1].leaves.append((t, "", True))
            case Ended(t, job, how):
                life = lives[job][-1]
                life.how, life.end_s, life.ran_at_end = how, t, job in placed
                placed.discard(job)
            case _:
                pass
    _add_progress(recording, lives)
    return lives


def _add_progress(recording: Recording, lives: list[list[ScriptedStay]]) -> None:
    for segment in recording.tally().segments:
        for life in lives[segment.job]:
            if life.since_s <= segment.start_s < life.end_s:
                life.did_s += segment.progress_s


def _follows(
    recording: Recording, rows: Sequence[ScriptedStay]
) -> tuple[dict[int, list[ScriptedFollower]], dict[int, list[ScriptedFollower]]]:
    """Returns the arrivals that another job's end or start caused, and removes them from `rows`."""
    after_end: dict[int, list[ScriptedFollower]] = {}
    after_start: dict[int, list[ScriptedFollower]] = {}
    rows_of: dict[int, list[int]] = {}
    for row, life in enumerate(rows):
        rows_of.setdefault(life.job, []).append(row)
    for row, life in enumerate(rows):
        causes = [
            (t, other, on_start)
            for kind, job in recording.after.get(life.job, ())
            for other in rows_of.get(job, ())
            for t, on_start in (
                [(t, True) for t in rows[other].begun_s[:1] if kind == "after"]
                + [(rows[other].end_s, False)]
            )
            if life.arrivals and 0 <= life.arrivals[0] - t <= SOON_S
        ]
        if causes:
            # The latest cause decides. The arrival leaves the fixed times: in the simulation it
            # follows its cause, which may happen at another time than it did.
            t, other, on_start = max(causes)
            table = after_start if on_start else after_end
            table.setdefault(other, []).append(ScriptedFollower(row, life.arrivals.pop(0) - t))
    return after_end, after_start


def _places(
    recording: Recording, rows: Sequence[ScriptedStay]
) -> dict[int, list[ScriptedFollower]]:
    """Returns the arrivals of tasks of limited arrays that the end of another task caused.

    Each end admits one task. Removes these arrivals from `rows`.
    """
    follows: dict[int, list[ScriptedFollower]] = {}
    for array in dict.fromkeys(recording.limited.values()):
        tasks = [row for row, x in enumerate(rows) if recording.limited.get(x.job) == array]
        ends = sorted((rows[row].end_s, row) for row in tasks)
        waiting = [row for row in tasks if rows[row].arrivals]
        for row in sorted(waiting, key=lambda row: (rows[row].arrivals[0], row)):
            t = rows[row].arrivals[0]
            left = next((end for end in ends if end[1] != row and 0 <= t - end[0] <= SOON_S), None)
            # The first tasks of an array need no other task to end.
            if left is not None and t > rows[row].entered_s:
                ends.remove(left)
                rows[row].arrivals.pop(0)
                follows.setdefault(left[1], []).append(ScriptedFollower(row, t - left[0]))
    return follows


def _trace(recording: Recording, rows: Sequence[ScriptedStay]) -> tuple[Trace, dict[int, float]]:
    """Returns a trace with a row per life, and when the script cancels some of them."""
    trace, log_end_s = recording.trace, recording.facts[-1].t
    ends, work_s = list[int](), list[float]()
    cancelled_s: dict[int, float] = {}
    for row, life in enumerate(rows):
        known_s = float(trace.duration_s[life.job]) if life.is_last else life.did_s
        end = ENDS.index(life.how) if life.how else CANCELLED
        if end in (CANCELLED, TIMEOUT) or not life.ran_at_end:
            known_s = max(known_s, LONGER * life.did_s + 1.0)
            has_limit = float(trace.jobs.time_limit_s[life.job]) < float("inf")
            if not (end == TIMEOUT and has_limit and life.ran_at_end):
                cancelled_s[row] = min(life.end_s, log_end_s)
        ends.append(end)
        work_s.append(known_s or 1.0)
    whole = Trace.of(_table(trace.jobs, rows), np.array(work_s), trace.name)
    return replace(whole, end=np.array(ends, np.int8)), cancelled_s


def _table(jobs: JobTable, rows: Sequence[ScriptedStay]) -> JobTable:
    """Returns the requests in the order of the cluster's table."""
    unordered = replace(jobs, submit_s=np.zeros(len(jobs)))
    taken = unordered.take(np.array([life.job for life in rows], np.int64))
    names = [jobs.job_id[x.job] + ("" if x.is_last else f" until {x.end_s:g} s") for x in rows]
    return replace(taken, job_id=tuple(names), submit_s=np.array([life.entered_s for life in rows]))


def _capacity(recording: Recording) -> CapacityTimeline:
    changes: dict[float, list[tuple[int, str]]] = {}
    for fact in recording.facts:
        if isinstance(fact, NodeChanged):
            changes.setdefault(fact.t, []).append((fact.node, fact.state))
    return sorted(changes.items())
