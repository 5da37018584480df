"""A backup of a cluster: one file, from which it can be brought up on another machine.

It is a store, copied in one read while the controller goes on writing, with the other files of the
cluster's folder in it. What jobs wrote is not: that is in their folders.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import time

from dovetail.core.errors import InputError
from dovetail.files.whole_file import PRIVATE, write_whole
from dovetail.live.edges.protocols import BACKUP
from dovetail.live.join.shared_folder import FILE as SHARED
from dovetail.live.join.word import NAME
from dovetail.live.store.database import APPLICATION, UNREADABLE, unreadable
from dovetail.live.store.folder import Folder
from dovetail.live.store.queries import StoreReader
from dovetail.live.system.file_system import check_local
from dovetail.live.system.private_file import is_below, make_private_folder, open_private

FILES = "backup files"
"""The name in the store of a backup of the other files of the cluster's folder."""
JOIN = "join"
IN_BACKUP = (
    *("token", "up.json", SHARED, "client", "nodes/registry.json", "nodes/allocation.json"),
    *("gate/cert.pem", "gate/key.pem", "gate/secret", "gate/port"),
)
"""The files of a cluster's folder that a backup has beside the store, and join words: without them
agents would not know the restored controller, nor it their numbers."""
OPTIONS, CLUSTER = "up.json", "cluster.toml"


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup has: its size and jobs, the cluster's time, and the files beside the store."""

    bytes: int
    jobs: int
    now_s: float
    files: tuple[str, ...]


def write_backup(folder: Folder, target: Path) -> Backup:
    """Writes a backup, in place of an older one, and returns what it has.

    A controller may run meanwhile. Raises InputError; then an older backup is as it was.
    """
    target = target.expanduser().absolute()
    _check_target(folder, target)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    try:
        os.close(open_private(draft, os.O_RDWR | os.O_EXCL))
        _copy(folder, draft)
        with StoreReader(draft) as reader:
            reader.check()
            jobs, now_s = sum(reader.counts().values()), reader.last_s()
            files = tuple(_files_in(reader, draft))
        descriptor = os.open(draft, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        size = draft.stat().st_size
        draft.replace(target)
    except OSError as error:
        raise InputError(str(target), f"cannot be written: {error.strerror}") from None
    finally:
        for left in (draft, Path(f"{draft}-journal")):
            left.unlink(missing_ok=True)
    return Backup(size, jobs, now_s, files)


def restore_backup(source: Path, folder: Folder) -> Backup:
    """Makes the folder of a cluster from a backup. Raises InputError unless it has no store yet."""
    check_local(folder.home)
    with StoreReader(source) as reader:
        if not reader.meta(BACKUP):
            raise InputError(
                str(source), "is a store that is in use, not a backup", "see `dovetail backup`"
            )
        reader.check()
        files = _files_in(reader, source)
        jobs, now_s = sum(reader.counts().values()), reader.last_s()
    folder.make()
    _check_empty(folder)
    lock = folder.lock()
    try:
        for name, text in _moved(files, folder.home).items():
            make_private_folder((folder.home / name).parent)
            write_whole(folder.home / name, text, mode=PRIVATE)
        # Last: before it is there, no controller starts from half of a backup.
        write_whole(folder.store, source.read_bytes(), mode=PRIVATE, folder_synced=True)
    except OSError as error:
        raise InputError(str(folder.home), f"cannot be written: {error.strerror}") from None
    finally:
        lock.release()
    return Backup(folder.store.stat().st_size, jobs, now_s, tuple(files))


def _check_empty(folder: Folder) -> None:
    """Raises InputError if there is a store, or the log of one, which would be read into it."""
    for name in ("", "-wal", "-shm", "-journal"):
        there = folder.store.with_name(folder.store.name + name)
        if there.exists():
            mend = "move all store.db* away, or choose an empty folder: --home"
            raise InputError(str(there), "there is a store already", mend)


def _check_target(folder: Folder, target: Path) -> None:
    if is_below(target, folder.home):
        raise InputError(str(target), "is in the cluster's own folder", "choose another disk")
    try:
        is_file, has = target.is_file(), target.exists()
        header = b""
        if is_file:
            with target.open("rb") as file:
                header = file.read(72)
    except OSError as error:
        raise InputError(str(target), f"cannot be read: {error.strerror}") from None
    # https://www.sqlite.org/fileformat.html: bytes 68 to 71 are the application id.
    if has and header[68:72] != APPLICATION.to_bytes(4, "big"):
        raise InputError(str(target), "exists and is no backup", "choose another name")


def _copy(folder: Folder, draft: Path) -> None:
    """Copies the store in one read transaction, and adds what makes it a backup."""
    files = _files_of(folder)
    taken_s = time()
    with StoreReader(folder.store) as reader, closing(sqlite3.connect(draft)) as copy:
        try:
            reader.copy_to(copy)
            # A backup is one file, that any file system can keep: no log beside it.
            copy.execute("PRAGMA journal_mode=DELETE")
            with copy:
                values = ((BACKUP, repr(taken_s)), (FILES, json.dumps(files)))
                copy.executemany("INSERT OR REPLACE INTO meta(name, value) VALUES (?, ?)", values)
        except UNREADABLE as error:
            raise unreadable(str(draft), error) from None


def _files_of(folder: Folder) -> dict[str, str]:
    """Returns the texts of the files that a cluster is started with."""
    files = {}
    words = sorted(f"{JOIN}/{path.name}" for path in (folder.home / JOIN).glob("*"))
    for name in (*IN_BACKUP, *filter(_is_word, words)):
        try:
            files[name] = (folder.home / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise InputError(str(folder.home / name), f"cannot be read: {error}") from None
    cluster = _options(files).get("cluster")
    if isinstance(cluster, str) and cluster:
        try:
            files[CLUSTER] = Path(cluster).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            mend = "put it back, or `dovetail up` with another --cluster"
            raise InputError(cluster, f"cannot be read: {error}", mend) from None
    return files


def _moved(files: Mapping[str, str], home: Path) -> dict[str, str]:
    """Returns the files as another folder has them: its options name the cluster's file there."""
    moved = dict(files)
    if CLUSTER in files:
        options = _options(files) | {"cluster": str(home / CLUSTER)}
        moved[OPTIONS] = json.dumps(options, indent=1) + "\n"
    return moved


def _options(files: Mapping[str, str]) -> dict[str, object]:
    """Returns the options of the last start, none if they are damaged: `up` will say so."""
    try:
        options = json.loads(files.get(OPTIONS, "{}"))
    except ValueError:
        return {}
    return options if isinstance(options, dict) else {}


def _is_word(name: str) -> bool:
    """True for the file of a node's join word."""
    folder, _, node = name.partition("/")
    return folder == JOIN and NAME.fullmatch(node) is not None


def _files_in(reader: StoreReader, path: Path) -> dict[str, str]:
    """Returns the other files in a backup. Raises InputError if their list is damaged."""
    try:
        files = json.loads(reader.meta(FILES) or "{}")
        # Only by their names: a backup writes nothing else into a folder.
        known = [*IN_BACKUP, CLUSTER, *filter(_is_word, files)]
        return {name: str(files[name]) for name in known if name in files}
    except (ValueError, TypeError):
        raise InputError(str(path), "its list of files is damaged", "use another backup") from None
