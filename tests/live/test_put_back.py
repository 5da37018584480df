"""After an old backup was put back nothing has two copies, and no number is used twice."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from harness.mutations import who_left_is_done
from harness.partitions import parted
from harness.put_back import PutBack
from harness.stage import folder_in_memory
from harness.story import Story, story
from live_stage import RULES, Stage

from dovetail.live.edges.protocols import BACKUP
from dovetail.live.jobs.lifecycle import State
from dovetail.live.store.database import Database
from dovetail.live.store.queries import Queries
from dovetail.live.store.restored import ROUND, SKIPPED
from dovetail.live.store.store import EPOCHS, Store

BLOCK = 40
ONCE_BROKEN = (428, 429, 556, 795)
"""Stories beyond that block of which one kind broke a rule when it was first played."""


def told(tale: Story, seed: int) -> str:
    rng = Random(f"put back {seed}")
    backup_s = rng.uniform(0.5, 50.0)
    lost_s = backup_s + rng.choice((0.0, 1.0, 10.0, 40.0)) * rng.random()
    with tempfile.TemporaryDirectory(prefix="dovetail-", dir=folder_in_memory()) as folder:
        scene = PutBack(tale, Path(folder) / "store.db", backup_s=backup_s, lost_s=lost_s)
        outcome = scene.play()
    return "\n".join((f"seed {seed}", *outcome.wrong, *outcome.tale)) if outcome.wrong else ""


@pytest.mark.parametrize("kind", [parted, story])
def test_no_job_has_two_copies_after_an_old_backup_was_put_back(kind: object) -> None:
    assert callable(kind)
    for seed in range(BLOCK):
        assert not (text := told(kind(seed), seed)), text


def test_no_story_that_once_broke_a_rule_does_so_again() -> None:
    for seed in ONCE_BROKEN:
        assert not (text := told(parted(seed), seed)), text
        assert not (text := told(story(seed), seed)), text


def test_the_stories_find_work_that_is_taken_for_done(monkeypatch: pytest.MonkeyPatch) -> None:
    who_left_is_done(monkeypatch)
    assert "its work is not done" in told(story(795), 795)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(1, 26))
def test_nor_in_many_more_stories(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        assert not (text := told(parted(seed), seed)), text
        assert not (text := told(story(seed), seed)), text


def copied(stage: Stage, taken_s: float = 1000.0) -> Database:
    """A backup of the store of a stage, as it is when it is put back."""
    copy = Database(None)
    stage.database.connection.backup(copy.connection)
    with copy.connection as db:
        db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (BACKUP, repr(taken_s)))
    return copy


def put_back(stage: Stage, backup: Database) -> None:
    stage.database = backup
    stage.store = Store(backup, Queries(backup.connection))
    stage.orders.clear()


def test_workers_that_a_fresh_backup_knows_train_on() -> None:
    s = Stage("fifo", nodes=1, gpus=2)
    s.submit(1.0, gpus=2, duration_s=30.0)
    s.play(5.0)
    put_back(s, copied(s))
    s.play(60.0)
    assert s.starts(1) == [], "no worker was started anew"
    assert s.record(1).state is State.COMPLETED
    assert s.record(1).end_s == pytest.approx(31.0, abs=1.0)


def test_a_job_that_started_after_the_backup_ends_there_and_starts_anew() -> None:
    s = Stage("fifo", nodes=1, gpus=1)
    s.submit(1.0, duration_s=5.0)
    s.submit(1.5, duration_s=20.0)
    backups: list[Database] = []
    s.at(4.0, lambda: backups.append(copied(s)))
    s.play(10.0)
    assert s.record(2).state is State.RUNNING
    put_back(s, backups[0])
    s.play(80.0)
    # Job 1 had ended since: it runs once more. Job 2 gets a number that no agent has heard of.
    assert s.states() == {1: State.COMPLETED, 2: State.COMPLETED}
    assert [number >= SKIPPED for number, _, _ in s.starts(2)] == [True]


def test_a_job_submitted_after_the_backup_is_ended_and_its_number_is_not_given_again() -> None:
    s = Stage("fifo", nodes=1, gpus=1)
    s.play(1.0)
    backup = copied(s)
    s.submit(1.5, duration_s=500.0)
    s.play(5.0)
    put_back(s, backup)
    s.submit(6.0, duration_s=5.0)
    s.play(40.0)
    (number,) = s.states()
    assert number % ROUND == 0 and s.record(number).state is State.COMPLETED
    assert [order.end.job for _, _, order in s.orders if order.end is not None] == [1]


def test_a_silent_node_may_have_any_job_until_its_lease_is_over() -> None:
    rules = replace(
        RULES, leases_s=(60.0, 60.0), lease_grace_s=5.0, lease_margin_s=5.0, clock_drift=0.0
    )
    s = Stage("fifo", nodes=2, gpus=1, rules=rules)
    s.play(1.0)
    s.submit(1.5, duration_s=10.0)
    backups: list[Database] = []
    s.at(1.6, lambda: backups.append(copied(s)))
    s.play(4.0)
    # It runs on node 0, by an order that the backup has not, and node 0 is cut off.
    s.deaf.add(0)
    put_back(s, backups[0])
    s.play(30.0)
    assert {m.node for m in s.record(1).members} == {0} and s.starts(1) == []
    s.play(120.0)
    assert [node for _, node, _ in s.starts(1)] == [1]
    assert s.record(1).state is State.COMPLETED


def test_the_epoch_is_above_that_of_any_controller_that_the_backup_does_not_know() -> None:
    s = Stage("fifo")
    s.play(1.0)
    backup = copied(s)
    for until in (2.0, 3.0, 4.0):
        s.play(until)
    newest = s.store.recover().epoch
    twin = Database(None)
    backup.connection.backup(twin.connection)
    put_back(s, backup)
    first = s.store.recover().epoch
    assert first > newest + 1_000_000
    put_back(s, twin)
    # Not even two controllers from one backup have the same, but for those of one millisecond.
    assert s.store.recover().epoch >= first


def test_a_controller_that_is_killed_before_its_first_entry_leaves_a_backup_put_back() -> None:
    s = Stage("fifo")
    s.submit(1.0, duration_s=50.0)
    s.play(5.0)
    put_back(s, copied(s))
    first = s.store.recover()
    assert dict(first.meta)[BACKUP]
    s.play(6.0)
    meta = dict(s.store.recover().meta)
    assert meta[BACKUP] == ""
    epochs = [int(meta[name]) for name in EPOCHS]
    assert s.store.recover().epoch == epochs[0] + 1


def test_an_ordinary_store_skips_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path / "store.db")
    store = Store(database, Queries(database.connection))
    assert [store.recover().epoch for _ in range(2)] == [1, 2]
    with closing(sqlite3.connect(tmp_path / "store.db")) as db:
        assert [name for (name,) in db.execute("SELECT name FROM meta")] == list(EPOCHS)
    database.close()
