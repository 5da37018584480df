"""The writing side of the store: jobs, requests and facts, durable before they take effect.

What belongs together is one transaction: the facts of an instant with the
records they changed and the requests they answered; the jobs of a submit, all or none.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import time

from dovetail.core.errors import DovetailError, InputError
from dovetail.core.job import JobRequest
from dovetail.live.edges.protocols import CLOCK, JournalEntry, Request, StoreError
from dovetail.live.jobs.job_request import job_request
from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.store.database import DAMAGED_FILE, Committer, recount_jobs
from dovetail.live.store.fact_lines import job_in, live_lines
from dovetail.live.store.queries import CLOCK_MAX_S, Queries
from dovetail.live.store.record_codec import record_of, record_text, spec_of, spec_text
from dovetail.live.store.recovered import Recovered
from dovetail.live.store.stored_job import SELECT_JOBS, stored_job
from dovetail.wire.codec import WireError
from dovetail.wire.spec import JobSpec

LOG = logging.getLogger(__name__)
EPOCHS = ("epoch", "epoch copy")
"""The names under which the number of the latest controller is kept."""
BEGUN_ANEW = '"again_s":'
"""Stands in the text of a record that has another time of submission than its job."""
KEPT_APART = "#"
"""Stands for the script in a spec on record: equal scripts are kept once, beside the jobs."""
SPEC_BYTES_MAX = 900 << 10
"""Of a request with all it waits for, as JSON: the order that starts its workers is one message."""


class Store:
    """Keeps entries (`edges.Journal`), answers for any job (`edges.Archive`), and recovers.

    `committer` carries transactions out: a `Database` at once, a `GroupCommit` with others.
    `queries` read over a connection of their own, or that of a database used by one thread.
    """

    def __init__(self, committer: Committer, queries: Queries) -> None:
        self.committer = committer
        self.queries = queries

    def write(self, entry: JournalEntry) -> None:
        """Returns when the entry is durable. Raises StoreError if it cannot be stored."""
        self.committer.do(lambda db: write_entry(db, entry))

    def find(self, job: int) -> StoredJob | None:
        """Returns any job on record, over or not, with its script."""
        return self.queries.job(job)

    def keep(self, meta: Mapping[str, str]) -> None:
        """Stores values by name, in place of older ones."""
        self.committer.do(lambda db: keep_meta(db, tuple(meta.items())))

    def recover(self) -> Recovered:
        """Returns what a new controller starts from; its epoch is newer than any before.

        Jobs whose rows are damaged fail here, alone. Raises InputError for a damaged file.
        """
        self.queries.check()
        try:
            self.committer.do(_repair_states)
            if self.committer.do(recount_jobs):
                LOG.error("the counts of jobs were wrong; they were counted anew")
            epoch = self.committer.do(_raise_epoch)
        except StoreError as error:
            # SQLite says so of a header that is damaged, too.
            if "readonly" not in str(error):
                raise
            raise InputError(self.queries.where, "cannot be written", DAMAGED_FILE) from None
        every, meta = self.queries.live(), self.queries.all_meta()
        live = [job for job in every if not job.damage]
        # The record of a long-running job is written often, also when nothing else happens.
        known_s = max((j.record.since_s for j in live if j.record.since_s < CLOCK_MAX_S), default=0)
        now_s = max(self.queries.last_s(), known_s, _clock_of(dict(meta).get(CLOCK, "")))
        for job in every:
            if job.damage:
                LOG.error("job %d fails: %s", job.number, job.record.detail)
                self.committer.do(partial(fail_damaged, job=job, now=now_s))
        return Recovered(
            epoch=epoch,
            now_s=now_s,
            jobs=tuple(job for job in live if job.arrived),
            accepted=tuple(job for job in live if not job.arrived),
            requests=tuple(self.queries.pending()),
            meta=meta,
        )


def fail_damaged(db: sqlite3.Connection, job: StoredJob, now: float) -> None:
    """Ends a job whose row is damaged, in the log too, so that nothing waits for it for ever.

    Its request stays as it is. Its workers, if it has any, end as those of an unknown job do.
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
    """Writes what one instant changed. Raises DovetailError if it names what is not on record."""
    changed = db.executemany(
        "UPDATE jobs SET record = ?, state = ?, end_s = ?, arrived = 1 WHERE number = ?",
        [
            (record_text(r), r.state, r.end_s if r.end_s < float("inf") else None, r.job)
            for r in entry.records
        ],
    ).rowcount
    if entry.records and changed != len(entry.records):
        raise DovetailError(f"an entry holds records of jobs never submitted: {entry.records}")
    # A line says when its job was submitted, which the record of one that begins anew knows.
    lines = live_lines(lambda job: _request(db, job))
    db.executemany(
        "INSERT INTO facts(t, job, line) VALUES (?, ?, ?)",
        [(fact.t, job_in(fact), lines.line(fact)) for fact in entry.facts],
    )
    db.executemany("UPDATE requests SET done = 1 WHERE seq = ?", [(seq,) for seq in entry.done])
    keep_meta(db, entry.meta)


