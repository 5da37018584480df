"""What the advice of a shadow would have been worth: the record since against a simulation.

The simulation begins with the jobs and nodes of the log's beginning, gets the jobs that came since
at their real times, and gives each the length that it really had. What nobody can know is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite

import numpy as np

from dovetail.control.loop import check_needs
from dovetail.control.loop import run as run_loop
from dovetail.core.errors import InputError
from dovetail.core.job import Floats
from dovetail.core.messages import Ended, Fact, Started, Stopped, Submitted, Withdrawn
from dovetail.core.occupancy import Occupancy
from dovetail.core.placing import Placing
from dovetail.core.policy import parse_policy
from dovetail.core.switching import Switching
from dovetail.core.trace import Trace
from dovetail.physics.linear import linear_physics
from dovetail.physics.sharing.interference import parse_interference
from dovetail.shadow.advice_log import ShadowLog
from dovetail.shadow.lengths import forecast_of
from dovetail.shadow.past_jobs import PastJob
from dovetail.shadow.snapshot import JobKey, SlurmJob, counted
from dovetail.shadow.tables import Tables, tables_of
from dovetail.sim.scene import Scene
from dovetail.sim.scripted import ScriptedEvents
from dovetail.sim.under_way import UnderWay, UnderWayWorld
from dovetail.study.run import granted

ENDLESS_S = 86400.0
"""The length assumed of a job that has not ended and has no time limit: a day."""


@dataclass(frozen=True, slots=True)
class ShadowSide:
    """One side of the comparison, within the time since the log began.

    `wait_s` is the mean time without GPUs of the jobs that waited at all or came since, counted to
    the end of the record; `used` the fraction of the GPUs in use.
    """

    wait_s: float
    median_wait_s: float
    started: int
    ended: int
    used: float


@dataclass(frozen=True, slots=True)
class Worth:
    """The record and the policy over the same jobs; `caveats` are what the comparison assumes."""

    policy: str
    begin_s: float
    end_s: float
    looks: int
    jobs: int
    recorded: ShadowSide
    simulated: ShadowSide
    sooner: int
    later: int
    preemptions: int
    caveats: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Case:
    """The jobs of the comparison, row by row, on the clock of the tables."""

    tables: Tables
    lengths_s: Floats
    arrival_s: Floats
    start_s: Floats
    leave_s: Floats
    under_way: frozenset[int]
    cancelled_s: dict[int, float]
    until_s: float


def worth(
    log: ShadowLog,
    past: Sequence[PastJob],
    switching: Switching,
    history: Trace | None = None,
) -> Worth:
    """Returns what the policy of a log would have changed. Raises InputError.

    `history` has the earlier jobs of a log of predicted lengths.
    """
    policy = parse_policy(log.policy)
    caveats: list[str] = []
    case = _case(log, past, caveats)
    jobs = case.tables.jobs
    physics = linear_physics(jobs, parse_interference("measured"))
    forecast = forecast_of(log.forecast, case.tables, history)
    check_needs(policy, granted(forecast), frozenset())
    scene = Scene(
        trace=Trace.of(jobs, case.lengths_s),
        cluster=case.tables.cluster,
        truth=physics,
        belief=physics,
        forecast=forecast,
        placing=Placing.parse(log.placement),
        switching=switching,
    )
    arrivals = sorted((t, j) for j, t in enumerate(case.arrival_s.tolist()) if isfinite(t))
    running = {}
    for job in sorted(case.under_way):
        placement = case.tables.placement(job)
        assert placement is not None
        running[job] = placement, case.tables.progress(job)
    begin = UnderWay(case.tables.now_s, running, case.tables.states)
    waits = _Waits(len(jobs), case.until_s, case.tables.jobs.gpus.tolist())
    script = ScriptedEvents(arrivals, cancelled_s=case.cancelled_s)
    run_loop(UnderWayWorld(scene, script, begin, policy, waits), policy)
    waits.close()
    return _compared(log, case, waits, caveats)


class _Waits:
    """Counts the waiting and the GPU-seconds of each job up to a time; a recorder of facts."""

    def __init__(self, jobs: int, until_s: float, gpus: list[int]) -> None:
        self._until_s, self._gpus = until_s, gpus
        self._since: list[float | None] = [None] * jobs
        self._on: dict[int, tuple[float, int]] = {}
        self.wait_s = [0.0] * jobs
        self.started_s = [inf] * jobs
        self.ended_s = [inf] * jobs
        self.held_gpu_s = 0.0
        self.preemptions = 0

    def record(self, facts: Sequence[Fact]) -> None:
        """Takes the facts of one instant."""
        for fact in facts:
            match fact:
                case Submitted(t, job, _):
                    self._since[job] = t
                case Started(t, job, _, placement, _, _, _):
                    self._stop_waiting(t, job)
                    self._leave(t, job)
                    self._on[job] = t, placement.gpus
                    self.started_s[job] = min(self.started_s[job], t)
                case Stopped(t, job, _, _):
                    self._leave(t, job)
                    self._since[job] = t
                    self.preemptions += t <= self._until_s
                case Ended(t, job, _) | Withdrawn(t, job):
                    self._stop_waiting(t, job)
                    if job in self._on and isinstance(fact, Ended):
                        self.ended_s[job] = t
                    self._leave(t, job)

    def close(self) -> None:
        """Books what is still open at the end of the record."""
        for job in list(self._on):
            self._leave(self._until_s, job)

    def _stop_waiting(self, t: float, job: int) -> None:
        since = self._since[job]
        if since is not None:
            self.wait_s[job] += max(0.0, min(t, self._until_s) - since)
            self._since[job] = None

    def _leave(self, t: float, job: int) -> None:
        if job in self._on:
            since, gpus = self._on.pop(job)
            self.held_gpu_s += gpus * max(0.0, min(t, self._until_s) - since)


def _case(log: ShadowLog, past: Sequence[PastJob], caveats: list[str]) -> _Case:
    begin_s = log.snapshot.time_s
    by_key = {job.key: job for job in past}
    until_s = max([log.last_s, begin_s, *(t for p in past for t in (p.end_s, p.start_s) if t)])
    if until_s <= begin_s:
        raise InputError("sacct", "has nothing that happened since the log began", "wait a while")
    jobs: list[SlurmJob] = []
    missing = 0
    for job in log.snapshot.jobs:
        if job.key in by_key or job.held:
            jobs.append(replace(job, held_back=""))
        else:
            missing += 1
    jobs.extend(p.job for p in past if p.job.submit_s > begin_s)
    if missing:
        caveats.append(
            f"left out: {counted(missing, 'job')} of the beginning that sacct does not have"
        )
    tables = tables_of(replace(log.snapshot, jobs=tuple(jobs), notes=()))
    rows = _fitting(tables, Placing.parse(log.placement), caveats)
    return _filled(tables, rows, by_key, until_s, caveats)


def _fitting(tables: Tables, placing: Placing, caveats: list[str]) -> set[int]:
    """Returns the rows that run already or fit the nodes that are up."""
    up = tables.cluster.with_nodes(tables.states)
    empty = Occupancy(up, tables.jobs)
    rows = {
        row
        for row, job in enumerate(tables.listed)
        if job.held or placing.find(empty, empty.shape(row)) is not None
    }
    lost = len(tables.listed) - len(rows)
    if lost:
        caveats.append(
            f"left out: {counted(lost, 'job')} for which no nodes were up at the beginning"
        )
    return rows


def _filled(
    tables: Tables,
    rows: set[int],
    by_key: dict[JobKey, PastJob],
    until_s: float,
    caveats: list[str],
) -> _Case:
    n, origin_s, now_s = len(tables.listed), tables.origin_s, tables.now_s
    lengths, arrival = np.full(n, ENDLESS_S), np.full(n, inf)
    start, leave = np.full(n, inf), np.full(n, inf)
    unfinished = 0
    for row in sorted(rows):
        job = tables.listed[row]
        placed_s = tables.progress(row).placed_s
        past = by_key.get(job.key)
        if past is None:
            # Only running jobs may be missing: squeue showed them and sacct does not.
            past = PastJob(job, None, placed_s + origin_s, None, now_s - placed_s)
        unfinished += past.end_s is None
        lengths[row] = _length_s(past)
        leave[row] = inf if past.end_s is None else past.end_s - origin_s
        start[row] = inf if past.start_s is None else past.start_s - origin_s
        if job.held:
            start[row] = placed_s
            lengths[row] = max(lengths[row], now_s - placed_s + 1.0)
        else:
            arrival[row] = max(now_s, (past.eligible_s or job.submit_s) - origin_s)
    if unfinished:
        jobs = counted(unfinished, "job")
        caveats.append(f"not ended, and taken to run to the time limit: {jobs}")
    cancelled = {
        row: max(float(leave[row]), float(arrival[row]) + 1e-3)
        for row in sorted(rows)
        if np.isfinite(leave[row]) and not np.isfinite(start[row])
    }
    held = frozenset(row for row in rows if tables.listed[row].held)
    return _Case(tables, lengths, arrival, start, leave, held, cancelled, until_s - origin_s)


def _length_s(past: PastJob) -> float:
    """Returns how long a job runs: as it did, or to its limit if it has not ended or begun."""
    if past.end_s is not None and past.start_s is not None:
        return max(1.0, past.run_s)
    limit_s = past.job.limit_s
    return max(past.run_s + 1.0, limit_s if isfinite(limit_s) else ENDLESS_S)


def _compared(log: ShadowLog, case: _Case, waits: _Waits, caveats: list[str]) -> Worth:
    until, now = case.until_s, case.tables.now_s
    gpus = case.tables.jobs.gpus
    compete = np.isfinite(case.arrival_s) & (case.arrival_s <= until)
    if not compete.any():
        raise InputError("shadow report", "no job has waited since the log began", "wait a while")
    stop = np.minimum(np.minimum(case.start_s, case.leave_s), until)
    real_wait = np.maximum(0.0, stop - case.arrival_s)[compete]
    ours = np.array(waits.wait_s)[compete]
    counted = compete | np.array([row in case.under_way for row in range(len(gpus))])
    first = np.maximum(case.start_s, now)
    real_gpu_s = gpus * np.maximum(0.0, np.minimum(case.leave_s, until) - first)
    capacity = case.tables.cluster.with_nodes(case.tables.states).gpus * (until - now)
    sides = (
        _side(real_wait, case.start_s[compete], case.leave_s[counted & (case.start_s < inf)],
              float(real_gpu_s[counted & np.isfinite(case.start_s)].sum()) / capacity, until),
        _side(ours, np.array(waits.started_s)[compete], np.array(waits.ended_s)[counted],
              waits.held_gpu_s / capacity, until),
    )  # fmt: skip
    caveats += [
        "nodes stay as they were when the log began",
        "Slurm's own limits of users and accounts, reservations and dependencies are not replayed",
        "a job runs as long as it really did, wherever it runs",
    ]
    return Worth(
        policy=log.policy,
        begin_s=log.snapshot.time_s,
        end_s=until + case.tables.origin_s,
        looks=log.looks,
        jobs=int(compete.sum()),
        recorded=sides[0],
        simulated=sides[1],
        sooner=int((ours < real_wait - 1.0).sum()),
        later=int((ours > real_wait + 1.0).sum()),
        preemptions=waits.preemptions,
        caveats=tuple(caveats),
    )


def _side(
    wait_s: Floats, start_s: Floats, end_s: Floats, used: float, until_s: float
) -> ShadowSide:
    return ShadowSide(
        wait_s=float(wait_s.mean()),
        median_wait_s=float(np.median(wait_s)),
        started=int((start_s <= until_s).sum()),
        ended=int((end_s <= until_s).sum()),
        used=used,
    )
