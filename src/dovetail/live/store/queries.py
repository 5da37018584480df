"""Reads of the store, by any thread, while the controller writes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from dovetail.core.errors import InputError
from dovetail.live.edges.protocols import Request
from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.record import JobRecord
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.store.database import (
    DAMAGED_FILE,
    LIVE_STATES,
    UNREADABLE,
    check_format,
    expected_schema,
    format_of,
    in_utf8,
    schema_of,
    unreadable,
)
from dovetail.live.store.stored_job import SELECT_JOBS, JobColumns, state_of, stored_job
from dovetail.wire.spec import JobSpec

CLOCK_MAX_S = 1e12
"""No cluster is so old, at any speed: a later time is damage, and would stop the clock."""
PART = 5_000
"""Facts read at a time."""
ASKED = 500
"""Jobs asked for at a time: SQLite takes no more than 999 values in its oldest builds."""
LIVE = tuple(s for s in State if s not in TERMINAL)
"""The states of jobs that are not over."""
NO_SUCH_JOB = "there is no such job"
Row = TypeVar("Row", bound=tuple[object, ...])
LiveRow = tuple[int, str, int, int]
"""Number, state, array and index in the array of a job; -1 where it is no task of an array."""


class Queries:
    """Reads over one connection. Raises InputError where the file is damaged."""

    def __init__(self, db: sqlite3.Connection, where: str = "store") -> None:
        self._db = db
        self.where = where

    def job(self, number: int) -> StoredJob | None:
        """Returns one job, with its script."""
        row: JobColumns | None = self._one(f"{SELECT_JOBS} WHERE number = ?", number)
        if row is None:
            return None
        job = stored_job(row)
        script: tuple[str] | None = self._one(
            "SELECT s.script FROM jobs j JOIN scripts s ON s.digest = j.script WHERE j.number = ?",
            number,
        )
        return replace(job, spec=replace(job.spec, script=script[0])) if script else job

    def some(self, numbers: Sequence[int]) -> list[StoredJob]:
        """Returns the jobs of some numbers in their order, without their scripts."""
        found: dict[int, StoredJob] = {}
        for first in range(0, len(numbers), ASKED):
            part = numbers[first : first + ASKED]
            marks = ",".join("?" * len(part))
            rows: list[JobColumns] = self._all(f"{SELECT_JOBS} WHERE number IN ({marks})", *part)
            for row in rows:
                found[row[0]] = stored_job(row)
        return [found[number] for number in numbers if number in found]

    def record(self, number: int) -> JobRecord | None:
        """Returns the record of one job."""
        job = self.job(number)
        return job.record if job else None

    def spec(self, number: int) -> JobSpec | None:
        """Returns the request of one job, with its script."""
        job = self.job(number)
        return job.spec if job else None

    def live(self) -> list[StoredJob]:
        """Returns all jobs that are not over, in order of submission, with their scripts."""
        marks = ",".join("?" * len(LIVE))
        texts: list[tuple[str | None, str]] = self._all(
            "SELECT digest, script FROM scripts WHERE digest IN"
            f" (SELECT script FROM jobs WHERE state IN ({marks}))",
            *LIVE,
        )
        scripts = dict(texts)
        rows: list[JobColumns] = self._all(
            f"{SELECT_JOBS} WHERE state IN ({marks}) ORDER BY number", *LIVE
        )
        return [stored_job(row, scripts.get(row[3], "")) for row in rows]

    def rows(
        self,
        states: Collection[State] | None = None,
        *,
        user: str = "",
        name: str = "",
        newest: bool = True,
        since_s: float | None = None,
        limit: int = 0,
        offset: int = 0,
    ) -> list[StoredJob]:
        """Returns jobs that match, without their scripts; `limit` 0 means all from `offset` on.

        With `since_s` those that ended then or later, by their ends instead of their numbers.
        """
        match = _Match(user, name, since_s)
        if states is None:
            found = self._keys(match, None, newest, limit, offset)
        else:
            # One state at a time: each comes in order from an index, and none has to be sorted.
            wanted = limit and offset + limit
            parts = [self._keys(match, (s,), newest, wanted, 0) for s in sorted(states)]
            found = list(merge(*parts, reverse=newest))[offset : wanted or None]
        return self.some([number for _, number in found])

    def _keys(
        self,
        match: _Match,
        states: Collection[State] | None,
        newest: bool,
        limit: int,
        offset: int,
    ) -> list[tuple[float, int]]:
        """Returns what orders the jobs that match, with their numbers, in that order."""
        tests, values = match.tests(states)
        by = "number" if match.since_s is None else "end_s"
        way = "DESC" if newest else "ASC"
        return self._all(
            f"SELECT {by}, number FROM jobs WHERE {tests} ORDER BY {by} {way}, number {way}"
            " LIMIT ? OFFSET ?",
            *values,
            limit or -1,
            offset,
        )

    def count(
        self,
        states: Collection[State] | None = None,
        *,
        user: str = "",
        name: str = "",
        since_s: float | None = None,
    ) -> int:
        """Returns how many jobs `rows` would find without a limit."""
        if not (name or since_s):
            counts = self.counts(user)
            return sum(counts.get(s, 0) for s in (State if states is None else states))
        tests, values = _Match(user, name, since_s or None).tests(states)
        total: tuple[int] | None = self._one(f"SELECT count(*) FROM jobs WHERE {tests}", *values)
        return total[0] if total else 0

    def live_jobs(
        self, states: Collection[State], *, user: str = "", name: str = ""
    ) -> list[LiveRow]:
        """Returns the jobs in some states that are not terminal, by number, from an index alone."""
        # A plus before a column keeps SQLite from its index, which has all jobs that have ended.
        tests, values = _Match(user, name).tests(states, live=True)
        return self._all(
            "SELECT number, state, coalesce(array_of, -1), coalesce(array_index, -1) FROM jobs"
            f" WHERE {LIVE_STATES} AND {tests} ORDER BY number",
            *values,
        )

    def standings(self, numbers: Sequence[int]) -> list[tuple[int, State, int | None]]:
        """Returns (number, state, exit code) of jobs in order, without reading whole records."""
        found: dict[int, tuple[int, State, int | None]] = {}
        for first in range(0, len(numbers), ASKED):
            part = numbers[first : first + ASKED]
            marks = ",".join("?" * len(part))
            sql = f"SELECT number, state, record FROM jobs WHERE number IN ({marks})"
            rows: list[tuple[int, str, str]] = self._all(sql, *part)
            for number, column, record in rows:
                state = state_of(column)
                code = _exit_code(record) if state in TERMINAL else None
                found[number] = (number, state, code)
        return [found[number] for number in numbers if number in found]

    def states(self) -> list[tuple[int, str]]:
        """Returns the state that each job is listed under."""
        return self._all("SELECT number, state FROM jobs ORDER BY number")

    def counts(self, user: str = "") -> dict[State, int]:
        """Returns how many jobs, of one user or of all, are in each state that has any."""
        whose, values = ("WHERE user = ?", (user,)) if user else ("", ())
        counted = f"SELECT state, sum(jobs) FROM job_counts {whose} GROUP BY state"
        if self._format() == 1:
            # A reader does not bring the store up to date.
            counted = f"SELECT state, count(*) FROM jobs {whose} GROUP BY state"
        rows: list[tuple[str, int]] = self._all(counted, *values)
        found: dict[State, int] = {}
        for column, jobs in rows:
            if jobs:
                found[state_of(column)] = found.get(state_of(column), 0) + jobs
        return found

    def _format(self) -> int:
        try:
            return format_of(self._db)
        except UNREADABLE as error:
            raise unreadable(self.where, error) from None

    def jobs(self) -> int:
        """Returns how many jobs were ever submitted."""
        total: tuple[int] | None = self._one("SELECT count(*) FROM jobs")
        return total[0] if total else 0

    def numbers_of(self, text: str) -> tuple[int, ...]:
        """Returns the jobs that a user means: `12` (all tasks of an array 12) or `12_3`.

        Raises InputError where there is none.
        """
        found = self.matching(text)
        if not found:
            raise InputError(f"job {text}", NO_SUCH_JOB)
        return found

    def matching(self, text: str) -> tuple[int, ...]:
        """Returns the jobs of a name, none if there are none. Raises InputError for no name."""
        first, _, index = text.partition("_")
        if not (
            text.isascii()
            and first.isdecimal()
            and len(first) < 18
            and (index.isdecimal() or first == text)
        ):
            raise InputError(
                f"job '{text}'", "is no number of a job", "as in 12, or 12_3 of arrays"
            )
        found: list[tuple[int]]
        if index:
            found = self._all(
                "SELECT number FROM jobs WHERE array_of = ? AND array_index = ?",
                int(first),
                int(index[:18]),
            )
        else:
            found = self._all(
                "SELECT number FROM jobs WHERE number = ?1"
                " UNION SELECT number FROM jobs WHERE array_of = ?1 ORDER BY number",
                int(first),
            )
        return tuple(number for (number,) in found)

    def called(self, numbers: Iterable[int]) -> dict[int, str]:
        """Returns the names of jobs, by number: `12`, or `12_3` for a task of an array."""
        wanted = list(dict.fromkeys(numbers))
        found = {number: str(number) for number in wanted}
        for first in range(0, len(wanted), ASKED):
            part = wanted[first : first + ASKED]
            marks = ",".join("?" * len(part))
            sql = "SELECT number, array_of, array_index FROM jobs WHERE array_of IS NOT NULL"
            rows: list[tuple[int, int, int]] = self._all(f"{sql} AND number IN ({marks})", *part)
            for number, array, index in rows:
                found[number] = f"{array}_{index}"
        return found

    def pending(self) -> list[Request]:
        """Returns the requests that were accepted and are not carried out yet, in order."""
        rows: list[tuple[int, str, int, int, str]] = self._all(
            "SELECT seq, verb, job, node, argument FROM requests WHERE done = 0 ORDER BY seq"
        )
        return [Request(*row) for row in rows if all(isinstance(row[at], int) for at in (0, 2, 3))]

    def asked_for(self, seqs: Sequence[int]) -> set[int]:
        """Returns the jobs that some requests are about."""
        found: set[int] = set()
        for first in range(0, len(seqs), ASKED):
            part = seqs[first : first + ASKED]
            marks = ",".join("?" * len(part))
            sql = f"SELECT job FROM requests WHERE seq IN ({marks})"
            rows: list[tuple[int]] = self._all(sql, *part)
            found.update(job for (job,) in rows)
        return found

    def check(self) -> None:
        """Raises InputError if the file is damaged."""
        found: list[tuple[str]] = self._all("PRAGMA integrity_check(1)")
        if found != [("ok",)]:
            said = str(found[0][0]).strip().splitlines()[-1]
            raise InputError(self.where, f"the store is damaged: {said}", DAMAGED_FILE)
        if schema_of(self._db) != expected_schema(self._format()):
            what = "the store is damaged: its tables or triggers are not what they should be"
            raise InputError(self.where, what, DAMAGED_FILE)

    def facts(self, job: int) -> list[tuple[float, dict[str, object]]]:
        """Returns the facts that name a job, in order, as records of the log."""
        found: list[tuple[float, str]] = self._all(
            "SELECT t, line FROM facts WHERE job = ? ORDER BY seq", job
        )
        read = [(t, _fact(line)) for t, line in found]
        return [(t, fact) for t, fact in read if fact]

    def facts_after(
        self, seq: int, limit: int, job: int | None = None
    ) -> list[tuple[int, str, int | None]]:
        """Returns up to `limit` facts behind number `seq`, of one job or of all.

        Each with its number, as its line of the log, and with the job it names, if it names one.
        """
        of_job, values = ("", ()) if job is None else (" AND job = ?", (job,))
        return self._all(
            f"SELECT seq, line, job FROM facts WHERE seq > ?{of_job} ORDER BY seq LIMIT ?",
            seq,
            *values,
            limit,
        )

    def last_fact(self) -> int:
        """Returns the number of the latest fact, 0 for none."""
        row: tuple[int | None] | None = self._one("SELECT max(seq) FROM facts")
        return (row[0] or 0) if row else 0

    def all_facts(self, after: int = 0) -> Iterator[str]:
        """Yields all facts behind a number in order, as lines of the log.

        Read in parts: a slow reader must not keep the write-ahead log from being truncated.
        """
        seq = after
        while part := self.facts_after(seq, PART):
            yield from (line for _, line, _ in part)
            seq = part[-1][0]

    def meta(self, name: str) -> str | None:
        """Returns a value that was kept by name."""
        row: tuple[object] | None = self._one("SELECT value FROM meta WHERE name = ?", name)
        return None if row is None else str(row[0])

    def all_meta(self) -> tuple[tuple[str, str], ...]:
        """Returns every value that was kept, by name."""
        return tuple(self._all("SELECT name, value FROM meta ORDER BY name"))

    def last_s(self) -> float:
        """Returns the latest time in the store, 0 if there is none."""
        last: list[tuple[object] | None] = [
            self._one(f"SELECT {time} FROM {table} ORDER BY {key} DESC LIMIT 1")
            for table, key, time in (
                ("jobs", "number", "submit_s"),
                ("jobs WHERE end_s IS NOT NULL", "end_s", "end_s"),
                ("requests", "seq", "t"),
                ("facts", "seq", "t"),
            )
        ]
        known = [row[0] for row in last if row and isinstance(row[0], int | float)]
        return max((t for t in known if 0 <= t < CLOCK_MAX_S), default=0.0)

    def _one(self, sql: str, *values: object) -> Row | None:
        rows: list[Row] = self._all(sql, *values)
        return rows[0] if rows else None

    def _all(self, sql: str, *values: object) -> list[Row]:
        """Returns all rows. The caller declares the types of the columns; SQLite checks none."""
        try:
            return self._db.execute(sql, values).fetchall()
        except UNREADABLE as error:
            raise unreadable(self.where, error) from None


@dataclass(frozen=True, slots=True)
class _Match:
    """Which jobs are asked for; empty words mean any, and no `since_s` also those not over."""

    user: str
    name: str
    since_s: float | None = None

    def tests(
        self, states: Collection[State] | None, *, live: bool = False
    ) -> tuple[str, list[object]]:
        """Returns the conditions for jobs in some states, and the values they name.

        A plus keeps SQLite from the index of a column where another one has fewer rows to look
        at: that of names (which has the users, too), of ends or, for `live`, of jobs not over.
        """
        tests, values = ["1"], list[object]()
        by_end = self.since_s is not None
        if states is not None:
            tests.append(f"state IN ({','.join('?' * len(states))})")
            values.extend(sorted(states))
        if by_end:
            tests.append("end_s >= ?")
            values.append(self.since_s)
        if self.user:
            plus = live or (bool(self.name) and not by_end)
            tests.append(f"{'+' if plus else ''}user = ?")
            values.append(self.user)
        if self.name:
            tests.append(f"{'+' if live or by_end else ''}name = ?")
            values.append(self.name)
        return " AND ".join(tests), values


def _fact(line: str) -> dict[str, object]:
    """Returns the record of a line of the log, empty for one that is damaged."""
    try:
        fact = json.loads(line)
    except ValueError:
        return {}
    return fact if isinstance(fact, dict) and "e" in fact else {}


def _exit_code(record: str) -> int | None:
    try:
        code = json.loads(record).get("exit_code")
    except (ValueError, TypeError, AttributeError):
        return None
    return code if isinstance(code, int) else None


class StoreReader(Queries):
    """Reads over a connection of its own that cannot write; one for each thread."""

    def __init__(self, path: Path) -> None:
        try:
            self._own = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10)
        except sqlite3.Error as error:
            raise unreadable(str(path), error) from None
        self._own.text_factory = in_utf8
        try:
            check_format(self._own, str(path))
        except (*UNREADABLE, InputError) as error:
            self._own.close()
            if isinstance(error, InputError):
                raise
            raise unreadable(str(path), error) from None
        super().__init__(self._own, str(path))

    def __enter__(self) -> StoreReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection."""
        self._own.close()
