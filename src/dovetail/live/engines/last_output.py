"""The last lines of a worker's output, where the reason of a failure usually is."""

from __future__ import annotations

import os
from pathlib import Path

from dovetail.live.system.private_file import open_owned

LAST_BYTES, LAST_LINES = 1 << 14, 60
"""A launcher (torchrun, accelerate) writes a page of its own after the error of its worker."""


def output_size(workdir: str, output: str) -> int:
    """Returns the offset at which a worker that starts now begins to write."""
    try:
        return os.stat(Path(workdir, output)).st_size
    except OSError:
        return 0


def last_lines(workdir: str, output: str, begin: int, owner: int = -1) -> str:
    """Returns the last lines from an offset on. Raises OSError, also if it is no plain file.

    An earlier worker wrote the bytes before the offset. With an `owner` (a uid) only a file of that
    user is read.
    """
    file = open_owned(Path(workdir, output), owner)
    try:
        size = os.fstat(file).st_size
        # A file that was emptied since has new content from its beginning.
        begin = max(begin if begin <= size else 0, size - LAST_BYTES)
        text = os.pread(file, LAST_BYTES, begin)
    finally:
        os.close(file)
    return "\n".join(text.decode("utf-8", "replace").splitlines()[-LAST_LINES:])
