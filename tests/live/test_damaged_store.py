"""A store that is damaged: one row concerns one job, a broken file is refused in a sentence."""

import json
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from live_stage import Stage

from dovetail.core.errors import InputError
from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.store.database import Database, EmptyStore
from dovetail.live.store.queries import JobFilter, Queries, StoreReader
from dovetail.live.store.record_codec import DAMAGED
from dovetail.live.store.store import Store

KILLED_S, END_S = 12.0, 90.0
JOBS = 8
ENDED, RUNNING, WAITING = 1, 3, 6
"""What these jobs are when the controller is killed."""


def scene(path: Path) -> Stage:
    """Returns a cluster whose controller was killed with jobs over, running and waiting.

    The file then holds all: no write-ahead log is left.
    """
    s = Stage("fifo", nodes=1, gpus=2, database=Database(path), stands=True)
    s.submit(1.0, duration_s=4.0)
    s.submit(1.5, duration_s=5.0, script="#!/bin/sh\necho 2\n")
    for job in range(3, JOBS + 1):
        s.submit(2.0, duration_s=8.0 + job, user=f"user-{job}")
    s.ask(11.0, "hold", JOBS)
    s.ask(11.0, "drain", node=0)
    s.ask(11.5, "drain", node=0)
    s.play(KILLED_S)
    s.ask(KILLED_S + 1.0, "undrain", node=0)
    s.play(KILLED_S + 2.0)
    s.database.close()
    return s


def reopen(s: Stage, path: Path) -> None:
    """Opens the store anew, as the next controller does. Raises InputError."""
    s.database = Database(path)
    s.store = Store(s.database, Queries(s.database.connection, str(path)))


def changed(path: Path, sql: str, *values: object) -> None:
    """Changes the store behind the back of everybody."""
    db = sqlite3.connect(path)
    assert db.execute(sql, values).rowcount
    db.commit()
    db.close()


def go_on(s: Stage, path: Path) -> dict[int, State]:
    """Lets the next controller serve what there is and a job that comes; returns the states."""
    reopen(s, path)
    s.submit(s.line.now + 5.0, duration_s=5.0)

    def release() -> None:
        assert s.intake is not None
        with suppress(InputError):  # it has failed where its row is damaged
            s.intake.request("release", jobs=[JOBS], key="release")

    s.at(s.line.now + 6.0, release)
    s.play(END_S)
    return s.states()


