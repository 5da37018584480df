"""Reads of the store, also while the controller writes."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from pathlib import Path
from typing import TypeVar

from dovetail.core.errors import InputError
from dovetail.live.edges.protocols import Request
from dovetail.live.jobs.lifecycle import TERMINAL, State
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
from dovetail.live.store.record_codec import SELECT_JOBS, JobColumns, state_of, stored_job

CLOCK_MAX_S = 1e12
"""A later time is damage at any speed of the cluster, and would stop its clock."""
PART = 5_000
"""Facts of one read."""
VALUES_MAX = 500
"""Values of one query: old builds of SQLite accept at most 999."""
LIVE = tuple(s for s in State if s not in TERMINAL)
"""The states of live jobs, which have not ended."""
NO_SUCH_JOB = "there is no such job"
JOB_OR_TASKS = (
    "SELECT number FROM jobs WHERE number = ?1"
    " UNION SELECT number FROM jobs WHERE array_of = ?1 ORDER BY number"
)
"""The job of a number, or all tasks of the array of this number."""
Row = TypeVar("Row", bound=tuple[object, ...])
LiveRow = tuple[int, str, int, int]
"""Number, state, array and index in the array of a job; -1 where it is no task of an array."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A selection of jobs; empty texts match any, and `since_s` None also jobs without an end."""

    user: str = ""
    name: str = ""
    since_s: float | None = None

    def conditions(
        self, states: Collection[State] | None, *, live: bool = False
    ) -> tuple[str, list[object]]:
        """Returns the SQL conditions for jobs in some states, and their values.

        A plus before a column keeps SQLite from its index where another index has fewer rows: that
        of names (which has the users too), of ends or, with `live`, of live jobs.
        """
        conditions, values = ["1"], list[object]()
        by_end = self.since_s is not None
        if states is not None:
            conditions.append(f"state IN ({','.join('?' * len(states))})")
            values.extend(sorted(states))
        if by_end:
            conditions.append("end_s >= ?")
            values.append(self.since_s)
        if self.user:
            plus = live or (bool(self.name) and not by_end)
            conditions.append(f"{'+' if plus else ''}user = ?")
            values.append(self.user)
        if self.name:
            conditions.append(f"{'+' if live or by_end else ''}name = ?")
            values.append(self.name)
        return " AND ".join(conditions), values


ANY_JOB = JobFilter()