def keep_meta(db: sqlite3.Connection, values: Sequence[tuple[str, str]]) -> None:
    """Stores values by name, in place of older ones."""
    db.executemany(
        "INSERT INTO meta(name, value) VALUES (?, ?)"
        " ON CONFLICT(name) DO UPDATE SET value = excluded.value",
        values,
    )


def add_jobs(db: sqlite3.Connection, specs: Sequence[JobSpec], now: float) -> list[StoredJob]:
    """Puts jobs on record, numbered on from the last one. Raises InputError for one too long."""
    number = next_number(db)
    rows, accepted = [], []
    for job, spec in enumerate(specs, start=number):
        stored = StoredJob.submitted(job, spec, now)
        of, index = (spec.array_of, spec.array) if spec.array >= 0 else (None, None)
        kept = spec_text(replace(spec, script=KEPT_APART) if spec.script else spec)
        _check_length(spec, len(kept))
        digest = _keep_script(db, spec.script) if spec.script else None
        text = record_text(stored.record)
        who = (spec.name, spec.user, spec.queue)
        rows.append((job, kept, digest, text, stored.record.state, now, *who, of, index))
        accepted.append(stored)
    db.executemany(
        "INSERT INTO jobs(number, spec, script, record, state, submit_s, name, user, queue,"
        " array_of, array_index) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
    return accepted


def _check_length(spec: JobSpec, taken: int) -> None:
    if taken > SPEC_BYTES_MAX:
        what = f"it takes {taken >> 10} KiB with all it waits for, over {SPEC_BYTES_MAX >> 10} KiB"
        raise InputError(f"job '{spec.name[:40]}'", what, "put long values into files")


def add_requests(db: sqlite3.Connection, requests: Sequence[Request], now: float) -> list[Request]:
    """Puts requests on record; returns them with the numbers that order them."""
    made = []
    for request in requests:
        seq = db.execute(
            "INSERT INTO requests(t, verb, job, node, argument) VALUES (?, ?, ?, ?, ?)",
            (now, request.verb, request.job, request.node, request.argument),
        ).lastrowid
        assert seq is not None
        made.append(replace(request, seq=seq))
    return made


def next_number(db: sqlite3.Connection) -> int:
    """Returns the number of the next job; jobs are never taken off record."""
    return int(db.execute("SELECT coalesce(max(number), 0) + 1 FROM jobs").fetchone()[0])


def _repair_states(db: sqlite3.Connection) -> None:
    """Gives jobs that are listed under no known state the state of their record."""
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
    """Returns the next epoch. Kept twice, so that damage to one value cannot lower it.

    Agents obey no older epoch: a controller that took one would reach no node.
    """
    said = db.execute("SELECT value FROM meta WHERE name IN (?, ?)", EPOCHS).fetchall()
    texts = [str(value) for (value,) in said]
    known = [int(text) for text in texts if text.isascii() and text.isdecimal() and len(text) < 16]
    # What a controller keeps only after it has an epoch.
    later = "SELECT 1 FROM meta WHERE name IN ('manifest', 'engine')"
    if not known and (said or db.execute(later).fetchone()):
        LOG.error("the epoch in the store is damaged; the date takes its place")
        known = [int(time())]  # above any number of starts, and above an earlier date
    epoch = max(known, default=0) + 1
    keep_meta(db, tuple((name, str(epoch)) for name in EPOCHS))
    return epoch


def _clock_of(said: str) -> float:
    try:
        clock_s = float(said)
    except ValueError:
        return 0.0
    return clock_s if 0 <= clock_s < CLOCK_MAX_S else 0.0


def _keep_script(db: sqlite3.Connection, script: str) -> str:
    digest = hashlib.sha256(script.encode()).hexdigest()
    db.execute("INSERT OR IGNORE INTO scripts(digest, script) VALUES (?, ?)", (digest, script))
    return digest


def _request(db: sqlite3.Connection, job: int) -> tuple[JobRequest, float]:
    found = db.execute("SELECT spec, submit_s, record FROM jobs WHERE number = ?", (job,))
    row = found.fetchone()
    if row is None:
        raise DovetailError(f"a fact names job {job}, which was never submitted")
    try:
        spec = spec_of(row[0])
        asked = job_request(spec, job, float(row[1]))
        if BEGUN_ANEW in row[2]:
            asked = replace(asked, submit_s=record_of(row[2]).queued_s)
    except WireError:
        # Damaged since the controller read it. The log need not be exact about it.
        kept = stored_job(db.execute(f"{SELECT_JOBS} WHERE number = ?", (job,)).fetchone())
        spec, asked = kept.spec, job_request(kept.spec, job, kept.record.submit_s)
    return asked, spec.duration_s or float("inf")
