"""The last lines of a worker's output, where the reason of a failure usually is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

LAST_BYTES, LAST_LINES = 1 << 14, 60
"""A launcher (torchrun, accelerate) writes a page of its own after the error of its worker."""


def output_size(workdir: str, output: str) -> int:
    """Returns the offset at which a worker that starts now begins to write."""
    try:
        return os.stat(Path(workdir, output)).st_size
    except OSError:
        return 0


def last_lines(workdir: str, output: str, begin: int) -> str:
    """Returns the last lines from an offset on; empty if it is no regular file. Raises OSError.

    An earlier worker wrote the bytes before the offset.
    """
    file = os.open(
        Path(workdir, output), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    )
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            return ""
        # A file that was emptied since has new content from its beginning.
        begin = max(begin if begin <= status.st_size else 0, status.st_size - LAST_BYTES)
        text = os.pread(file, LAST_BYTES, begin)
    finally:
        os.close(file)
    return "\n".join(text.decode("utf-8", "replace").splitlines()[-LAST_LINES:])
