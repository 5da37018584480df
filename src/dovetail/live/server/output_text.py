"""Reads the output of a job piece by piece as text; its file may not exist yet."""

from __future__ import annotations

import codecs
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.live.system.private_file import open_owned

PIECE_BYTES = 1 << 16


class OutputReader:
    """Reads an output from its last `tail` lines on (-1: all), or from byte `begin` on (-1: unset).

    `begin` is an earlier value of `at`. Bytes that are not UTF-8 become the replacement character.
    Only a regular file is read: a FIFO or a device in its place would block the thread. With an
    `owner` (a uid) only a file of that user is: links in its path are the user's own choice.
    """

    def __init__(self, path: Path, tail: int = -1, begin: int = -1, owner: int = -1) -> None:
        self._path, self._owner = path, owner
        self._tail, self._begin = tail, begin
        self._file = -1
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __enter__(self) -> OutputReader:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def read(self) -> Iterator[str]:
        """Yields the text that was written since the last call. Raises InputError."""
        if self._file < 0 and not self._open():
            return
        if os.fstat(self._file).st_size < os.lseek(self._file, 0, os.SEEK_CUR):
            # Its owner has truncated it: read the new content from its beginning.
            os.lseek(self._file, 0, os.SEEK_SET)
        while piece := os.read(self._file, PIECE_BYTES):
            text = self._decoder.decode(piece)
            if text:
                yield text

    @property
    def at(self) -> int:
        """Returns the byte up to which text was returned, -1 without a file."""
        if self._file < 0:
            return -1
        unfinished, _ = self._decoder.getstate()
        return os.lseek(self._file, 0, os.SEEK_CUR) - len(unfinished)

    def rest(self) -> str:
        """Returns the text of an incomplete character at the end of the file."""
        return self._decoder.decode(b"", final=True)

    def _open(self) -> bool:
        if str(self._path) == os.devnull:
            return False
        try:
            file = open_owned(self._path, self._owner)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno == errno.EINVAL:
                raise InputError(str(self._path), "is no plain file") from None
            mend = "the controller may not: read it as its owner" if self._owner >= 0 else ""
            raise InputError(str(self._path), f"cannot be read: {error.strerror}", mend) from None
        self._file = file
        if self._begin >= 0:
            os.lseek(file, self._begin, os.SEEK_SET)
        elif self._tail >= 0:
            os.lseek(file, _start_of_tail(file, self._tail), os.SEEK_SET)
        return True


def _start_of_tail(file: int, lines: int) -> int:
    """Returns the byte at which the last lines begin, searched from the end piece by piece."""
    end = os.fstat(file).st_size
    if lines == 0:
        return end
    # A line end at the end of the file closes the last line and begins no other.
    wanted = lines + (os.pread(file, 1, end - 1) == b"\n" if end else 0)
    while end > 0:
        start = max(0, end - PIECE_BYTES)
        piece = os.pread(file, end - start, start)
        line_ends = piece.count(b"\n")
        if line_ends >= wanted:
            at = len(piece)
            for _ in range(wanted):
                at = piece.rindex(b"\n", 0, at)
            return start + at + 1
        wanted -= line_ends
        end = start
    return 0