class Queries:
    """Reads over one connection, by one thread. Raises InputError for a damaged file."""

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
        rows: Iterator[JobColumns] = self._among(f"{SELECT_JOBS} WHERE number IN", numbers)
        jobs = {row[0]: stored_job(row) for row in rows}
        return [jobs[number] for number in numbers if number in jobs]

    def live(self) -> list[StoredJob]:
        """Returns all live jobs, by number, with their scripts."""
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
        match: JobFilter = ANY_JOB,
        *,
        limit: int = 0,
        offset: int = 0,
    ) -> list[StoredJob]:
        """Returns jobs that match, without their scripts; `limit` 0 means all from `offset` on.

        The latest submission comes first; with `since_s`, jobs that ended then or later, and the
        latest end first.
        """
        if states is None:
            keys = self._keys(match, None, limit, offset)
        else:
            # One state at a time: an index has each in order, so SQLite sorts nothing.
            end = limit and offset + limit
            parts = [self._keys(match, (s,), end, 0) for s in sorted(states)]
            keys = list(merge(*parts, reverse=True))[offset : end or None]
        return self.some([number for _, number in keys])

    def _keys(
        self,
        match: JobFilter,
        states: Collection[State] | None,
        limit: int,
        offset: int,
    ) -> list[tuple[float, int]]:
        """Returns the sort keys of the jobs that match, with their numbers, in order."""
        conditions, values = match.conditions(states)
        key = "number" if match.since_s is None else "end_s"
        return self._all(
            f"SELECT {key}, number FROM jobs WHERE {conditions} ORDER BY {key} DESC, number DESC"
            " LIMIT ? OFFSET ?",
            *values,
            limit or -1,
            offset,
        )

    def count(self, states: Collection[State] | None = None, match: JobFilter = ANY_JOB) -> int:
        """Returns the number of jobs that `rows` returns without a limit."""
        if not (match.name or match.since_s):
            # The table of counts has users and states alone; its rows are few.
            counts = self.counts(match.user)
            return sum(counts.get(s, 0) for s in (State if states is None else states))
        # Every end is at 0 or later: without the condition SQLite may use the index of names.
        conditions, values = replace(match, since_s=match.since_s or None).conditions(states)
        total: tuple[int] | None = self._one(
            f"SELECT count(*) FROM jobs WHERE {conditions}", *values
        )
        return total[0] if total else 0

    def live_jobs(self, states: Collection[State], match: JobFilter = ANY_JOB) -> list[LiveRow]:
        """Returns the jobs in some states that are not terminal, by number, from an index alone."""
        # A plus before a column keeps SQLite from its index, which has all jobs that have ended.
        conditions, values = match.conditions(states, live=True)
        return self._all(
            "SELECT number, state, coalesce(array_of, -1), coalesce(array_index, -1) FROM jobs"
            f" WHERE {LIVE_STATES} AND {conditions} ORDER BY number",
            *values,
        )

    def standings(self, numbers: Sequence[int]) -> list[tuple[int, State, int | None]]:
        """Returns (number, state, exit code) of jobs in order, without parsing whole records."""
        sql = "SELECT number, state, record FROM jobs WHERE number IN"
        rows: Iterator[tuple[int, str, str]] = self._among(sql, numbers)
        standings: dict[int, tuple[int, State, int | None]] = {}
        for number, column, record in rows:
            state = state_of(column)
            standings[number] = number, state, _exit_code(record) if state in TERMINAL else None
        return [standings[number] for number in numbers if number in standings]

    def states(self) -> list[tuple[int, str]]:
        """Returns the state column of each job, by number."""
        return self._all("SELECT number, state FROM jobs ORDER BY number")

    def counts(self, user: str = "") -> dict[State, int]:
        """Returns the number of jobs, of one user or of all, in each state that has any."""
        match, values = ("WHERE user = ?", (user,)) if user else ("", ())
        sql = f"SELECT state, sum(jobs) FROM job_counts {match} GROUP BY state"
        if self._format() == 1:
            # This format has no table of counts, and a reader does not migrate the store.
            sql = f"SELECT state, count(*) FROM jobs {match} GROUP BY state"
        rows: list[tuple[str, int]] = self._all(sql, *values)
        counts: Counter[State] = Counter()
        for column, jobs in rows:
            counts[state_of(column)] += jobs
        return +counts

    def _format(self) -> int:
        try:
            return format_of(self._db)
        except UNREADABLE as error:
            raise unreadable(self.where, error) from None

    def numbers_of(self, text: str) -> tuple[int, ...]:
        """Returns the jobs of a name: `12` (all tasks, if it is an array) or `12_3`.

        Raises InputError if there is none.
        """
        numbers = self.matching(text)
        if not numbers:
            raise InputError(f"job {text}", NO_SUCH_JOB)
        return numbers

    def matching(self, text: str) -> tuple[int, ...]:
        """Returns the jobs of a name, perhaps none. Raises InputError for a malformed name."""
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
        rows: list[tuple[int]]
        if index:
            rows = self._all(
                "SELECT number FROM jobs WHERE array_of = ? AND array_index = ?",
                int(first),
                int(index[:18]),
            )
        else:
            rows = self._all(JOB_OR_TASKS, int(first))
        return tuple(number for (number,) in rows)

    def called(self, numbers: Iterable[int]) -> dict[int, str]:
        """Returns the names of jobs, by number: `12`, or `12_3` for a task of an array."""
        names = {number: str(number) for number in numbers}
        sql = "SELECT number, array_of, array_index FROM jobs WHERE array_of IS NOT NULL"
        rows: Iterator[tuple[int, int, int]] = self._among(f"{sql} AND number IN", list(names))
        for number, array, index in rows:
            names[number] = f"{array}_{index}"
        return names

    def pending(self) -> list[Request]:
        """Returns the accepted requests that are not carried out yet, in order."""
        rows: list[tuple[int, str, int, int, str]] = self._all(
            "SELECT seq, verb, job, node, argument FROM requests WHERE done = 0 ORDER BY seq"
        )
        # A damaged row is skipped: it must not keep a controller from its start.
        return [Request(*row) for row in rows if all(isinstance(row[at], int) for at in (0, 2, 3))]

    def asked_for(self, seqs: Sequence[int]) -> set[int]:
        """Returns the jobs of some requests."""
        rows: Iterator[tuple[int]] = self._among("SELECT job FROM requests WHERE seq IN", seqs)
        return {job for (job,) in rows}

    def check(self) -> None:
        """Raises InputError if the file is damaged."""
        result: list[tuple[str]] = self._all("PRAGMA integrity_check(1)")
        if result != [("ok",)]:
            what = str(result[0][0]).strip().splitlines()[-1]
            raise InputError(self.where, f"the store is damaged: {what}", DAMAGED_FILE)
        if schema_of(self._db) != expected_schema(self._format()):
            what = "the store is damaged: its tables or triggers are not what they should be"
            raise InputError(self.where, what, DAMAGED_FILE)

    def facts(self, job: int) -> list[tuple[float, dict[str, object]]]:
        """Returns the facts of a job in order, as records of the log; damaged ones are left out."""
        rows: list[tuple[float, str]] = self._all(
            "SELECT t, line FROM facts WHERE job = ? ORDER BY seq", job
        )
        return [(t, fact) for t, line in rows if (fact := _fact(line))]

    def facts_after(
        self, seq: int, limit: int, job: int | None = None
    ) -> list[tuple[int, str, int | None]]:
        """Returns up to `limit` facts after number `seq`, of one job or of all.

        A fact is its number, its line of the log, and the number of its job, if it has one.
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
        """Yields all facts after a number in order, as lines of the log."""
        # In parts: one long read by a slow caller would keep the write-ahead log from shrinking.
        seq = after
        while part := self.facts_after(seq, PART):
            yield from (line for _, line, _ in part)
            seq = part[-1][0]

    def meta(self, name: str) -> str | None:
        """Returns the stored value of a name."""
        row: tuple[object] | None = self._one("SELECT value FROM meta WHERE name = ?", name)
        return None if row is None else str(row[0])

    def all_meta(self) -> tuple[tuple[str, str], ...]:
        """Returns all stored names and values."""
        return tuple(self._all("SELECT name, value FROM meta ORDER BY name"))

    def last_s(self) -> float:
        """Returns the latest time in the store, 0 if there is none."""
        rows: list[tuple[object] | None] = [
            self._one(f"SELECT {time} FROM {table} ORDER BY {key} DESC LIMIT 1")
            for table, key, time in (
                ("jobs", "number", "submit_s"),
                ("jobs WHERE end_s IS NOT NULL", "end_s", "end_s"),
                ("requests", "seq", "t"),
                ("facts", "seq", "t"),
            )
        ]
        times = [row[0] for row in rows if row and isinstance(row[0], int | float)]
        return max((t for t in times if 0 <= t < CLOCK_MAX_S), default=0.0)

    def _one(self, sql: str, *values: object) -> Row | None:
        rows: list[Row] = self._all(sql, *values)
        return rows[0] if rows else None

    def _among(self, sql: str, values: Sequence[int]) -> Iterator[Row]:
        """Yields the rows of a query that ends with `IN` and takes one of many values."""
        for first in range(0, len(values), VALUES_MAX):
            part = values[first : first + VALUES_MAX]
            yield from self._all(f"{sql} ({','.join('?' * len(part))})", *part)

    def _all(self, sql: str, *values: object) -> list[Row]:
        """Returns all rows. The caller declares the types of the columns; SQLite checks none."""
        try:
            return self._db.execute(sql, values).fetchall()
        except UNREADABLE as error:
            raise unreadable(self.where, error) from None


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
    """Reads over a connection of its own that cannot write. Raises InputError."""

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

    def __exit__(self, *error: object) -> None:
        self.close()

    def copy_to(self, target: sqlite3.Connection) -> None:
        """Copies the store as it is at one moment; writers go on. Raises sqlite3.Error."""
        # All pages in one step: between two steps a write would make it begin anew.
        self._own.backup(target, pages=-1)

    def close(self) -> None:
        """Ends the connection."""
        self._own.close()
