"""The writing side of the store: jobs, requests and facts, durable before they take effect.

The facts of an instant, the records that they changed and the requests that they answered are one
transaction, and so are all jobs of a submit.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from time import time

from dovetail.core.errors import DovetailError, InputError
from dovetail.core.job import JobRequest
from dovetail.core.messages import Submitted
from dovetail.core.units import NEVER_S
from dovetail.live.edges.protocols import CLOCK, JournalEntry, Request, StoredState, StoreError
from dovetail.live.jobs.job_request import job_request
from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.store.database import DAMAGED_FILE, recount_jobs
from dovetail.live.store.group_commit import Committer
from dovetail.live.store.queries import CLOCK_MAX_S, Queries
from dovetail.live.store.record_codec import (
    SELECT_JOBS,
    record_of,
    record_text,
    spec_of,
    spec_text,
    stored_job,
)
from dovetail.live.store.restored import (
    NO_FOLDERS,
    FoldersLeft,
    first_new,
    skip_numbers,
    taken_s,
)
from dovetail.record.log import FactLines
from dovetail.wire.codec import WireError
from dovetail.wire.spec import JobSpec

LOG = logging.getLogger(__name__)
EPOCHS = ("epoch", "epoch copy")
"""The names of the values with the number of the latest controller."""
BEGUN_ANEW = '"again_s":'
"""A part of the text of each record whose time of submission is not that of its row."""
KEPT_APART = "#"
"""Replaces the script in a stored specification: equal scripts are stored once, in `scripts`."""
SPEC_BYTES_MAX = 900 << 10
"""Of a specification as JSON, with its dependencies: an order to an agent is one message."""
_APART = ("job_id", "submit_s", "gpus", "min_gpus", "max_gpus", "graph")
_NEUTRAL = {f.name: f.default for f in fields(JobRequest) if f.name not in _APART}
"""The fields of a submission that its fact leaves out if they have their default."""


class Store:
    """Stores entries (`edges.Journal`), finds jobs (`edges.Archive`), and recovers.

    `committer` runs transactions: a `Database` at once, a `GroupCommit` together with others.
    `queries` read over a connection of their own, or that of a database used by one thread.
    """

    def __init__(self, committer: Committer, queries: Queries) -> None:
        self.committer = committer
        self.queries = queries

    def write(self, entry: JournalEntry) -> None:
        """Returns when the entry is durable. Raises StoreError if it cannot be stored."""
        self.committer.do(lambda db: write_entry(db, entry))

    def find(self, job: int) -> StoredJob | None:
        """Returns any job, live or ended, with its script."""
        return self.queries.job(job)

    def keep(self, meta: Mapping[str, str]) -> None:
        """Stores values, in place of older ones of the same name."""
        self.committer.do(lambda db: keep_meta(db, tuple(meta.items())))

    def recover(self, left: FoldersLeft = NO_FOLDERS) -> StoredState:
        """Returns the state of a new controller, with an epoch above that of any before.

        Live jobs with damaged rows fail here. Raises InputError for a damaged file. `left` is
        what there is of the jobs of a store that was put back from a backup.
        """
        # Checked before anything is written: a repair of a damaged file could lose more of it.
        self.queries.check()
        try:
            self.committer.do(_repair_states)
            if self.committer.do(recount_jobs):
                LOG.error("the counts of jobs were wrong; they were counted anew")
            epoch = self.committer.do(_raise_epoch)
            self.committer.do(partial(skip_numbers, left=left))
        except StoreError as error:
            # SQLite also reports "readonly" for a damaged header.
            if "readonly" not in str(error):
                raise
            raise InputError(self.queries.where, "cannot be written", DAMAGED_FILE) from None
        stored, meta = self.queries.live(), self.queries.all_meta()
        live = [job for job in stored if not job.damage]
        # Progress is written to records also when no fact, submit or request has a newer time.
        known_s = max((j.record.since_s for j in live if j.record.since_s < CLOCK_MAX_S), default=0)
        now_s = max(self.queries.last_s(), known_s, _clock_of(dict(meta).get(CLOCK, "")))
        for job in stored:
            if job.damage:
                LOG.error("job %d fails: %s", job.number, job.record.detail)
                self.committer.do(partial(fail_damaged, job=job, now=now_s))
        return StoredState(
            epoch=epoch,
            now_s=now_s,
            jobs=tuple(job for job in live if job.arrived),
            accepted=tuple(job for job in live if not job.arrived),
            requests=tuple(self.queries.pending()),
            meta=meta,
        )


def fail_damaged(db: sqlite3.Connection, job: StoredJob, now: float) -> None:
    """Ends a job whose row is damaged, in the log too, so that no dependency waits for it.

    Its specification stays as it is. Its workers end as those of an unknown job.
    """
    record = replace(job.record, state=State.FAILED, end_s=now, exit_code=None)
    db.execute(
        "UPDATE jobs SET record = ?, state = ?, end_s = ?, arrived = 1 WHERE number = ?",
        (record_text(record), record.state, now, job.number),
    )
    last = db.execute(
        "SELECT line FROM facts WHERE job = ? ORDER BY seq DESC LIMIT 1", (job.number,)
    ).fetchone()
    if last is not None and not any(f'"e":"{over}"' in last[0] for over in ("ended", "withdrawn")):
        line = json.dumps({"t": now, "e": "ended", "job": str(job.number), "how": "failed"})
        db.execute("INSERT INTO facts(t, job, line) VALUES (?, ?, ?)", (now, job.number, line))


def write_entry(db: sqlite3.Connection, entry: JournalEntry) -> None:
    """Writes the changes of one instant. Raises DovetailError for a job that was not submitted."""
    changed = db.executemany(
        "UPDATE jobs SET record = ?, state = ?, end_s = ?, arrived = 1 WHERE number = ?",
        [
            (record_text(r), r.state, r.end_s if r.end_s < NEVER_S else None, r.job)
            for r in entry.records
        ],
    ).rowcount
    if entry.records and changed != len(entry.records):
        raise DovetailError(f"an entry holds records of jobs never submitted: {entry.records}")
    # After the records: the line of a job that begins anew has the time of its record.
    lines = FactLines(
        lambda job: f'"{job}"', lambda fact: _submitted(fact, *_request(db, fact.job))
    )
    db.executemany(
        "INSERT INTO facts(t, job, line) VALUES (?, ?, ?)",
        [(fact.t, getattr(fact, "job", None), lines.line(fact)) for fact in entry.facts],
    )
    db.executemany("UPDATE requests SET done = 1 WHERE seq = ?", [(seq,) for seq in entry.done])
    keep_meta(db, entry.meta)


def keep_meta(db: sqlite3.Connection, values: Sequence[tuple[str, str]]) -> None:
    """Stores values, in place of older ones of the same name."""
    db.executemany(
        "INSERT INTO meta(name, value) VALUES (?, ?)"
        " ON CONFLICT(name) DO UPDATE SET value = excluded.value",
        values,
    )


def add_jobs(db: sqlite3.Connection, specs: Sequence[JobSpec], now: float) -> list[StoredJob]:
    """Stores jobs under the next numbers and returns them. Raises InputError for one too long."""
    number = next_number(db)
    rows, accepted = [], []
    for job, spec in enumerate(specs, start=number):
        stored = StoredJob.submitted(job, spec, now)
        of, index = (spec.array_of, spec.array) if spec.array >= 0 else (None, None)
        text = spec_text(replace(spec, script=KEPT_APART) if spec.script else spec)
        _check_length(spec, len(text))
        digest = hashlib.sha256(spec.script.encode()).hexdigest() if spec.script else None
        if digest:
            db.execute("INSERT OR IGNORE INTO scripts VALUES (?, ?)", (digest, spec.script))
        state = (record_text(stored.record), stored.record.state, now)
        rows.append((job, text, digest, *state, spec.name, spec.user, spec.queue, of, index))
        accepted.append(stored)
    db.executemany(
        "INSERT INTO jobs(number, spec, script, record, state, submit_s, name, user, queue,"
        " array_of, array_index) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
    return accepted


def _check_length(spec: JobSpec, length: int) -> None:
    if length > SPEC_BYTES_MAX:
        what = f"it takes {length >> 10} KiB with all it waits for, over {SPEC_BYTES_MAX >> 10} KiB"
        raise InputError(f"job '{spec.name[:40]}'", what, "put long values into files")


def add_requests(db: sqlite3.Connection, requests: Sequence[Request], now: float) -> list[Request]:
    """Stores requests; returns them with their numbers."""
    stored = []
    for request in requests:
        seq = db.execute(
            "INSERT INTO requests(t, verb, job, node, argument) VALUES (?, ?, ?, ?, ?)",
            (now, request.verb, request.job, request.node, request.argument),
        ).lastrowid
        assert seq is not None
        stored.append(replace(request, seq=seq))
    return stored


def next_number(db: sqlite3.Connection) -> int:
    """Returns the number of the next job; rows of jobs are never deleted."""
    newest = db.execute("SELECT coalesce(max(number), 0) FROM jobs").fetchone()[0]
    return max(int(newest) + 1, first_new(db))


def _repair_states(db: sqlite3.Connection) -> None:
    """Sets unknown values of the state column to the state of the record."""
    marks = ",".join("?" * len(State))
    sql = f"SELECT number, CAST(record AS BLOB) FROM jobs WHERE state NOT IN ({marks})"
    for number, text in db.execute(sql, tuple(State)).fetchall():
        try:
            state = record_of(text).state
        except WireError:
            state = State.FAILED
        LOG.error("job %d was listed under no known state, and is %s", number, state)
        db.execute("UPDATE jobs SET state = ? WHERE number = ?", (state, number))


def _raise_epoch(db: sqlite3.Connection) -> int:
    """Returns the next epoch. It is stored twice, so that damage to one value cannot lower it.

    Agents refuse older epochs: with a lower one a controller would reach no node.
    """
    rows = db.execute("SELECT value FROM meta WHERE name IN (?, ?)", EPOCHS).fetchall()
    texts = [str(value) for (value,) in rows]
    epochs = [int(text) for text in texts if text.isascii() and text.isdecimal() and len(text) < 16]
    # A controller stores these values only after it has an epoch.
    later = "SELECT 1 FROM meta WHERE name IN ('manifest', 'engine')"
    if not epochs and (rows or db.execute(later).fetchone()):
        LOG.error("the epoch in the store is damaged; the date takes its place")
        epochs = [_date()]
    elif taken_s(db):
        # Later controllers than the backup knows of may live, or start from a copy of it as well.
        epochs.append(_date())
    epoch = max(epochs, default=0) + 1
    keep_meta(db, tuple((name, str(epoch)) for name in EPOCHS))
    return epoch


def _date() -> int:
    """Returns milliseconds since 1970: above any number of starts, and above an earlier date."""
    return int(time() * 1000)


def _clock_of(text: str) -> float:
    try:
        clock_s = float(text)
    except ValueError:
        return 0.0
    return clock_s if 0 <= clock_s < CLOCK_MAX_S else 0.0


def _request(db: sqlite3.Connection, job: int) -> tuple[JobRequest, float]:
    """Returns the request of a job as policies see it, and its length (infinite: unknown)."""
    sql = "SELECT spec, submit_s, record FROM jobs WHERE number = ?"
    row = db.execute(sql, (job,)).fetchone()
    if row is None:
        raise DovetailError(f"a fact names job {job}, which was never submitted")
    try:
        spec = spec_of(row[0])
        request = job_request(spec, job, float(row[1]))
        if BEGUN_ANEW in row[2]:
            request = replace(request, submit_s=record_of(row[2]).queued_s)
    except WireError:
        # Damaged since the controller read it: its columns are good enough for the log.
        stored = stored_job(db.execute(f"{SELECT_JOBS} WHERE number = ?", (job,)).fetchone())
        spec, request = stored.spec, job_request(stored.spec, job, stored.record.submit_s)
    return request, spec.duration_s or NEVER_S


def _submitted(fact: Submitted, job: JobRequest, work_s: float) -> str:
    """Returns the line of a submission in the event log, which names jobs by their numbers."""
    line: dict[str, object] = {"t": fact.t, "e": "submitted", "job": job.job_id}
    if job.submit_s != fact.t:
        line["submit_s"] = job.submit_s
    line["gpus"] = job.gpus
    if job.min_gpus != job.max_gpus:
        line |= {"min_gpus": job.min_gpus, "max_gpus": job.max_gpus}
    line |= {n: getattr(job, n) for n, default in _NEUTRAL.items() if getattr(job, n) != default}
    line["work_s"] = work_s if work_s < NEVER_S else None
    line["length_s"] = fact.length_s if fact.length_s < NEVER_S else None
    if fact.distribution:
        line["distribution"] = fact.distribution
    return json.dumps(line, separators=(",", ":"), allow_nan=False)
