"""Liveness of the training thread while it is in the script's own code.

A script may validate for many minutes without a sign of life. Ten times a second this schedules a
pending call on Python's main thread; the call runs when that thread next executes anything. If it
has run, the thread does not hang.

NOTE: to inspect the frame of another thread is not safe. CPython 3.11 may collect garbage while it
prepares the frame; if that lets the other thread run on, the frame read is whatever lies there.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

from dovetail.train.process.background import start

CHECK_S = 0.1
SEMAPHORE_BYTES = 64
"""Memory for a semaphore of the C library, with some to spare."""
_libc = ctypes.CDLL(None, use_errno=True)
_post = ctypes.cast(_libc.sem_post, ctypes.c_void_p)
_add_pending_call = ctypes.pythonapi.Py_AddPendingCall
_add_pending_call.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
_semaphores: list[ctypes.Array[ctypes.c_char]] = []
"""The semaphores of all threads: never freed, since a scheduled call may run at any time."""


class LivenessThread:
    """Watches Python's main thread from another thread."""

    def __init__(self, on_alive: Callable[[], None]) -> None:
        """`on_alive` is called each time the main thread has executed something."""
        self._on_alive = on_alive
        self._closing = threading.Event()
        self._semaphore = ctypes.create_string_buffer(SEMAPHORE_BYTES)
        _semaphores.append(self._semaphore)
        _libc.sem_init(self._semaphore, 0, 0)
        self._is_pending = False

    def start(self) -> None:
        """Starts the thread."""
        start("liveness", self._run)

    def check(self) -> None:
        """Checks once whether the last call has run, and schedules the next one."""
        if self._is_pending and _libc.sem_trywait(self._semaphore) == 0:
            self._is_pending = False
            self._on_alive()
        # One call at a time: Python keeps 32 at most, and a hung script would fill them. The call
        # is a C function, so it neither interrupts a system call of the script nor raises.
        if not self._is_pending:
            address = ctypes.addressof(self._semaphore)
            self._is_pending = _add_pending_call(_post, address) == 0

    def close(self) -> None:
        """Ends the thread."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.wait(CHECK_S):
            self.check()
