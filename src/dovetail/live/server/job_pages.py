"""Pages of the list of jobs: what comes in which order, and the waiting tasks of arrays in one row.

Jobs that are not over are few and are ordered as a whole; of those that are over only the rows of
the page are read, so that a page takes as long after fifty thousand jobs as after a thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dovetail.core.errors import InputError
from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.status_snapshot import SnapshotIndex
from dovetail.live.server.messages.listing import JobList, JobRow, ListJobs
from dovetail.live.server.rows import job_row, ranges_text
from dovetail.live.store.queries import LIVE, Queries, UnfinishedJob

ROWS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class _Item:
    """One row of the list: a job, or waiting tasks of one array, the first to start first."""

    tasks: tuple[UnfinishedJob, ...]


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
) -> list[_Item]:
    """Returns the rows of jobs that are not over: placed, ranked by the policy, then all others."""
    if not states:
        return []
    found = reader.live_jobs(states, user=asked.user, name=asked.name)
    waiting = [job for job in found if job.state == State.PENDING]
    placed = [_Item((job,)) for job in found if job.state != State.PENDING]
    ranked = sorted(
        (j for j in waiting if j.number in seen.rank), key=lambda j: seen.rank[j.number]
    )
    others = [job for job in waiting if job.number not in seen.rank]
    if not asked.group_arrays:
        return placed + [_Item((job,)) for job in (*ranked, *others)]
    return placed + _grouped(ranked) + _grouped(others)


def _grouped(waiting: Sequence[UnfinishedJob]) -> list[_Item]:
    """Returns a row for each job, and one for all tasks of an array where its first one stands."""
    groups: dict[tuple[int, bool], list[UnfinishedJob]] = {}
    for job in waiting:
        is_task = job.array_of >= 0
        groups.setdefault((job.array_of if is_task else job.number, is_task), []).append(job)
    return [_Item(tuple(tasks)) for tasks in groups.values()]


def _live_rows(
    reader: Queries, items: Sequence[_Item], seen: SnapshotIndex, now_s: float
) -> list[JobRow]:
    kept = {job.number: job for job in reader.some([item.tasks[0].number for item in items])}
    rows = []
    for item in items:
        first = kept.get(item.tasks[0].number)
        if first is None:
            continue
        row = job_row(first, seen, now_s)
        if len(item.tasks) > 1:
            indices = sorted(task.array_index for task in item.tasks)
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
