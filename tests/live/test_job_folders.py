"""A job's script is there before a worker can be told to run it, also after a full disk."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from dovetail.live.controller.job_folders import JobFolders
from dovetail.live.edges.protocols import JournalEntry, StoreError
from dovetail.live.store.folder import Folder
from dovetail.wire.spec import JobSpec

SPEC = JobSpec(name="a", command=(), script="#!/bin/sh\ntrue\n", workdir="/")


class Kept:
    """A journal that remembers."""

    def __init__(self) -> None:
        self.entries: list[JournalEntry] = []

    def write(self, entry: JournalEntry) -> None:
        self.entries.append(entry)


def scene(tmp_path: Path) -> tuple[Folder, Kept, JobFolders]:
    folder, kept = Folder(tmp_path / "home"), Kept()
    folder.make()
    return folder, kept, JobFolders(folder, kept)


def fail(patch: pytest.MonkeyPatch, why: int) -> None:
    def keep_script(self: Folder, number: int, script: str) -> Path:
        raise OSError(why, os.strerror(why))

    patch.setattr(Folder, "keep_script", keep_script)


def test_a_launch_finds_its_script(tmp_path: Path) -> None:
    folder, kept, folders = scene(tmp_path)
    launch = folders.launch(3, SPEC)
    script = folder.job(3) / "script"
    assert launch.command == ("/bin/sh", str(script))
    assert script.read_text() == SPEC.script and script.stat().st_mode & 0o777 == 0o700
    folders.write(JournalEntry())
    assert len(kept.entries) == 1


def test_no_order_goes_out_before_a_script_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, kept, folders = scene(tmp_path)
    with monkeypatch.context() as patch:
        fail(patch, errno.ENOSPC)
        folders.launch(3, SPEC)
        for _ in range(2):
            with pytest.raises(StoreError, match="job 3"):
                folders.write(JournalEntry())
    assert kept.entries == []
    folders.write(JournalEntry())
    assert (folder.job(3) / "script").read_text() == SPEC.script and len(kept.entries) == 1


def test_a_folder_that_can_never_be_written_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, kept, folders = scene(tmp_path)
    fail(monkeypatch, errno.EACCES)
    folders.launch(3, SPEC)
    folders.write(JournalEntry())
    assert len(kept.entries) == 1


def test_no_inodes_left_is_told_apart_from_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _, folders = scene(tmp_path)
    room = os.statvfs(tmp_path)
    fail(monkeypatch, errno.ENOSPC)
    folders.launch(3, SPEC)
    for favail, said in (
        (0, f"no inodes are left on the file system of {folder.home}"),
        (9, "No s"),
    ):
        counts = SimpleNamespace(f_files=room.f_files or 9, f_favail=favail)
        monkeypatch.setattr(os, "statvfs", lambda path, counts=counts: counts)
        with pytest.raises(StoreError, match=f"job 3 cannot be made: {said}"):
            folders.write(JournalEntry())
