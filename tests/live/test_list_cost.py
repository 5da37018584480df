"""A page of the list of jobs costs as much after many finished jobs as after few."""

from dataclasses import replace
from typing import Any

import pytest

from dovetail.live.edges.protocols import JournalEntry
from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.record import JobRecord
from dovetail.live.jobs.status_snapshot import SnapshotIndex, StatusSnapshot
from dovetail.live.server.job_pages import job_page
from dovetail.live.server.messages.listing import ListJobs
from dovetail.live.store.database import Database
from dovetail.live.store.queries import Queries
from dovetail.live.store.store import Store, add_jobs
from dovetail.wire.spec import JobSpec

ENDED = tuple(sorted(TERMINAL))
PAGES: dict[str, dict[str, Any]] = {
    "ls": {},
    "ls --user": {"user": "ann"},
    "ls --name": {"name": "train"},
    "ls --all": {"ended": True},
    "ls --all, a later page": {"ended": True, "offset": 40},
    "ls --all --user": {"ended": True, "user": "ann"},
    "ls --state COMPLETED": {"states": ("COMPLETED",)},
    "ls --state COMPLETED --user": {"states": ("COMPLETED",), "user": "ann"},
    "ls --state FAILED --user": {"states": ("FAILED",), "user": "bob"},
    "ls --all --state COMPLETED,RUNNING --user": {"states": ("COMPLETED", "RUNNING")},
    "history": {"states": ENDED},
    "history --user": {"states": ENDED, "user": "bob"},
}
STEPS = 10
"""Instructions of SQLite's machine between two calls."""


def queries_of(finished: int) -> Queries:
    """Returns the queries of a store with so many finished jobs and two that wait."""
    database = Database(None)
    ann = JobSpec("train", ("true",), "/", user="ann")
    specs = [replace(ann, user="bob") if job < 5 else ann for job in range(finished + 2)]
    database.do(lambda db: add_jobs(db, specs, 1.0))
    queries = Queries(database.connection)
    ends = [
        JobRecord(job, State.FAILED if job <= 5 else State.COMPLETED, 1.0, end_s=float(job))
        for job in range(1, finished + 1)
    ]
    Store(database, queries).write(JournalEntry((), tuple(ends)))
    return queries


def cost(queries: Queries, asked: ListJobs) -> int:
    """Returns how much SQLite does for a page."""
    calls = [0]

    def count() -> None:
        calls[0] += 1

    queries._db.set_progress_handler(count, STEPS)
    listed = job_page(queries, asked, SnapshotIndex(StatusSnapshot(0.0, "", 0.0, nodes=())), 0.0)
    queries._db.set_progress_handler(None, STEPS)
    assert listed.jobs
    return calls[0]


@pytest.mark.parametrize("words", PAGES.values(), ids=list(PAGES))
def test_a_page_costs_no_more_after_many_finished_jobs(words: dict[str, Any]) -> None:
    asked = ListJobs(**{"limit": 20, **words})
    few, many = (cost(queries_of(finished), asked) for finished in (200, 3000))
    assert many <= 1.1 * few + 5
