"""Pages of the list of jobs: what comes in which order, and the waiting tasks of arrays in one row.

Jobs that are not over are few and are ordered as a whole; of those that are over only the rows of
the page are read, so that a page takes as long after fifty thousand jobs as after a thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dovetail.core.errors import InputError
from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.status_snapshot import SnapshotIndex
from dovetail.live.server.messages.listing import JobList, JobRow, ListJobs
from dovetail.live.server.rows import job_row, ranges_text
from dovetail.live.store.queries import LIVE, LiveRow, Queries

ROWS_MAX = 100_000


def job_page(reader: Queries, asked: ListJobs, seen: SnapshotIndex, now_s: float) -> JobList:
    """Returns one page of the jobs that match, and how many rows there are in all."""
    limit = max(1, min(asked.limit, ROWS_MAX))
    first = max(0, asked.offset)
    wanted = states_of(asked.states) or (tuple(State) if asked.ended else LIVE)
    over = tuple(s for s in wanted if s in TERMINAL)
    items = _live(reader, asked, [s for s in wanted if s not in TERMINAL], seen)
    shown = items[first : first + limit]
    rows = _live_rows(reader, shown, seen, now_s)
    # Jobs that only end are listed by their ends.
    since_s = asked.since_s if len(over) == len(wanted) else None
    total = len(items)
    if over:
        total += reader.count(over, user=asked.user, name=asked.name, since_s=since_s)
        if len(rows) < limit:
            ended = reader.rows(
                over,
                user=asked.user,
                name=asked.name,
                since_s=since_s,
                limit=limit - len(rows),
                offset=max(0, first - len(items)),
            )
            made = [job_row(job, seen, now_s) for job in ended]
            rows += sorted(made, key=lambda row: -row.end_s)
    counts = reader.counts()
    said = tuple((str(s), counts[s]) for s in State if counts.get(s))
    more = max(0, total - first - len(rows))
    return JobList(now_s, tuple(rows), more, said, total=total, offset=first)


def _live(
    reader: Queries, asked: ListJobs, states: Sequence[State], seen: SnapshotIndex
) -> list[list[LiveRow]]:
    """Returns the jobs of each row: placed jobs, those ranked by the policy, then all others."""
    if not states:
        return []
    jobs = reader.live_jobs(states, user=asked.user, name=asked.name)
    placed = [[job] for job in jobs if job[1] != State.PENDING]
    waiting = [job for job in jobs if job[1] == State.PENDING]
    ranked = sorted((job for job in waiting if job[0] in seen.rank), key=lambda j: seen.rank[j[0]])
    others = [job for job in waiting if job[0] not in seen.rank]
    if not asked.group_arrays:
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
    reader: Queries, shown: Sequence[Sequence[LiveRow]], seen: SnapshotIndex, now_s: float
) -> list[JobRow]:
    stored = {job.number: job for job in reader.some([jobs[0][0] for jobs in shown])}
    rows = []
    for jobs in shown:
        first = stored.get(jobs[0][0])
        if first is None:
            continue
        row = job_row(first, seen, now_s)
        if len(jobs) > 1:
            indices = sorted(index for _, _, _, index in jobs)
            tasks = ranges_text(indices)
            called = f"{row.array_of}_[{tasks}]"
            row = replace(row, array=-1, tasks=tasks, task_count=len(indices), called=called)
        rows.append(row)
    return rows


def states_of(texts: Sequence[str]) -> tuple[State, ...]:
    """Returns the states of some names. Raises InputError."""
    found = []
    for text in texts:
        if text.upper() not in State.__members__:
            raise InputError(f"state '{text}'", "there is no such state", ", ".join(State))
        found.append(State[text.upper()])
    return tuple(found)
