"""What is on record, and stays so when the process is killed or the disk is full."""

import json
import sqlite3
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.core.errors import DovetailError, InputError
from dovetail.core.messages import Ended, NodeChanged, Started, Submitted
from dovetail.core.placement import Placement
from dovetail.live.edges.protocols import JournalEntry, Request, StoreError
from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.record import GangMember, JobRecord
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.store.database import Database
from dovetail.live.store.queries import JobFilter, Queries, StoreReader
from dovetail.live.store.store import Store, add_jobs, add_requests
from dovetail.record.log import fact_of
from dovetail.wire.spec import JobSpec
from store_format_1 import FORMAT_1

SCRIPT = "#!/bin/sh\necho $HOME `id`\n"


class Killed(BaseException):
    """The process is gone."""


class Killer:
    """Kills at the nth crash point."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, point: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed(point)


def spec(name: str = "job", **given: object) -> JobSpec:
    return JobSpec(name, ("true",), "/", **given)  # type: ignore[arg-type]


def store_of(database: Database) -> Store:
    return Store(database, Queries(database.connection))


def submit(store: Store, *specs: JobSpec, now: float = 1.0) -> list[int]:
    return [job.number for job in store.committer.do(lambda db: add_jobs(db, specs, now))]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_what_was_written_is_there_after_the_process_is_gone(path: Path) -> None:
    database = Database(path)
    store = store_of(database)
    assert submit(store, spec("a", script=SCRIPT, hold=True), spec("b")) == [1, 2]
    where = Placement(((0, 2),))
    running = JobRecord(1, State.RUNNING, 1.0, 3, where, (GangMember(4, 0, 1),), held=True)
    store.write(
        JournalEntry(
            (Submitted(1.0, 1, 60.0), Started(2.0, 1, "start", where, 1.5, 2.0)),
            (running,),
            meta=(("measured", "{}"),),
        )
    )
    database.close()

    database = Database(path)
    recovered = store_of(database).recover()
    assert recovered.jobs == (StoredJob(spec("a", script=SCRIPT, hold=True), running),)
    (waiting,) = recovered.accepted
    assert (waiting.number, waiting.spec, waiting.record.submit_s) == (2, spec("b"), 1.0)
    assert recovered.now_s == 2.0
    assert dict(recovered.meta) == {"epoch": "1", "epoch copy": "1", "measured": "{}"}
    assert recovered.epoch == 1
    assert store_of(database).recover().epoch == 2
    database.close()


def test_the_clock_goes_on_from_the_newest_time_that_any_record_knows(path: Path) -> None:
    database = Database(path)
    store = store_of(database)
    submit(store, spec("a"), spec("b"))
    where = Placement(((0, 2),))
    starts = tuple(Started(2.0, job, "start", where, 1.5, 2.0) for job in (1, 2))
    running = JobRecord(1, State.RUNNING, 1.0, 3, where, (GangMember(4, 0, 1),), since_s=50.0)
    ending = JobRecord(2, State.COMPLETING, 1.0, 3, since_s=3.0)
    store.write(
        JournalEntry((Submitted(1.0, 1, 60.0), Submitted(1.0, 2, 60.0), *starts), (ending,))
    )
    assert store.recover().now_s == 2.0 + 1.0
    store.write(JournalEntry((), (running,)))
    assert store.recover().now_s == 50.0
    store.write(JournalEntry((), (replace(ending, state=State.COMPLETED, end_s=70.0),)))
    assert store.recover().now_s == 70.0
    database.close()


def test_facts_read_back_as_the_log_reads_them() -> None:
    database = Database(None)
    store = store_of(database)
    submit(
        store,
        spec("a", gpus=2, max_gpus=2, trains=True, user="ann", queue="q", shareable=True),
        spec(),
    )
    facts = (
        Submitted(1.5, 1, float("inf")),
        Started(2.0, 1, "start", Placement(((1, 2),), ((0, 3),)), 0.5, 2.25),
        NodeChanged(2.0, 1, "down"),
        Ended(3.0, 1, "completed"),
    )
    store.write(JournalEntry(facts))
    lines = [json.loads(line) for line in store.queries.all_facts()]
    assert tuple(fact_of(line, {"1": 1, "2": 2}) for line in lines) == facts
    assert lines[0] == {
        "t": 1.5, "e": "submitted", "job": "1", "submit_s": 1.0, "gpus": 2, "user": "ann",
        "queue": "q", "shareable": True, "work_s": None, "length_s": None,
        "elastic": True, "min_gpus": 1, "max_gpus": 2,
    }  # fmt: skip
    assert [line["e"] for _, line in store.queries.facts(1)] == ["submitted", "started", "ended"]
    assert store.queries.facts(2) == []
    assert [json.loads(line)["e"] for _, line, _ in store.queries.facts_after(2, 9)] == [
        "node",
        "ended",
    ]
    database.close()


def test_an_entry_is_kept_whole_or_not_at_all() -> None:
    database = Database(None)
    store = store_of(database)
    submit(store, spec())
    before = list(database.connection.iterdump())
    for wrong in (
        JournalEntry((NodeChanged(1.0, 0, "up"), Submitted(1.0, 9, 1.0))),
        JournalEntry((NodeChanged(1.0, 0, "up"),), (JobRecord(1, State.RUNNING), JobRecord(2))),
    ):
        with pytest.raises(DovetailError, match="never submitted"):
            store.write(wrong)
    assert list(database.connection.iterdump()) == before
    database.close()


def test_requests_wait_until_an_entry_says_they_are_done() -> None:
    database = Database(None)
    store = store_of(database)
    kept = database.do(
        lambda db: add_requests(db, [Request(0, "cancel", 3), Request(0, "drain", node=1)], 5.0)
    )
    assert store.recover().requests == tuple(kept)
    assert [r.seq for r in kept] == [1, 2]
    assert store.recover().now_s == 5.0
    store.write(JournalEntry(done=(1,)))
    assert store.recover().requests == (Request(2, "drain", node=1),)
    database.close()


@pytest.mark.parametrize("at", range(12))
def test_a_kill_at_any_point_leaves_all_or_nothing_of_each_write(path: Path, at: int) -> None:
    database = Database(path, crash=Killer(at + 1))
    store = store_of(database)
    acknowledged: list[int] = []

    def work() -> None:
        for number in (1, 2, 3):
            submit(store, spec(str(number)), now=float(number))
            acknowledged.append(number)
            store.write(
                JournalEntry((Submitted(float(number), number, 1.0),), (JobRecord(number),))
            )

    with pytest.raises(Killed):
        work()
    database.close()

    cycles, point = divmod(at, 6)  # a submit, then an entry; each begins, commits, has committed
    database = Database(path)
    recovered = store_of(database).recover()
    arrived = [job.number for job in recovered.jobs]
    there = arrived + [accepted.number for accepted in recovered.accepted]
    assert there == list(range(1, cycles + 1 + (point >= 2)))
    assert set(acknowledged) <= set(there)
    assert arrived == list(range(1, cycles + 1 + (point == 5)))
    facts = [json.loads(line)["job"] for line in store_of(database).queries.all_facts()]
    assert facts == [str(job) for job in arrived]
    database.close()


def test_a_full_disk_refuses_what_does_not_fit_and_changes_nothing(path: Path) -> None:
    database = Database(path)
    database.connection.execute("PRAGMA max_page_count=40")
    store = store_of(database)
    kept: list[int] = []

    def fill() -> None:
        for number in range(10_000):
            kept.extend(submit(store, spec(str(number), recurrence="x" * 150)))

    with pytest.raises(StoreError, match="full"):
        fill()
    with pytest.raises(StoreError):
        submit(store, spec("large", script="#!/bin/sh\n" + "x" * 50_000))
    assert [job.number for job in reversed(store.queries.rows())] == kept
    assert database.connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.connection.execute("PRAGMA max_page_count=4000")
    assert submit(store, spec("at last")) == [len(kept) + 1]
    database.close()


def test_of_several_works_only_the_one_that_fails_is_undone() -> None:
    database = Database(None)

    def wrong(db: sqlite3.Connection) -> int:
        add_jobs(db, [spec("half")], 1.0)
        raise InputError("here", "no")

    outcomes = database.do_all(
        [
            lambda db: add_jobs(db, [spec("a")], 1.0),
            wrong,
            lambda db: add_jobs(db, [spec("b")], 1.0),
        ]
    )
    assert [type(o.error) for o in outcomes] == [type(None), InputError, type(None)]
    store = store_of(database)
    assert [job.spec.name for job in store.queries.rows()] == ["b", "a"]
    database.close()


def test_files_that_are_no_store_are_refused_in_one_sentence(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("these are words, not a database; " * 50)
    with pytest.raises(InputError, match=r"read as a store.*put back a copy"):
        Database(text)

    foreign = tmp_path / "foreign.db"
    other = sqlite3.connect(foreign)
    other.execute("CREATE TABLE songs(title TEXT)")
    other.close()
    with pytest.raises(InputError, match="another program"):
        Database(foreign)
    with pytest.raises(InputError, match="another program"):
        StoreReader(foreign)

    newer = tmp_path / "newer.db"
    Database(newer).close()
    later = sqlite3.connect(newer)
    later.execute("PRAGMA user_version=99")
    later.close()
    with pytest.raises(InputError, match="format 99, expected 2"):
        Database(newer)

    with pytest.raises(InputError, match="cannot be opened"):
        Database(tmp_path / "nowhere" / "store.db")
    with pytest.raises(InputError, match="cannot be read"):
        StoreReader(tmp_path / "missing.db")
    (tmp_path / "empty.db").touch()
    with pytest.raises(InputError, match=r"the store is empty \(start a controller"):
        StoreReader(tmp_path / "empty.db")


def test_a_store_of_the_format_before_is_read_and_brought_up_to_date(path: Path) -> None:
    database = Database(path)
    store = store_of(database)
    submit(store, spec("a", user="ann"), spec("b", user="bob"), spec("a", user="bob"))
    store.write(JournalEntry(records=(JobRecord(2, State.FAILED, end_s=9.0),)))
    database.connection.executescript(FORMAT_1)
    database.close()

    def counted(reader: StoreReader) -> None:
        reader.check()
        assert reader.counts() == {State.PENDING: 2, State.FAILED: 1}
        assert reader.count([State.PENDING], JobFilter("bob")) == 1
        assert [job.number for job in reader.rows([State.PENDING], JobFilter("bob"))] == [3]
        assert [job.number for job in reader.rows([State.FAILED], JobFilter(since_s=0.0))] == [2]

    with StoreReader(path) as reader:
        counted(reader)
        database = Database(path)
        counted(reader)
    with StoreReader(path) as reader:
        counted(reader)
        submit(store_of(database), spec(user="bob"))
        assert reader.count([State.PENDING], JobFilter("bob")) == 2
    indices = "SELECT name FROM sqlite_master WHERE type = 'index' AND sql NOT NULL"
    found = set(database.connection.execute(indices))
    fresh = Database(None)
    assert found == set(fresh.connection.execute(indices))
    database.close()


def test_jobs_are_counted_whoever_changes_them_and_anew_where_that_went_wrong(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database(path)
    store, db = store_of(database), database.connection
    submit(store, *(spec(user=user) for user in ("ann", "ann", "bob")))
    db.execute("UPDATE jobs SET state = 'FAILED' WHERE number = 1")
    db.execute("UPDATE jobs SET user = 'bob' WHERE number = 2")
    db.execute("DELETE FROM jobs WHERE number = 3")
    assert store.queries.counts() == {State.FAILED: 1, State.PENDING: 1}
    assert store.queries.counts("ann") == {State.FAILED: 1}
    assert store.queries.counts("bob") == {State.PENDING: 1}
    store.recover()
    assert "counted anew" not in caplog.text
    db.execute("UPDATE job_counts SET jobs = 17")
    store.recover()
    assert store.queries.counts() == {State.FAILED: 2}, "the row of the other one is damaged"
    assert "counted anew" in caplog.text
    database.close()


def test_a_damaged_store_says_so(path: Path) -> None:
    database = Database(path)
    store = store_of(database)
    for _ in range(50):
        submit(store, *(spec(recurrence="x" * 190) for _ in range(20)))
    database.close()
    content = bytearray(path.read_bytes())
    content[8192:-4096] = b"\xa5" * (len(content) - 12288)
    path.write_bytes(content)
    database = Database(path)
    with pytest.raises(InputError, match="cannot be read"):
        store_of(database).queries.live()
    with pytest.raises(InputError, match="malformed"):
        submit(store_of(database), spec())
    with pytest.raises(InputError, match=r"the store is damaged: .*put back a copy"):
        store_of(database).recover()
    database.close()


def test_the_store_is_its_owners_alone(path: Path) -> None:
    database = Database(path)
    submit(store_of(database), spec())
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    database.close()


def test_a_reader_sees_what_was_committed_and_cannot_write(path: Path) -> None:
    database = Database(path)
    store = store_of(database)
    with StoreReader(path) as reader:
        assert reader.rows() == []
        submit(store, spec("a", user="ann"), spec("b", user="bob"), spec("a", script=SCRIPT))
        database.connection.execute("BEGIN IMMEDIATE")
        add_jobs(database.connection, [spec("unsaid")], 2.0)
        assert [job.spec.name for job in reader.rows()] == ["a", "b", "a"]
        database.connection.execute("ROLLBACK")
        assert [job.number for job in reader.rows(match=JobFilter(name="a"))] == [3, 1]
        assert [job.number for job in reader.rows(match=JobFilter("bob"))] == [2]
        assert [job.number for job in reader.rows(limit=2)] == [3, 2]
        assert reader.counts() == {State.PENDING: 3}
        third = reader.job(3)
        assert third is not None and third.spec == spec("a", script=SCRIPT)
        assert reader.job(4) is None
        store.write(JournalEntry(records=(JobRecord(2, State.FAILED, end_s=9.0),)))
        assert reader.counts() == {State.PENDING: 2, State.FAILED: 1}
        assert [job.number for job in reader.rows({State.FAILED})] == [2]
        assert reader.rows(set()) == []
        with pytest.raises(sqlite3.OperationalError):
            reader._own.execute("DELETE FROM jobs")
    database.close()


def test_a_script_is_kept_once() -> None:
    database = Database(None)
    submit(store_of(database), *(spec(str(i), script=SCRIPT) for i in range(20)))
    assert database.connection.execute("SELECT count(*) FROM scripts").fetchone() == (1,)
    assert SCRIPT not in str(database.connection.execute("SELECT spec FROM jobs").fetchall())
    database.close()
