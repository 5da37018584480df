"""Whether the thread that trains is alive while it is in the script's own code.

A script may validate for many minutes, and nobody hears of it meanwhile. Ten times a second
Python's main thread is given a call to do that it does when it next executes anything; if it has,
it is not hung.

NOTE: to look at what another thread executes is not safe. CPython 3.11 may collect garbage while it
makes a frame ready to be looked at; if that lets the other thread run on, what is then taken for
its frame is anything that lies there.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

from dovetail.train.process.background import start

LOOK_S = 0.1
SEMAPHORE_BYTES = 64
"""Room for a semaphore of the C library, with some to spare."""
_libc = ctypes.CDLL(None, use_errno=True)
_post = ctypes.cast(_libc.sem_post, ctypes.c_void_p)
_add_pending_call = ctypes.pythonapi.Py_AddPendingCall
_add_pending_call.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
_rooms: list[ctypes.Array[ctypes.c_char]] = []
"""The semaphores of all pulses: kept for ever, since a call that was given may be done at last."""


class LivenessThread:
    """Watches Python's main thread, from another."""

    def __init__(self, lives: Callable[[], None]) -> None:
        """`lives` is called when the thread was seen to execute something."""
        self._lives = lives
        self._closing = threading.Event()
        self._room = ctypes.create_string_buffer(SEMAPHORE_BYTES)
        _rooms.append(self._room)
        _libc.sem_init(self._room, 0, 0)
        self._asked = False

    def start(self) -> None:
        """Starts to watch."""
        start("pulse", self._run)

    def look(self) -> None:
        """Looks once whether what was asked the last time is done, and asks again."""
        if self._asked and _libc.sem_trywait(self._room) == 0:
            self._asked = False
            self._lives()
        if not self._asked:
            # No code of ours runs there, and no system call of the script is interrupted.
            self._asked = _add_pending_call(_post, ctypes.addressof(self._room)) == 0

    def close(self) -> None:
        """Ends watching."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.wait(LOOK_S):
            self.look()
