"""One SQLite file behind the controller: its tables, and transactions that are durable when done.

Write-ahead log with `synchronous=FULL`: a commit has reached the disk when it returns. What the
tables mean is said by `live.store` and `live.queries`.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar, cast

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.edges.protocols import StoreError
from dovetail.live.system.private_file import open_private

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
"""Something to do inside a transaction. An exception undoes all that it did, and nothing else."""

FORMAT = 2
"""The format that is written. The one before it is read, and brought up to date when written to."""
FORMATS = (1, FORMAT)
APPLICATION = 0x446F7665
"""Marks the file as ours ("Dove"), so that no other program's database is taken for a store."""

_SCHEMA = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE scripts(digest TEXT PRIMARY KEY, script TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE jobs(
    number INTEGER PRIMARY KEY,
    spec TEXT NOT NULL,
    script TEXT,
    record TEXT NOT NULL,
    state TEXT NOT NULL,
    arrived INTEGER NOT NULL DEFAULT 0,
    submit_s REAL NOT NULL,
    end_s REAL,
    name TEXT NOT NULL,
    user TEXT NOT NULL,
    queue TEXT NOT NULL,
    array_of INTEGER,
    array_index INTEGER
);
CREATE INDEX jobs_by_state ON jobs(state, number);
CREATE INDEX jobs_by_array ON jobs(array_of, array_index) WHERE array_of IS NOT NULL;
CREATE TABLE requests(
    seq INTEGER PRIMARY KEY,
    t REAL NOT NULL,
    verb TEXT NOT NULL,
    job INTEGER NOT NULL,
    node INTEGER NOT NULL,
    argument TEXT NOT NULL,
    done INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX requests_open ON requests(seq) WHERE done = 0;
CREATE TABLE facts(seq INTEGER PRIMARY KEY, t REAL NOT NULL, job INTEGER, line TEXT NOT NULL);
CREATE INDEX facts_by_job ON facts(job, seq) WHERE job IS NOT NULL;
CREATE TABLE keys(
    key TEXT PRIMARY KEY, kind TEXT NOT NULL, digest TEXT NOT NULL, numbers TEXT NOT NULL
) WITHOUT ROWID;
"""

ELSEWHERE = "put back a copy of the file, or use another --home"
DAMAGED_FILE = (
    "put back a copy of the file, save what can be read with `sqlite3 FILE .recover`,"
    " or use another --home"
)

LIVE_STATES = "state IN ('PENDING','CONFIGURING','RUNNING','COMPLETING')"
"""The condition of the index of jobs that are not over; SQLite takes it for this very text."""
_LISTS = f"""
CREATE INDEX IF NOT EXISTS jobs_live
    ON jobs(state, number, array_of, array_index, user, name) WHERE {LIVE_STATES};
CREATE INDEX jobs_by_user_state ON jobs(user, state, number);
CREATE INDEX jobs_by_name_state ON jobs(name, state, number, user);
CREATE INDEX IF NOT EXISTS jobs_by_end ON jobs(end_s) WHERE end_s IS NOT NULL;
CREATE INDEX jobs_ended_by_state
    ON jobs(state, end_s, number, user, name) WHERE end_s IS NOT NULL;
CREATE INDEX jobs_ended_by_user
    ON jobs(user, state, end_s, number, name) WHERE end_s IS NOT NULL;
CREATE TABLE job_counts(
    user TEXT, state TEXT, jobs INTEGER NOT NULL, PRIMARY KEY (user, state)
) WITHOUT ROWID;
CREATE TRIGGER job_added AFTER INSERT ON jobs BEGIN
    INSERT INTO job_counts VALUES (new.user, new.state, 1)
        ON CONFLICT(user, state) DO UPDATE SET jobs = jobs + 1;
END;
CREATE TRIGGER job_removed AFTER DELETE ON jobs BEGIN
    UPDATE job_counts SET jobs = jobs - 1 WHERE user = old.user AND state = old.state;
END;
CREATE TRIGGER job_changed AFTER UPDATE OF state, user ON jobs
WHEN old.state <> new.state OR old.user <> new.user BEGIN
    UPDATE job_counts SET jobs = jobs - 1 WHERE user = old.user AND state = old.state;
    INSERT INTO job_counts VALUES (new.user, new.state, 1)
        ON CONFLICT(user, state) DO UPDATE SET jobs = jobs + 1;
END;
"""
"""What lists of jobs need, so that a page costs no more after fifty thousand jobs than after one.

Triggers count in the transaction that changes a job, whoever changes it.
"""
_FROM_FORMAT_1 = """
DROP INDEX IF EXISTS jobs_by_user;
DROP INDEX IF EXISTS jobs_by_name;
"""


_COUNTED = "SELECT user, state, count(*) FROM jobs GROUP BY user, state"
_COUNT_ANEW = f"DELETE FROM job_counts; INSERT INTO job_counts {_COUNTED};"


class Committer(Protocol):
    """Carries work out in durable transactions: a `Database` itself, or a queue before it."""

    def do(self, work: Work[T], then: Callable[[T], None] | None = None) -> T:
        """Returns what the work returned, once it is durable; raises what it raised.

        `then` is told the same first, one work after another in the order they were kept.
        """
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one work of a batch: its value, or the error that undid it."""

    value: object = None
    error: Exception | None = None


def no_crash(point: str) -> None:
    """Goes on: the usual crash point."""


class Database:
    """The writing connection. Used by one thread at a time.

    `crash` is called at "begin", "before commit" and "after commit" of every transaction; a test
    ends the process there by raising. `pages_max` limits the file, as a full disk would. Without a
    path the database lives in memory.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        crash: Callable[[str], None] = no_crash,
        pages_max: int = 0,
    ) -> None:
        self._where = "memory" if path is None else str(path)
        self._crash = crash
        if path is not None:
            _make_private(path)
        self.connection = sqlite3.connect(
            ":memory:" if path is None else str(path),
            isolation_level=None,
            check_same_thread=False,
            timeout=10.0,
        )
        self.connection.text_factory = in_utf8
        try:
            self._open(pages_max)
        except UNREADABLE as error:
            self.connection.close()
            raise unreadable(self._where, error) from None
        except BaseException:
            self.connection.close()
            raise

    def _open(self, pages_max: int) -> None:
        db = self.connection
        if not _is_new(db):
            check_format(db, self._where)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        if _is_new(db):
            _change(db, f"{_SCHEMA} {_LISTS} PRAGMA application_id={APPLICATION};")
        elif format_of(db) != FORMAT:
            _change(db, f"{_FROM_FORMAT_1} {_LISTS} {_COUNT_ANEW}")
        if pages_max:
            db.execute(f"PRAGMA max_page_count={int(pages_max)}")

    def do(self, work: Work[T], then: Callable[[T], None] | None = None) -> T:
        """Returns what the work returned, once it is durable; raises what it raised."""
        outcome = self.do_all([work])[0]
        if outcome.error is not None:
            raise outcome.error
        value = cast(T, outcome.value)
        if then is not None:
            then(value)
        return value

    def do_all(self, works: Sequence[Work[object]]) -> list[Outcome]:
        """Carries works out in one transaction; each fails alone or is durable when this returns.

        A disk that takes no more fails every work that does not fit by itself (StoreError).
        """
        db = self.connection
        self._crash("begin")
        try:
            db.execute("BEGIN IMMEDIATE")
            outcomes = [_carry_out(db, work) for work in works]
            self._crash("before commit")
            db.execute("COMMIT")
        except sqlite3.Error as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            if len(works) == 1:
                return [Outcome(error=_kept_nothing(self._where, error))]
            return [self.do_all([work])[0] for work in works]
        self._crash("after commit")
        return outcomes

    def close(self) -> None:
        """Ends the connection; what was committed stays."""
        self.connection.close()

    def abandon(self) -> None:
        """Drops the connection as a kill would: what was not committed is gone."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        self.connection.close()


class EmptyStore(InputError):
    """Says that no job was ever put into this store: its first controller was killed at once."""

    def __init__(self, where: str) -> None:
        super().__init__(where, "the store is empty", "start a controller with `dovetail up`")


def in_utf8(text: bytes) -> str:
    """Returns the text of a column; what is not UTF-8 in it fails no query for other rows."""
    return text.decode("utf-8", "replace")


UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""What reading a damaged file raises; the second where a message of SQLite quotes it."""


def unreadable(where: str, error: Exception) -> InputError:
    """Returns what to say of a file that cannot be read as a store."""
    # A lock, a full disk and the like are of a narrower class, and pass: the file is as it was.
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
        return InputError(where, "there is no room for the store", "free space on its disk")
    mend = DAMAGED_FILE if _is_damage(error) else ""
    what = " ".join(str(error).split())  # it may quote the schema
    return InputError(where, f"cannot be read as a store: {what}", mend)


def check_format(db: sqlite3.Connection, where: str) -> None:
    """Raises InputError unless the database is a store of the format that we write."""
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        if _is_new(db):
            raise EmptyStore(where)
        raise InputError(where, "is a database of another program, not a store", ELSEWHERE)
    version = format_of(db)
    if version not in FORMATS:
        raise InputError(
            where,
            f"the store has format {version}, expected {FORMAT}",
            "use the version of dovetail that wrote it, or another --home",
        )


def format_of(db: sqlite3.Connection) -> int:
    """Returns the format in which a store is written."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def recount_jobs(db: sqlite3.Connection) -> bool:
    """Counts the jobs of each user and state anew; returns whether the counts kept were wrong."""
    kept = db.execute("SELECT * FROM job_counts WHERE jobs <> 0 ORDER BY user, state").fetchall()
    if kept == db.execute(f"{_COUNTED} ORDER BY user, state").fetchall():
        return False
    for statement in _COUNT_ANEW.split(";")[:-1]:
        db.execute(statement)
    return True


def _change(db: sqlite3.Connection, statements: str) -> None:
    """Makes a store one of our format, all at once or not at all."""
    db.executescript(f"BEGIN IMMEDIATE; {statements} PRAGMA user_version={FORMAT}; COMMIT;")


def _is_new(db: sqlite3.Connection) -> bool:
    return not db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()


def _make_private(path: Path) -> None:
    """Makes the file, if it is not there, readable by its owner alone."""
    try:
        os.close(open_private(path, os.O_RDWR))
    except OSError as error:
        raise InputError(str(path), f"cannot be opened as a store: {error.strerror}") from None


def _carry_out(db: sqlite3.Connection, work: Work[object]) -> Outcome:
    db.execute("SAVEPOINT work")
    try:
        value = work(db)
    except sqlite3.Error:
        raise
    except Exception as error:
        db.execute("ROLLBACK TO work")
        db.execute("RELEASE work")
        return Outcome(error=error)
    db.execute("RELEASE work")
    return Outcome(value)


def _is_damage(error: Exception) -> bool:
    """True if the file is broken, and not only locked, full or out of reach for now."""
    return type(error) is sqlite3.DatabaseError or isinstance(error, UnicodeDecodeError)


def schema_of(db: sqlite3.Connection) -> dict[str, list[tuple[str, str]]]:
    """Returns the columns of every table, each with its type, and the text of every trigger."""
    tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    columns = {
        table: db.execute("SELECT name, type FROM pragma_table_info(?)", (table,)).fetchall()
        for (table,) in tables
    }
    triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    return columns | {"": sorted(triggers)}


def expected_schema(version: int) -> dict[str, list[tuple[str, str]]]:
    """Returns what `schema_of` returns for a store of a format."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(_SCHEMA if version == 1 else _SCHEMA + _LISTS)
        return schema_of(db)


def _kept_nothing(where: str, error: sqlite3.Error) -> Exception:
    if isinstance(error, sqlite3.IntegrityError):
        return DovetailError(f"{where}: {error}")
    if _is_damage(error):
        # To offer the same again would never end.
        return unreadable(where, error)
    return StoreError(f"{where}: nothing can be kept: {error}")
