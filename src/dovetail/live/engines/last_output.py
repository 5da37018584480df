"""The last lines of a worker's output, where the reason of a failure usually is."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from dovetail.live.node.launcher import NEVER_RUNS, WorkerExit
from dovetail.live.system.bounded_wait import BoundedWait
from dovetail.live.system.private_file import open_owned
from dovetail.wire.out_of_memory import tells_of_no_room

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


def why_not_executed(folder: Path, io: BoundedWait) -> str:
    """Returns why the runtime of a container could not start it, empty if it did."""
    try:
        order = json.loads((folder / "order.json").read_bytes())
        if not order.get("began") or Path(order["began"]).exists():
            return ""
        text = _last_lines_of(folder, io)
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return f"the container was not started: {(text.splitlines() or ['no reason was given'])[-1]}"


def found_no_room(folder: Path, end: WorkerExit, io: BoundedWait) -> bool:
    """True if a worker failed for want of GPU memory, by the last lines of its output."""
    if end.why or end.exit_code in (0, *NEVER_RUNS, -signal.SIGKILL, -signal.SIGTERM):
        return False
    try:
        text = _last_lines_of(folder, io)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return tells_of_no_room(text)


def _last_lines_of(folder: Path, io: BoundedWait) -> str:
    """Returns the last lines of a worker's output. Raises OSError, also where it hangs."""
    order = json.loads((folder / "order.json").read_bytes())
    owner = int(order.get("run_as", {}).get("uid", -1))
    begin = int(order["output_from"])
    return io.call(lambda: last_lines(order["workdir"], order["output"], begin, owner))
