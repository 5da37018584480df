"""Bounds the output of jobs that goes to the cluster's folder: one that writes without end must
not fill the disk.

The workers of a job have its file open, so it cannot be renamed. As logrotate's `copytruncate`
does, the newest part is copied to `output.log.1` and the file begins anew, with a line that says
so; what workers write between the two is lost. In a thread: copying takes longer than a turn of
the agent. A file that the owner chose with --output is left alone.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from dovetail.live.system.private_file import open_owned

LOG = logging.getLogger(__name__)
LOOK_S = 1.0
PIECE_BYTES = 1 << 20


class OutputBound:
    """Looks at the sizes of files every second, and shortens those that are too large.

    Each file comes with the uid whose it must be, -1 if it is our own.
    """

    def __init__(self, most_bytes: Callable[[], int]) -> None:
        self._most_bytes = most_bytes
        self._look_s = time.monotonic()
        self._thread: threading.Thread | None = None

    def tick(self, files: Callable[[], Mapping[Path, int]]) -> None:
        """Begins to shorten the files that are too large, unless that is under way."""
        now = time.monotonic()
        if now < self._look_s or (self._thread is not None and self._thread.is_alive()):
            return
        self._look_s = now + LOOK_S
        outputs = files()
        most_bytes = self._most_bytes() if outputs else 0
        if most_bytes:
            self._thread = threading.Thread(
                target=_shorten_all, args=(outputs, most_bytes), name="output", daemon=True
            )
            self._thread.start()


def _size(file: Path) -> int:
    try:
        return file.lstat().st_size
    except OSError:
        return 0


def _shorten_all(files: Mapping[Path, int], most_bytes: int) -> None:
    for file, owner in sorted(files.items()):
        try:
            if _size(file) > most_bytes:
                shorten(file, most_bytes, owner)
        except OSError as error:
            LOG.warning("%s is too large and could not be shortened: %s", file, error.strerror)


def shorten(file: Path, most_bytes: int, owner: int = -1) -> None:
    """Moves the newest half of what a file may have to `NAME.1`, and empties it. Raises OSError.

    Where there is no room for the copy, the file is emptied all the same. With an `owner` only a
    file of that user is touched, and the copy is theirs: they choose what is in its folder.
    """
    descriptor = open_owned(file, owner, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
    try:
        older = file.with_name(f"{file.name}.1")
        begin = max(0, os.fstat(descriptor).st_size - most_bytes // 2)
        kept = f"its newest part until here is in {older.name}"
        try:
            _copy(descriptor, begin, most_bytes, older, owner)
        except OSError as error:
            with suppress(OSError):
                older.unlink()
            kept = f"nothing before this is kept: {error.strerror}"
        os.ftruncate(descriptor, 0)
        size = f"{most_bytes / 2**20:.6g} MiB"
        os.write(descriptor, f"[dovetail: the output exceeded {size}; {kept}]\n".encode())
    finally:
        os.close(descriptor)


def _copy(descriptor: int, begin: int, most_bytes: int, target: Path, owner: int) -> None:
    # Bounded as well: a program may write as fast as this reads.
    end = begin + most_bytes
    # A new file: what has the name may be a link to another.
    target.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(target, flags, 0o600), "wb") as out:
        if owner >= 0:
            os.fchown(out.fileno(), owner, -1)
            os.fchmod(out.fileno(), 0o640)
        while piece := os.pread(descriptor, min(PIECE_BYTES, end - begin), begin):
            out.write(piece)
            begin += len(piece)
