"""A store that was put back from a backup: no number of it is used a second time.

Since the backup was taken controllers, jobs, generations and workers got numbers that it does not
know. Agents remember them and obey no older ones, users know their jobs by them, and the folder of
a job has its number. So the first controller goes on far above them: `skip_numbers`, and the date
as its epoch. Until that controller has written its first entry the store counts as put back.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import replace
from time import time
from typing import Protocol

from dovetail.live.edges.protocols import BACKUP
from dovetail.live.store.record_codec import record_of, record_text
from dovetail.wire.codec import WireError

FIRST_NEW = "first new job"
"""The name in the journal of the least number that a new job may get."""
JOBS_PER_S = 1000
"""More jobs than were ever accepted in a second: the measured intake is half of that."""
ROUND = 1_000_000
"""New jobs begin at a multiple of this, so that users see which came after the backup."""
SKIPPED = 1_000_000
"""Generations and workers of a job that may have been used since; a change takes a second."""


class FoldersLeft(Protocol):
    """What there is of jobs beside the store."""

    def newest_job(self) -> int:
        """Returns the greatest number of a job that has a folder, 0 if none has."""
        ...

    def newest_lineage(self, number: int) -> int:
        """Returns the newest lineage of a job that is on the disk."""
        ...


class EmptyFolders:
    """No folders of jobs: the store is all that there is."""

    def newest_job(self) -> int:
        """Returns 0."""
        return 0

    def newest_lineage(self, number: int) -> int:
        """Returns 0."""
        return 0


NO_FOLDERS = EmptyFolders()


def taken_s(db: sqlite3.Connection) -> float:
    """Returns when the backup was taken from which a store was put back (Unix time); else 0."""
    row = db.execute("SELECT value FROM meta WHERE name = ?", (BACKUP,)).fetchone()
    if row is None or not row[0]:
        return 0.0
    with suppress(ValueError):
        return max(1.0, float(row[0]))
    # Damaged: as old as can be.
    return 1.0


def first_new(db: sqlite3.Connection) -> int:
    """Returns the least number that a new job may get."""
    row = db.execute("SELECT value FROM meta WHERE name = ?", (FIRST_NEW,)).fetchone()
    return int(row[0]) if row is not None and str(row[0]).isdecimal() else 1


def skip_numbers(db: sqlite3.Connection, left: FoldersLeft) -> None:
    """Skips all numbers that may have been used since the backup; nothing for another store.

    Jobs take up the newest lineage of their checkpoints, as older ones are not kept.
    """
    since_s = taken_s(db)
    if not since_s:
        return
    age_s = max(0.0, time() - since_s)
    newest = db.execute("SELECT coalesce(max(number), 0) FROM jobs").fetchone()[0]
    used = max(newest + int(JOBS_PER_S * age_s), left.newest_job(), first_new(db) - 1)
    first = (used // ROUND + 1) * ROUND
    db.execute("INSERT OR REPLACE INTO meta(name, value) VALUES (?, ?)", (FIRST_NEW, str(first)))
    rows = db.execute("SELECT number, record FROM jobs").fetchall()
    for number, text in rows:
        with suppress(WireError):
            record = record_of(text)
            skipped = replace(
                record,
                generation=record.generation + SKIPPED,
                next_worker=record.next_worker + SKIPPED,
                lineage=max(record.lineage, left.newest_lineage(number)),
            )
            db.execute(
                "UPDATE jobs SET record = ? WHERE number = ?", (record_text(skipped), number)
            )
