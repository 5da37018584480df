"""A file is there whole or not at all, whatever fails while it is written."""

import errno
import os
import stat
from pathlib import Path
from typing import IO

import pytest

from dovetail.files.whole_file import PRIVATE, write_whole


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_text_bytes_and_a_stream_that_is_filled_are_written_alike(tmp_path: Path) -> None:
    def fill(stream: IO[bytes]) -> None:
        stream.write("hé".encode())

    for name, content in (("text", "hé"), ("bytes", "hé".encode()), ("filled", fill)):
        write_whole(tmp_path / name, content)
        assert (tmp_path / name).read_text(encoding="utf-8") == "hé"
    assert names(tmp_path) == ["bytes", "filled", "text"]


def test_an_older_file_stays_where_the_new_one_fails(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, "old")

    def fail(stream: IO[bytes]) -> None:
        stream.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(path, fail)
    assert path.read_text() == "old" and names(tmp_path) == ["file"]


def test_content_that_does_not_reach_the_disk_gets_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(tmp_path / "file", "new")
    assert names(tmp_path) == []
    write_whole(tmp_path / "file", "new", synced=False)
    assert names(tmp_path) == ["file"]


def test_the_folder_is_synced_after_the_name_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, bool]] = []

    def look(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        seen.append((is_folder, (tmp_path / "file").exists()))

    monkeypatch.setattr(os, "fsync", look)
    write_whole(tmp_path / "file", "new", folder_synced=True)
    assert seen == [(False, False), (True, True)]


def test_a_private_file_is_its_owners_alone_from_its_first_moment(tmp_path: Path) -> None:
    modes: list[int] = []

    def fill(stream: IO[bytes]) -> None:
        modes.append(stat.S_IMODE(os.fstat(stream.fileno()).st_mode))

    before = os.umask(0o022)
    try:
        write_whole(tmp_path / "private", fill, mode=PRIVATE)
        write_whole(tmp_path / "usual", fill)
    finally:
        os.umask(before)
    assert modes == [0o600, 0o644]
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o600


def test_a_link_in_place_of_the_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    (tmp_path / "file").symlink_to(target)
    write_whole(tmp_path / "file", "new")
    assert target.read_text() == "untouched"
    assert not (tmp_path / "file").is_symlink()


def test_a_name_as_long_as_a_file_system_takes_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    write_whole(path, "new")
    assert names(tmp_path) == [path.name]
