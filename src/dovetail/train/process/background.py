"""Threads beside the training loop, and how a process ends that still has some.

Connecting and hanging up may take long when another worker hangs. Nothing waits for it while
training; at the end of the process it gets a moment, and then the process ends without it.
"""

from __future__ import annotations

import atexit
import os
import queue
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable
from typing import NamedTuple

EXIT_S = 3.0


class Dropped(NamedTuple):
    """What is to be destroyed, what is done before that, and from when on."""

    holder: list[object]
    before: Callable[[], None]
    due_s: float


_dropped: queue.SimpleQueue[Dropped | None] = queue.SimpleQueue()
_lock = threading.Lock()
_leaving: int | None = None
_running: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def start(name: str, call: Callable[[], None]) -> threading.Thread:
    """Starts a call on a thread of its own."""
    thread = threading.Thread(target=call, name=f"dovetail-{name}", daemon=True)
    _running.add(thread)
    thread.start()
    return thread


def drop(
    holder: list[object], before: Callable[[], None] = lambda: None, *, after_s: float = 0.0
) -> None:
    """Destroys what only a list refers to, on a thread that is always there.

    NOTE: a process group's destructor takes 16 to 80 ms, and starting a thread up to 15.
    """
    _dropped.put(Dropped(holder, before, time.monotonic() + after_s))


def _keep_dropping() -> None:
    while (dropped := _dropped.get()) is not None:
        time.sleep(max(0.0, dropped.due_s - time.monotonic()))
        dropped.before()
        dropped.holder.clear()


def ready() -> None:
    """Starts the thread that drops, if it does not run yet."""
    with _lock:
        if not any(thread.name == "dovetail-drop" for thread in list(_running)):
            start("drop", _keep_dropping)


def leave(code: int) -> SystemExit:
    """Returns what to raise for ending with a code: the script's handlers run, and no more.

    NOTE: Python takes 1 to 6 s to take down what torch has imported, the GPU held all the while.
    """
    global _leaving
    _leaving = code
    return SystemExit(code)


def ends_with(code: int, is_meant: Callable[[BaseException], bool]) -> None:
    """Has this process end with a code when its script fails with an error that is meant."""
    before = sys.excepthook

    def tell(
        what: type[BaseException], error: BaseException, trace: types.TracebackType | None
    ) -> None:
        global _leaving
        before(what, error, trace)
        if is_meant(error):
            _leaving = code

    sys.excepthook = tell


@atexit.register
def _wait() -> None:
    """Waits for the threads, or ends the process here.

    NOTE: a thread that comes back from C++ after Python has ended would abort the process.
    """
    _dropped.put(None)
    deadline = time.monotonic() + EXIT_S
    threads = list(_running)
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    code = _leaving
    if code is None and any(thread.is_alive() for thread in threads):
        code = 1 if hasattr(sys, "last_value") else 0  # last_value: an exception was printed
    if code is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
