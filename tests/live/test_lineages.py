"""Lineages: a fresh start that leaves a copy out of reach gets checkpoints of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dovetail.live.controller.job_folders import JobFolders
from dovetail.live.edges.protocols import JournalEntry, StoreError
from dovetail.live.jobs.lineage import lineage_folder
from dovetail.live.jobs.record import JobRecord
from dovetail.live.store.folder import Folder
from dovetail.live.store.record_codec import record_of, record_text


class Kept:
    """A journal that remembers, and may fail."""

    def __init__(self) -> None:
        self.entries: list[JournalEntry] = []
        self.fails = False

    def write(self, entry: JournalEntry) -> None:
        if self.fails:
            raise StoreError("no space left on device")
        self.entries.append(entry)


class Home:
    """The folder of job 3, and what writes records."""

    def __init__(self, path: Path) -> None:
        folder, self.kept = Folder(path), Kept()
        folder.make()
        self.own = folder.make_job(3)
        self.folders = JobFolders(folder, self.kept)

    def save(self, lineage: int, *steps: int) -> None:
        for step in steps:
            path = lineage_folder(self.own, lineage) / f"checkpoint-{step:012d}.pt"
            path.write_text(f"step {step}")

    def has(self, lineage: int) -> list[int]:
        folder = lineage_folder(self.own, lineage)
        return sorted(int(p.stem.rpartition("-")[2]) for p in folder.glob("checkpoint-*.pt"))

    def write(self, lineage: int, *stranded: tuple[int, int]) -> None:
        record = JobRecord(3, lineage=lineage, stranded=stranded)
        self.folders.write(JournalEntry(records=(record,)))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_the_first_lineage_is_the_folder_of_the_job_as_in_older_homes(home: Home) -> None:
    home.save(0, 10)
    home.write(0)
    assert lineage_folder(home.own, 0) == home.own and os.listdir(home.own) == [
        "checkpoint-000000000010.pt"
    ]


def test_a_new_lineage_begins_from_the_newest_checkpoints_before_it(home: Home) -> None:
    home.save(0, 10, 20, 30)
    home.write(1, (7, 0))
    assert home.has(1) == [20, 30]
    # What the copy out of reach still writes is seen by nobody.
    home.save(0, 40)
    home.save(1, 35)
    home.write(1, (7, 0))
    assert (home.has(0), home.has(1)) == ([10, 20, 30, 40], [20, 30, 35])


def test_what_a_copy_out_of_reach_removes_stays_in_the_new_lineage(home: Home) -> None:
    home.save(0, 20, 30)
    home.write(1, (7, 0))
    for path in home.own.glob("checkpoint-*.pt"):
        path.unlink()
    newest = lineage_folder(home.own, 1) / "checkpoint-000000000030.pt"
    assert home.has(1) == [20, 30] and newest.read_text() == "step 30"


def test_a_lineage_that_never_came_on_record_is_prepared_anew(home: Home) -> None:
    """Else a later lineage of that number would begin from a checkpoint of long ago."""
    home.save(0, 10)
    home.kept.fails = True
    with pytest.raises(StoreError):
        home.write(1, (7, 0))
    assert not lineage_folder(home.own, 1).exists()
    home.kept.fails = False
    home.save(0, 500)
    home.write(1, (7, 0))
    assert home.has(1) == [10, 500]


def test_no_record_of_a_lineage_is_written_that_cannot_be_prepared(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, *rest: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", full)
        with pytest.raises(StoreError, match="lineage 1 of job 3 cannot be made"):
            home.write(1, (7, 0))
    assert home.kept.entries == []
    home.write(1, (7, 0))
    assert len(home.kept.entries) == 1


def test_a_file_system_without_hard_links_gets_copies(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*paths: object) -> None:
        raise OSError(95, "Operation not supported")

    home.save(0, 10)
    monkeypatch.setattr(os, "link", no_links)
    home.write(1, (7, 0))
    assert home.has(1) == [10]


def test_old_lineages_go_when_nobody_can_write_to_them(home: Home) -> None:
    home.save(0, 10)
    (home.own / "out").write_text("what it printed")
    home.write(1, (7, 0))
    home.save(1, 20)
    home.write(2, (7, 0), (8, 1))
    assert (home.has(0), home.has(1), home.has(2)) == ([10], [10, 20], [10, 20])
    home.write(2, (7, 0))
    assert not lineage_folder(home.own, 1).exists() and home.has(0) == [10]
    home.write(2)
    assert (home.has(0), home.has(2)) == ([], [10, 20])
    assert (home.own / "out").read_text() == "what it printed"


def test_records_of_older_releases_have_no_lineage_and_such_records_are_read_again() -> None:
    old = record_of('{"job":3,"state":"RUNNING"}')
    assert (old.lineage, old.nodes, old.stranded) == (0, (), ())
    record = JobRecord(3, nodes=(1, 4), lineage=2, stranded=((1, 0), (4, 1)))
    assert record_of(record_text(record)) == record
    assert record_text(JobRecord(3)) == '{"job":3}'
