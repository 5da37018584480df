"""A backup is whole at any time, and has what a cluster needs to start elsewhere."""

from __future__ import annotations

import json
import shutil
import sqlite3
import stat
import subprocess
import threading
from contextlib import closing
from pathlib import Path

import pytest

from dovetail.core.errors import InputError
from dovetail.live.edges.protocols import BACKUP
from dovetail.live.join.identity import ControllerIdentity
from dovetail.live.join.shared_folder import declare
from dovetail.live.store.backup import restore_backup, write_backup
from dovetail.live.store.database import Database
from dovetail.live.store.folder import Folder
from dovetail.live.store.queries import Queries, StoreReader
from dovetail.live.store.store import Store, add_jobs
from dovetail.wire.spec import JobSpec
from store_reads import all_jobs

PAIR = 2
"""Jobs of one transaction: no backup has half of one."""


def submit(store: Store, number: int) -> None:
    specs = [JobSpec(f"{number}-{half}", ("true",), "/") for half in range(PAIR)]
    store.committer.do(lambda db: add_jobs(db, specs, float(number)))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A cluster that has run, with two jobs, a token, options and a cluster file."""
    made = Folder(tmp_path / "home")
    made.make()
    made.token()
    (tmp_path / "site.toml").write_text("[queues.prod]\n")
    options = {"policy": "tenancy", "cluster": str(tmp_path / "site.toml")}
    (made.home / "up.json").write_text(json.dumps(options))
    database = Database(made.store)
    store = Store(database, Queries(database.connection))
    store.recover()
    submit(store, 1)
    database.close()
    return made


def test_a_backup_that_is_restored_has_every_job_and_every_file(
    folder: Folder, tmp_path: Path
) -> None:
    target = tmp_path / "backup.db"
    made = write_backup(folder, target)
    assert (made.jobs, made.files) == (2, ("token", "up.json", "cluster.toml"))
    assert made.bytes == target.stat().st_size
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    other = Folder(tmp_path / "elsewhere")
    restored = restore_backup(target, other)
    assert restored == made
    assert other.token() == folder.token()
    assert (other.home / "cluster.toml").read_text() == "[queues.prod]\n"
    assert json.loads((other.home / "up.json").read_text()) == {
        "policy": "tenancy",
        "cluster": str(other.home / "cluster.toml"),
    }
    with StoreReader(folder.store) as ours, StoreReader(other.store) as theirs:
        assert list(all_jobs(ours)) == list(all_jobs(theirs))
        assert not ours.meta(BACKUP) and float(theirs.meta(BACKUP) or 0) > 1e9
    assert list(tmp_path.glob(".backup*")) == []


def test_a_backup_has_what_agents_know_the_controller_by(folder: Folder, tmp_path: Path) -> None:
    shared = tmp_path / "jobs"
    shared.mkdir(mode=0o700)
    declare(folder.home, shared)
    pytest.importorskip("cryptography")
    identity = ControllerIdentity.of(folder.home / "gate")
    for name in ("join", "nodes"):
        (folder.home / name).mkdir(mode=0o700, exist_ok=True)
    (folder.home / "nodes" / "registry.json").write_text("[]")
    (folder.home / "join" / "n1").write_text("a word")
    (folder.home / "join" / ".draft").write_text("no name of a node")
    target, other = tmp_path / "b.db", Folder(tmp_path / "elsewhere")
    write_backup(folder, target)
    restored = restore_backup(target, other).files
    again = ControllerIdentity.of(other.home / "gate")
    assert (again.fingerprint, again.secret) == (identity.fingerprint, identity.secret)
    assert (other.home / "join" / "n1").read_text() == "a word"
    assert "nodes/registry.json" in restored and "join/.draft" not in restored
    assert Folder(other.home).jobs == shared
    modes = {stat.S_IMODE(path.stat().st_mode) for path in other.home.rglob("*")}
    assert modes == {0o700, 0o600}


def test_backups_while_a_controller_writes_have_whole_transactions(
    folder: Folder, tmp_path: Path
) -> None:
    written = threading.Event()
    enough = threading.Event()

    def write() -> None:
        database = Database(folder.store)
        store = Store(database, Queries(database.connection))
        number = 2
        while not enough.is_set():
            submit(store, number)
            number += 1
            if number > 20:
                written.set()
        database.close()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        written.wait()
        seen = []
        for _ in range(10):
            write_backup(folder, tmp_path / "b.db")
            with StoreReader(tmp_path / "b.db") as reader:
                reader.check()
                seen.append([job.number for job in all_jobs(reader)])
    finally:
        enough.set()
        writer.join()
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in seen)
    assert all(len(numbers) % PAIR == 0 for numbers in seen)
    assert seen == sorted(seen, key=len) and len(seen[0]) >= 20 * PAIR - PAIR


def test_an_older_backup_is_replaced_and_no_other_file_is(folder: Folder, tmp_path: Path) -> None:
    target, notes = tmp_path / "b.db", tmp_path / "notes.txt"
    write_backup(folder, target)
    first = target.stat().st_ino
    write_backup(folder, target)
    assert target.stat().st_ino != first
    notes.write_text("mine")
    for path in (notes, tmp_path):
        with pytest.raises(InputError, match="is no backup"):
            write_backup(folder, path)
    assert notes.read_text() == "mine"
    with pytest.raises(InputError, match="own folder"):
        write_backup(folder, folder.home / "b.db")
    with pytest.raises(InputError, match="No such file"):
        write_backup(folder, tmp_path / "missing" / "b.db")


def test_a_damaged_store_gives_no_backup_and_leaves_the_older_one(
    folder: Folder, tmp_path: Path
) -> None:
    target = tmp_path / "b.db"
    write_backup(folder, target)
    before = target.read_bytes()
    with closing(sqlite3.connect(folder.store)) as db, db:
        db.execute("DROP INDEX jobs_by_state")
        db.execute("DROP TRIGGER job_added")
    with pytest.raises(InputError, match="damaged"):
        write_backup(folder, target)
    assert target.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.db", "home", "site.toml"]


def test_a_folder_with_a_store_is_never_overwritten(folder: Folder, tmp_path: Path) -> None:
    target = tmp_path / "b.db"
    write_backup(folder, target)
    before = folder.store.read_bytes()
    with pytest.raises(InputError, match="there is a store already"):
        restore_backup(target, folder)
    assert folder.store.read_bytes() == before
    # A log beside a store that is gone belongs to that one, and would be read into this one.
    for path in folder.home.glob("store.db*"):
        path.unlink()
    log = folder.store.with_name("store.db-wal")
    log.write_bytes(b"old")
    with pytest.raises(InputError, match=r"store\.db-wal"):
        restore_backup(target, folder)
    log.unlink()
    restore_backup(target, folder)


def test_only_a_whole_backup_is_restored(folder: Folder, tmp_path: Path) -> None:
    other = Folder(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="not a backup"):
        restore_backup(folder.store, other)
    target = tmp_path / "b.db"
    write_backup(folder, target)
    content = bytearray(target.read_bytes())
    content[4096 * 2 : 4096 * 4] = bytes(4096 * 2)
    target.write_bytes(content)
    with pytest.raises(InputError):
        restore_backup(target, other)
    assert not other.store.exists()


@pytest.mark.skipif(shutil.which("bindfs") is None, reason="needs bindfs, as root")
def test_a_home_on_a_real_fuse_mount_is_refused(folder: Folder, tmp_path: Path) -> None:
    write_backup(folder, tmp_path / "b.db")
    mounted = tmp_path / "mounted"
    for path in (mounted, tmp_path / "behind"):
        path.mkdir(mode=0o700)
    if subprocess.run(["bindfs", tmp_path / "behind", mounted]).returncode:
        pytest.skip("no FUSE mount is possible here")
    try:
        with pytest.raises(InputError, match=r"network file system \(fuse"):
            restore_backup(tmp_path / "b.db", Folder(mounted / "home"))
        assert list(mounted.iterdir()) == []
    finally:
        subprocess.run(["umount", mounted], check=True)
