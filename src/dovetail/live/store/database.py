"""The SQLite file of a cluster: its tables, its format, and durable transactions.

With a write-ahead log and `synchronous=FULL` a commit is on the disk when it returns. `live.store`
writes the tables, `live.queries` reads them.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.edges.protocols import StoreError
from dovetail.live.system.private_file import open_private

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
"""Runs inside a transaction. An exception undoes its changes, and those of no other work."""

FORMAT = 2
"""The format of new stores. A store of an older format is read, and migrated by a writer."""
FORMATS = (1, FORMAT)
APPLICATION = 0x446F7665
"""The application id of a store ("Dove"), which distinguishes it from other SQLite files."""

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
"""The condition of the index of live jobs: SQLite uses it only for queries with this exact text."""
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
"""Indices and counts for lists, whose time must not grow with the number of ended jobs.

Triggers update the counts in the transaction that changes a job.
"""
_FROM_FORMAT_1 = """
DROP INDEX IF EXISTS jobs_by_user;
DROP INDEX IF EXISTS jobs_by_name;
"""


_COUNTED = "SELECT user, state, count(*) FROM jobs GROUP BY user, state"
_COUNT_ANEW = f"DELETE FROM job_counts; INSERT INTO job_counts {_COUNTED};"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one work of a batch: its value, or the error that undid it."""

    value: object = None
    error: Exception | None = None


class Database:
    """The writing connection, used by one thread at a time; in memory without a path.

    `crash` is called at "begin", "before commit" and "after commit" of every transaction: tests
    raise there.
    """

    def __init__(
        self, path: Path | None, *, crash: Callable[[str], None] = lambda point: None
    ) -> None:
        self._where = "memory" if path is None else str(path)
        self._crash = crash
        if path is not None:
            _make_private(path)
        self.connection = sqlite3.connect(
            ":memory:" if path is None else str(path),
            isolation_level=None,  # Transactions begin and end only where we say.
            check_same_thread=False,
            timeout=10.0,
        )
        self.connection.text_factory = in_utf8
        try:
            self._open()
        except UNREADABLE as error:
            self.connection.close()
            raise unreadable(self._where, error) from None
        except BaseException:
            self.connection.close()
            raise

    def _open(self) -> None:
        db = self.connection
        # Before the first write: the file may belong to another program or a newer release.
        if not _is_new(db):
            check_format(db, self._where)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        if _is_new(db):
            _change(db, f"{_SCHEMA} {_LISTS} PRAGMA application_id={APPLICATION};")
        elif format_of(db) != FORMAT:
            _change(db, f"{_FROM_FORMAT_1} {_LISTS} {_COUNT_ANEW}")

    def do(self, work: Work[T], then: Callable[[T], None] | None = None) -> T:
        """Returns the value of the work once it is durable, or raises its error.

        `then` is called with the value first; calls are in the order of the commits.
        """
        outcome = self.do_all([work])[0]
        if outcome.error is not None:
            raise outcome.error
        value = cast(T, outcome.value)
        if then is not None:
            then(value)
        return value

    def do_all(self, works: Sequence[Work[object]]) -> list[Outcome]:
        """Runs works in one transaction; on return each is durable or has failed alone.

        On a full disk those fail (StoreError) for which alone there is no room.
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
                return [Outcome(error=_write_error(self._where, error))]
            # The error is of the transaction: alone, each work gets its own error or none.
            return [self.do_all([work])[0] for work in works]
        self._crash("after commit")
        return outcomes

    def close(self) -> None:
        """Closes the connection; a transaction that is open is rolled back, as by a kill."""
        self.connection.close()


class EmptyStore(InputError):
    """The store has no tables: its first controller was killed before it made them."""

    def __init__(self, where: str) -> None:
        super().__init__(where, "the store is empty", "start a controller with `dovetail up`")


def in_utf8(text: bytes) -> str:
    """Returns the text of a column; invalid UTF-8 must not fail a query of many rows."""
    return text.decode("utf-8", "replace")


UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""The errors of reading a damaged file; the second if a message of SQLite quotes invalid text."""


def unreadable(where: str, error: Exception) -> InputError:
    """Returns the error for a file that cannot be read as a store."""
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
        return InputError(where, "there is no room for the store", "free space on its disk")
    what = " ".join(str(error).split())  # It may quote the schema, which has several lines.
    mend = DAMAGED_FILE if _is_damage(error) else ""
    return InputError(where, f"cannot be read as a store: {what}", mend)


def check_format(db: sqlite3.Connection, where: str) -> None:
    """Raises InputError unless the database is a store of a known format."""
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
    """Returns the format of a store."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def recount_jobs(db: sqlite3.Connection) -> bool:
    """Recounts the jobs of each user and state; True if the stored counts were wrong."""
    counts = db.execute("SELECT * FROM job_counts WHERE jobs <> 0 ORDER BY user, state").fetchall()
    if counts == db.execute(f"{_COUNTED} ORDER BY user, state").fetchall():
        return False
    for statement in _COUNT_ANEW.split(";")[:-1]:
        db.execute(statement)
    return True


def _change(db: sqlite3.Connection, statements: str) -> None:
    """Changes a store to the newest format in one transaction."""
    db.executescript(f"BEGIN IMMEDIATE; {statements} PRAGMA user_version={FORMAT}; COMMIT;")


def _is_new(db: sqlite3.Connection) -> bool:
    return not db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()


def _make_private(path: Path) -> None:
    """Creates the file, if it does not exist, readable by its owner alone."""
    try:
        os.close(open_private(path, os.O_RDWR))
    except OSError as error:
        raise InputError(str(path), f"cannot be opened as a store: {error.strerror}") from None


def _carry_out(db: sqlite3.Connection, work: Work[object]) -> Outcome:
    # A savepoint for each work: an error undoes it without the works before it in the batch.
    db.execute("SAVEPOINT work")
    try:
        value = work(db)
    except sqlite3.Error:
        # It may concern the whole transaction, such as a full disk: `do_all` decides.
        raise
    except Exception as error:
        db.execute("ROLLBACK TO work")
        db.execute("RELEASE work")
        return Outcome(error=error)
    db.execute("RELEASE work")
    return Outcome(value)


def _is_damage(error: Exception) -> bool:
    """True if the file is broken.

    The errors of a lock, a full disk and the like, which pass, have narrower classes.
    """
    return type(error) is sqlite3.DatabaseError or isinstance(error, UnicodeDecodeError)


def schema_of(db: sqlite3.Connection) -> dict[str, list[tuple[str, str]]]:
    """Returns the columns of every table with their types, and the text of every trigger."""
    tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    columns = {
        table: db.execute("SELECT name, type FROM pragma_table_info(?)", (table,)).fetchall()
        for (table,) in tables
    }
    triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    return columns | {"": sorted(triggers)}


def expected_schema(version: int) -> dict[str, list[tuple[str, str]]]:
    """Returns the `schema_of` an undamaged store of a format."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(_SCHEMA if version == 1 else _SCHEMA + _LISTS)
        return schema_of(db)


def _write_error(where: str, error: sqlite3.Error) -> Exception:
    if isinstance(error, sqlite3.IntegrityError):
        return DovetailError(f"{where}: {error}")
    if _is_damage(error):
        # Not a StoreError, which the controller retries for ever.
        return unreadable(where, error)
    return StoreError(f"{where}: nothing can be kept: {error}")
