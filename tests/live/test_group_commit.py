"""Many threads share commits; each gets its own answer and its own error."""

import itertools
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.core.cluster import Cluster
from dovetail.core.errors import DovetailError, InputError
from dovetail.live.edges.protocols import Incoming, StoreError
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.store.database import Database
from dovetail.live.store.group_commit import GroupCommit
from dovetail.live.store.intake import Intake
from dovetail.live.store.queries import Queries, StoreReader
from dovetail.live.store.store import Store, add_jobs, keep_meta
from dovetail.wire.spec import JobSpec
from dovetail.wire.submission import Submission
from patience import PATIENCE_S


class Ticks:
    """A clock that goes on with every look."""

    def __init__(self) -> None:
        self._ticks = itertools.count(1)

    def now(self) -> float:
        return float(next(self._ticks))


class Gate:
    """Holds the first transaction back until it is opened, and counts the commits."""

    def __init__(self) -> None:
        self.begun, self.open, self.commits = threading.Event(), threading.Event(), 0

    def __call__(self, point: str) -> None:
        if point == "before commit":
            self.begun.set()
            assert self.open.wait(PATIENCE_S)
            self.commits += 1


def in_threads(works: list[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_each_of_many_threads_gets_its_own_numbers_and_all_are_durable(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    group = GroupCommit(Database(path))
    inbox: list[Incoming] = []
    intake = Intake(group, clock=Ticks(), cluster=Cluster.uniform(1, 4), put=inbox.append)
    got: dict[str, int] = {}

    def user(name: str) -> None:
        for i in range(25):
            spec = JobSpec(f"{name}{i}", ("true",), "/")
            (got[spec.name],) = intake.submit([Submission(spec)], key=spec.name)

    in_threads([lambda name=name: user(name) for name in "abcdefgh"])  # type: ignore[misc]
    group.close()
    with StoreReader(path) as reader:
        kept = {job.spec.name: job.number for job in reader.rows()}
    assert kept == got and len(kept) == 200
    accepted = [a for a in inbox if isinstance(a, StoredJob)]
    assert [job.number for job in accepted] == list(range(1, 201))
    times = [job.record.submit_s for job in accepted]
    assert times == sorted(times)


def test_what_waits_while_a_commit_is_under_way_goes_into_the_next_together() -> None:
    gate = Gate()
    group = GroupCommit(Database(None, crash=gate))
    threads = [
        threading.Thread(target=lambda i=i: group.do(lambda db: keep_meta(db, ((str(i), "x"),))))
        for i in range(10)
    ]
    threads[0].start()
    assert gate.begun.wait(PATIENCE_S)
    for thread in threads[1:]:
        thread.start()
    while group._queue.qsize() < 9:
        assert threads[0].is_alive()
    gate.open.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert gate.commits == 2
    group.close()


def test_an_error_reaches_the_caller_whose_it_is() -> None:
    gate = Gate()
    database = Database(None, crash=gate)
    database.connection.execute("PRAGMA max_page_count=40")
    group = GroupCommit(database)
    seen: dict[str, object] = {}

    def attempt(name: str, work: Callable[[sqlite3.Connection], object]) -> None:
        try:
            seen[name] = group.do(work)
        except Exception as error:
            seen[name] = type(error)

    def refuse(db: sqlite3.Connection) -> None:
        add_jobs(db, [JobSpec("half", ("true",), "/")], 1.0)
        raise InputError("here", "no")

    large = JobSpec("large", ("true",), "/", script="#!/bin/sh\n" + "x" * 500_000)
    works: dict[str, Callable[[sqlite3.Connection], object]] = {
        "first": lambda db: None,
        "small": lambda db: add_jobs(db, [JobSpec("small", ("true",), "/")], 1.0)[0].number,
        "refused": refuse,
        "large": lambda db: add_jobs(db, [large], 1.0),
    }
    threads = [threading.Thread(target=attempt, args=item) for item in works.items()]
    threads[0].start()
    assert gate.begun.wait(PATIENCE_S)
    for thread in threads[1:]:
        thread.start()
    while group._queue.qsize() < 3:
        assert threads[0].is_alive()
    gate.open.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert seen == {"first": None, "small": 1, "refused": InputError, "large": StoreError}
    group.close()


def test_nobody_waits_for_ever_when_the_writer_breaks() -> None:
    class Broken(BaseException):
        pass

    def crash(point: str) -> None:
        if point == "begin":
            raise Broken

    group = GroupCommit(Database(None, crash=crash))
    with pytest.raises(Broken):
        group.do(lambda db: None)
    group.close()
    with pytest.raises(DovetailError, match="closed"):
        group.do(lambda db: None)
    group.close()


def test_a_store_recovers_through_the_writer_thread_too(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    group = GroupCommit(Database(path))
    with StoreReader(path) as reader:
        store = Store(group, reader)
        store.keep({"policy": "fifo"})
        assert store.recover().epoch == 1
        assert dict(store.recover().meta) == {
            "epoch": "2",
            "epoch copy": "2",
            "policy": "fifo",
        }
    group.close()
    database = Database(path)
    assert Queries(database.connection).meta("epoch") == "2"
    database.close()


def test_what_waits_at_the_end_is_kept_and_the_writer_ends() -> None:
    gate = Gate()
    group = GroupCommit(Database(None, crash=gate))
    kept: list[object] = []
    threads = [
        threading.Thread(
            target=lambda i=i: group.do(lambda db: keep_meta(db, ((str(i), "x"),)), kept.append),
            daemon=True,
        )
        for i in range(3)
    ]
    threads[0].start()
    assert gate.begun.wait(PATIENCE_S)
    for thread in threads[1:]:
        thread.start()
    while group._queue.qsize() < 2:
        assert threads[0].is_alive()
    closing = threading.Thread(target=group.close, daemon=True)
    closing.start()
    # The mark of the end now stands behind two works, and is met while these are gathered.
    while group._queue.qsize() < 3:
        assert closing.is_alive()

    gate.open.set()

    for thread in (*threads, closing):
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert len(kept) == 3 and gate.commits == 2
