"""Pages of the list of jobs: their order, and one row for the waiting tasks of an array.

Live jobs are few and are ordered as a whole. Of ended jobs only the rows of the page are read, so
the time of a page does not grow with the number of jobs that have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dovetail.core.errors import InputError
from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.status_snapshot import SnapshotIndex
from dovetail.live.server.messages.listing import JobList, JobRow, ListJobs
from dovetail.live.server.rows import job_row, ranges_text
from dovetail.live.store.queries import LIVE, JobFilter, LiveRow, Queries

ROWS_MAX = 100_000


def job_page(reader: Queries, request: ListJobs, index: SnapshotIndex, now_s: float) -> JobList:
    """Returns one page of the jobs that match, and the number of rows of all pages."""
    limit = max(1, min(request.limit, ROWS_MAX))
    first = max(0, request.offset)
    states = states_of(request.states) or (tuple(State) if request.ended else LIVE)
    terminal = tuple(s for s in states if s in TERMINAL)
    live = _live(reader, request, [s for s in states if s not in TERMINAL], index)
    rows = _live_rows(reader, live[first : first + limit], index, now_s)
    # A list of ended jobs alone is in the order of their ends.
    since_s = request.since_s if len(terminal) == len(states) else None
    total = len(live)
    if terminal:
        match = JobFilter(request.user, request.name, since_s)
        total += reader.count(terminal, match)
        if len(rows) < limit:
            rest, offset = limit - len(rows), max(0, first - len(live))
            ended = reader.rows(terminal, match, limit=rest, offset=offset)
            ended_rows = [job_row(job, index, now_s) for job in ended]
            rows += sorted(ended_rows, key=lambda row: -row.end_s)
    by_state = reader.counts()
    counts = tuple((str(s), by_state[s]) for s in State if by_state.get(s))
    more = max(0, total - first - len(rows))
    return JobList(now_s, tuple(rows), more, counts, total=total, offset=first)


def _live(
    reader: Queries, request: ListJobs, states: Sequence[State], index: SnapshotIndex
) -> list[list[LiveRow]]:
    """Returns the jobs of each row: placed jobs, those ranked by the policy, then all others."""
    if not states:
        return []
    jobs = reader.live_jobs(states, JobFilter(request.user, request.name))
    placed = [[job] for job in jobs if job[1] != State.PENDING]
    waiting = [job for job in jobs if job[1] == State.PENDING]
    ranked = sorted(
        (job for job in waiting if job[0] in index.rank), key=lambda j: index.rank[j[0]]
    )
    others = [job for job in waiting if job[0] not in index.rank]
    if not request.group_arrays:
        return placed + [[job] for job in (*ranked, *others)]
    return placed + _grouped(ranked) + _grouped(others)


def _grouped(waiting: Sequence[LiveRow]) -> list[list[LiveRow]]:
    """Returns one row for each job, and one for all tasks of an array at its first task."""
    groups: dict[tuple[int, bool], list[LiveRow]] = {}
    for job in waiting:
        number, _, array, _ = job
        groups.setdefault((number, False) if array < 0 else (array, True), []).append(job)
    return list(groups.values())


def _live_rows(
    reader: Queries, shown: Sequence[Sequence[LiveRow]], index: SnapshotIndex, now_s: float
) -> list[JobRow]:
    stored = {job.number: job for job in reader.some([jobs[0][0] for jobs in shown])}
    rows = []
    for jobs in shown:
        first = stored.get(jobs[0][0])
        if first is None:
            continue
        row = job_row(first, index, now_s)
        if len(jobs) > 1:
            indices = sorted(index for _, _, _, index in jobs)
            tasks = ranges_text(indices)
            called = f"{row.array_of}_[{tasks}]"
            row = replace(row, array=-1, tasks=tasks, task_count=len(indices), called=called)
        rows.append(row)
    return rows


def states_of(texts: Sequence[str]) -> tuple[State, ...]:
    """Returns the states of some names. Raises InputError."""
    for text in texts:
        if text.upper() not in State.__members__:
            raise InputError(f"state '{text}'", "there is no such state", ", ".join(State))
    return tuple(State[text.upper()] for text in texts)
