"""The log of a process of ours: one file, and the one before it, each of bounded size."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

from dovetail.live.system.private_file import open_private

LOG_BYTES_MAX = 16 << 20
"""From this size on a log is continued in a new file; with the one before it, it has twice that."""


def rotate(log: Path, most_bytes: int = LOG_BYTES_MAX) -> bool:
    """Renames a log that is too large to `NAME.1`, in place of an older one."""
    with suppress(OSError):
        if log.stat().st_size >= most_bytes:
            os.replace(log, log.with_name(f"{log.name}.1"))
            return True
    return False


def continue_log(log: Path, most_bytes: int = LOG_BYTES_MAX) -> None:
    """Lets this process write on to a new file if its log is too large.

    Does nothing in a process whose output goes elsewhere, as to a terminal.
    """
    with suppress(OSError):
        here, there = os.fstat(2), log.stat()
        is_ours = (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
        if is_ours and rotate(log, most_bytes):
            out = open_private(log, os.O_WRONLY | os.O_APPEND)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.close(out)


class LogLimit(logging.Filter):
    """Keeps the log of a process bounded, looking at each record."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log

    def filter(self, record: logging.LogRecord) -> bool:
        """Continues the log in a new file if it is too large; lets every record pass."""
        continue_log(self._log)
        return True
