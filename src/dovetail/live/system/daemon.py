"""A process in the background that reports when it is ready, and its log."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.system.log_file import continue_log
from dovetail.live.system.private_file import open_private

RUNS_ALREADY = "agents run here already"


def detach(log_file: Path, serve: Callable[[Callable[[], None]], None]) -> None:
    """Serves in a new process, and returns when that process is ready. Raises DovetailError."""
    read_end, write_end = os.pipe()
    if os.fork():
        os.close(write_end)
        with os.fdopen(read_end, "rb") as reports:
            message = reports.read().decode("utf-8", "replace")
        if message != "ready":
            raise DovetailError(message or f"the agents failed to start; see {log_file}")
        return
    os.close(read_end)
    os.setsid()

    pipe = os.fdopen(write_end, "wb")

    def ready() -> None:
        pipe.write(b"ready")
        pipe.close()

    code, failure = 1, ""
    try:
        _redirect(log_file)
        _LOGS.append(log_file)
        serve(ready)
        code = 0
    except DovetailError as error:
        failure = str(error)
        log(f"cannot run: {failure}")
    except SystemExit:
        # SIGTERM: the workers of this machine continue, and a later agent adopts them.
        code = 0
    except BaseException as error:
        import traceback

        traceback.print_exc()
        failure = f"{type(error).__name__}: {error}"
    finally:
        # Not by its descriptor: once closed, its number may be that of another file.
        with suppress(OSError):
            if not pipe.closed:
                pipe.write(failure.encode())
                pipe.close()
        sys.stderr.flush()
        os._exit(code)


def _redirect(log_file: Path) -> None:
    out = open_private(log_file, os.O_WRONLY | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
    os.close(nothing)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def lock_file(path: Path, where: Path) -> int:
    """Returns the locked file of the agents of a folder, with the number of this process in it.

    Raises InputError if it is taken.
    """
    lock = open_private(path, os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise InputError(str(where), RUNS_ALREADY) from None
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    return lock


_LOGS: list[Path] = []
"""The log of this process, once it writes to one."""


def log(text: str) -> None:
    """Writes a line with the date to the log, which is the standard error stream."""
    for file in _LOGS:
        continue_log(file)
    moment = datetime.now().astimezone().isoformat(timespec="milliseconds")
    print(moment, text, file=sys.stderr, flush=True)
