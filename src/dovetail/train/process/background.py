"""Background threads, and the exit of a process that still has some.

Connecting and disconnecting may take long if another worker hangs. Training never waits for
either. At exit the threads get a few seconds, and then the process ends without them.
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
from concurrent.futures import Future
from typing import TypeVar

EXIT_S = 3.0
T = TypeVar("T")


_disposals: queue.SimpleQueue[tuple[list[object], Callable[[], None], float] | None]
_disposals = queue.SimpleQueue()
"""References to drop, what to call before, and the earliest time to do so."""
_lock = threading.Lock()
_leaving: int | None = None
_running: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def start(name: str, call: Callable[[], None]) -> threading.Thread:
    """Starts a call on a daemon thread."""
    thread = threading.Thread(target=call, name=f"dovetail-{name}", daemon=True)
    _running.add(thread)
    thread.start()
    return thread


def submit(name: str, call: Callable[[], T]) -> Future[T]:
    """Starts a call on a daemon thread; the future gets its result or its error."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except Exception as error:
            future.set_exception(error)

    start(name, run)
    return future


def dispose(
    holder: list[object], before: Callable[[], None] = lambda: None, *, after_s: float = 0.0
) -> None:
    """Drops the last references to objects, on a permanent background thread.

    NOTE: the destructor of a process group takes 16 to 80 ms, and starting a thread up to 15 ms.
    """
    _disposals.put((holder, before, time.monotonic() + after_s))


def _dispose_all() -> None:
    while (disposal := _disposals.get()) is not None:
        holder, before, due_s = disposal
        time.sleep(max(0.0, due_s - time.monotonic()))
        before()
        holder.clear()


def ready() -> None:
    """Starts the disposal thread, unless it runs already."""
    # Not at import: a process that forks loader processes must have no other threads.
    with _lock:
        if not any(thread.name == "dovetail-dispose" for thread in list(_running)):
            start("dispose", _dispose_all)


def exit_process(code: int) -> SystemExit:
    """Returns the exception to raise for an exit with this code: exit handlers of the script run.

    NOTE: Python takes 1 to 6 s to unload what torch imported, and occupies the GPU meanwhile. The
    process therefore ends right after the handlers.
    """
    global _leaving
    _leaving = code
    return SystemExit(code)


def exit_on_error(code: int, matches: Callable[[BaseException], bool]) -> None:
    """Makes the process exit with a code if its script fails with an error that `matches`."""
    previous_hook = sys.excepthook

    def print_and_exit(
        kind: type[BaseException], error: BaseException, trace: types.TracebackType | None
    ) -> None:
        global _leaving
        previous_hook(kind, error, trace)
        # Only noted: the exit handlers of the script still run, and `_wait` ends the process.
        if matches(error):
            _leaving = code

    sys.excepthook = print_and_exit


@atexit.register
def _wait() -> None:
    """Waits for the threads, or ends the process here.

    NOTE: a thread that returns from C++ after Python has shut down would abort the process.
    """
    _disposals.put(None)
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