@pytest.fixture
def path() -> Iterator[Path]:
    """Returns where a store may be, in memory if possible: nothing here is about the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder) / "store.db"


@pytest.mark.parametrize("job", [ENDED, RUNNING, WAITING])
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("record", "{}"),
        ("record", "[1"),
        ("record", '{"job":99}'),
        ("spec", "{}"),
        ("spec", b'{"name":"\xff"}'),
        ("state", "RUNNIOG"),
        ("user", "somebody"),
    ],
)
def test_a_damaged_row_concerns_its_job_alone(
    path: Path, job: int, column: str, value: str | bytes
) -> None:
    s = scene(path)
    changed(path, f"UPDATE jobs SET {column} = CAST(? AS TEXT) WHERE number = ?", value, job)
    states = go_on(s, path)
    others = {n: state for n, state in states.items() if n != job}
    assert set(others.values()) == {State.COMPLETED} and len(states) == JOBS + 1
    kept = s.store.queries.job(job)
    assert kept is not None
    if column == "state":
        assert states[job] is State.COMPLETED  # its record says the same
    elif job == ENDED:
        assert (states[job], kept.record.reason) == (State.COMPLETED, DAMAGED)
    else:
        assert (states[job], kept.record.reason) == (State.FAILED, DAMAGED)
    assert column == "state" or "is damaged" in kept.record.detail
    s.database.close()


def test_an_ended_job_whose_record_is_damaged_is_not_requeued_and_the_controller_goes_on(
    path: Path,
) -> None:
    s = scene(path)
    changed(path, "UPDATE jobs SET record = '{}' WHERE number = ?", ENDED)
    reopen(s, path)
    refused: list[str] = []

    def requeue() -> None:
        assert s.intake is not None
        with pytest.raises(InputError) as error:
            s.intake.request("requeue", jobs=[ENDED], key="again")
        refused.append(str(error.value))

    s.at(s.line.now + 1.0, requeue)
    # One that was accepted before the row was damaged.
    db = s.database.connection
    db.execute("INSERT INTO requests VALUES (99, 1.0, 'requeue', ?, -1, '', 0)", (ENDED,))
    s.play(END_S)
    (said,) = refused
    assert said.startswith(f"job {ENDED}: its row in the store is damaged: JobRecord: field 'job'")
    assert "put back a copy of the file" in said
    assert s.states()[JOBS - 1] is State.COMPLETED
    assert not s.store.queries.pending()
    s.database.close()


def test_text_that_is_not_utf8_in_any_column_ends_no_controller(path: Path) -> None:
    columns = [
        (table, column)
        for table in ("jobs", "scripts", "requests", "facts", "keys", "meta")
        for _, column, kind, *_ in sqlite3_columns(path.with_name("any.db"), table)
        if kind == "TEXT"
    ]
    assert len(columns) > 12
    for number, (table, column) in enumerate(columns):
        at = path.with_name(f"{number}.db")
        s = scene(at)
        key = {"scripts": "digest", "keys": "key", "meta": "name"}.get(table, "rowid")
        sql = f"UPDATE {table} SET {column} = CAST(x'ff80' AS TEXT)"
        sql += f" WHERE {key} = (SELECT min({key}) FROM {table})"
        changed(at, sql)
        states = go_on(s, at)
        wrong = [job for job, state in states.items() if state is not State.COMPLETED]
        assert len(states) == JOBS + 1 and wrong in ([], [1]), (table, column, states)
        s.database.close()


def sqlite3_columns(path: Path, table: str) -> list[tuple[object, ...]]:
    database = Database(path)
    found = database.connection.execute(f"PRAGMA table_info({table})").fetchall()
    database.close()
    return found


@pytest.mark.parametrize("value", ["x", "", "-1", "9" * 5000, "1.5", "١"])
def test_a_damaged_epoch_lowers_no_epoch(path: Path, value: str) -> None:
    database = Database(path)
    store = Store(database, Queries(database.connection))
    assert [store.recover().epoch for _ in range(3)] == [1, 2, 3]
    store.keep({"engine": "local", "manifest": "{}"})
    before = store.recover().epoch
    for name in ("epoch", "epoch copy"):
        store.keep({name: value})
        assert store.recover().epoch > before
    store.keep({"epoch": value, "epoch copy": value})
    assert store.recover().epoch > before
    database.connection.execute("DELETE FROM meta WHERE name LIKE 'epoch%'")
    assert store.recover().epoch > before
    database.close()


def test_an_empty_file_is_a_new_store(path: Path) -> None:
    path.touch()
    with pytest.raises(EmptyStore, match=r"the store is empty \(start a controller"):
        StoreReader(path)
    database = Database(path)
    assert Store(database, Queries(database.connection)).recover().epoch == 1
    database.close()
    StoreReader(path).close()


def flip(path: Path, bit: int) -> None:
    """Flips one bit of a file."""
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def outcome_of_a_flip(path: Path, seed: int, text: bytes = b"") -> str:
    """Plays a story on a store with one bit flipped, and returns what became of it.

    The seed draws the bit, from the whole file or from the first place of a text.
    """
    path.unlink(missing_ok=True)
    s = scene(path)
    bit = Random(seed).randrange(8 * (len(text) or path.stat().st_size))
    bit += 8 * path.read_bytes().find(text) if text else 0
    flip(path, bit)
    try:
        states = go_on(s, path)
        look_at_everything(s.store.queries)
    except InputError as error:
        said = str(error)
        assert said.startswith(str(path)) and "put back a copy" in said, said
        assert "\n" not in said and "another --home" in said, said
        return "refused"
    finally:
        with suppress(sqlite3.ProgrammingError):  # it may be closed already
            s.database.close()
    expected = dict.fromkeys(range(1, JOBS + 2), State.COMPLETED)
    other = [job for job in expected | states if states.get(job) != expected.get(job)]
    assert len(other) <= 1, f"bit {bit}: {states}"
    return "one job" if other else "as before"


def look_at_everything(queries: Queries) -> None:
    """Asks what commands ask."""
    queries.counts()
    queries.rows(limit=50)
    queries.rows(TERMINAL, JobFilter(since_s=0.0))
    numbers = [number for number, _ in queries.states()]
    queries.standings(numbers)
    queries.called(numbers)
    for number in numbers:
        queries.job(number)
        json.dumps(queries.facts(number))


def test_one_flipped_bit_is_refused_in_a_sentence_or_costs_one_job_at_most(path: Path) -> None:
    assert set(flips(path, range(30, 70))) >= {"as before", "refused"}
    assert outcome_of_a_flip(path, 0, text=b'"command"') == "one job"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_many_flipped_bits_one_after_the_other(path: Path, part: int) -> None:
    assert len(flips(path, range(1000 + part * 500, 1500 + part * 500))) == 3


def flips(path: Path, seeds: range) -> Counter[str]:
    """Plays one story for each seed, all of which must hold."""
    return Counter(outcome_of_a_flip(path, seed) for seed in seeds)
