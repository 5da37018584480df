"""The last lines of a worker's output, where the reason of a failure usually is."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Mapping
from pathlib import Path

from dovetail.live.node.launcher import NEVER_RUNS, WorkerExit
from dovetail.live.system.bounded_wait import BoundedWait
from dovetail.wire.out_of_memory import tells_of_no_room

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


def why_not_executed(folder: Path, io: BoundedWait) -> str:
    """Returns why the runtime of a container could not start it, empty if it did."""
    try:
        order = json.loads((folder / "order.json").read_bytes())
        if not order.get("began") or Path(order["began"]).exists():
            return ""
        text = _last_lines_of(order, io)
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return f"the container was not started: {(text.splitlines() or ['no reason was given'])[-1]}"


def found_no_room(folder: Path, end: WorkerExit, io: BoundedWait) -> bool:
    """True if a worker failed for want of GPU memory, by the last lines of its output."""
    if end.why or end.exit_code in (0, *NEVER_RUNS, -signal.SIGKILL, -signal.SIGTERM):
        return False
    try:
        order = json.loads((folder / "order.json").read_bytes())
        text = _last_lines_of(order, io)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return tells_of_no_room(text)


def _last_lines_of(order: Mapping[str, str], io: BoundedWait) -> str:
    """Returns the last lines of a worker's output. Raises OSError, also where it hangs."""
    begin = int(order["output_from"])
    return io.call(lambda: last_lines(order["workdir"], order["output"], begin))
