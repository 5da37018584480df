"""What tests read of a store beyond what the product reads."""

from __future__ import annotations

import json
from collections.abc import Iterator

from dovetail.core.errors import InputError
from dovetail.live.store.queries import Queries
from dovetail.live.store.record_codec import SELECT_JOBS, StoredJob, record_of, spec_of, stored_job
from dovetail.wire.codec import WireError


def all_jobs(queries: Queries) -> Iterator[StoredJob]:
    """Yields every job by number, without its script."""
    for row in queries._all(f"{SELECT_JOBS} ORDER BY number"):
        yield stored_job(row)


def recorded_jobs(queries: Queries) -> Iterator[tuple[int, StoredJob]]:
    """Yields the number of every row and the job of its texts. Raises InputError for damage."""
    for number, spec, record, _, arrived, *_ in queries._all(f"{SELECT_JOBS} ORDER BY number"):
        try:
            yield number, StoredJob(spec_of(spec), record_of(record), bool(arrived))
        except WireError as error:
            raise InputError(queries.where, f"job {number} is damaged: {error}") from None


def cancels(queries: Queries) -> list[tuple[int, float]]:
    """Returns the jobs to be cancelled, and when that was asked first."""
    return queries._all(
        "SELECT job, min(t) FROM requests WHERE verb = 'cancel' GROUP BY job ORDER BY job"
    )


def answered_jobs(queries: Queries) -> list[int]:
    """Returns the numbers that submits were answered with."""
    return [
        number
        for key, numbers in queries._all("SELECT kind, numbers FROM keys")
        if key == "submit"
        for number in json.loads(numbers)
    ]


def damage(queries: Queries) -> list[str]:
    """Returns what is broken in the file itself, its indices included; reads all of it."""
    lines = [str(row[0]) for row in queries._all("PRAGMA integrity_check(20)")]
    return [] if lines == ["ok"] else [f"{queries.where}: {line}" for line in lines]
