"""Whether the thread that trains is alive while it is in the script's own code.

A script may validate for many minutes, and nobody hears of it meanwhile. Its thread is looked at
ten times a second: if what it executes changes, it is not hung.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType

from dovetail.train.aside import start

LOOK_S = 0.1


def place(frame: FrameType | None) -> list[tuple[int, int]]:
    """Returns where a thread is: each call it is in, and how far that is."""
    found = []
    while frame is not None:
        found.append((id(frame), frame.f_lasti))
        frame = frame.f_back
    return found


class Pulse:
    """Watches one thread, on another."""

    def __init__(self, lives: Callable[[], None]) -> None:
        """`lives` is called when the thread that constructs this was seen to move."""
        self._lives, self._watched = lives, threading.get_ident()
        self._closing = threading.Event()
        self._before: list[tuple[int, int]] = []

    def start(self) -> None:
        """Starts to watch."""
        start("pulse", self._run)

    def look(self) -> None:
        """Looks once."""
        now = place(sys._current_frames().get(self._watched))
        if now != self._before:
            self._before = now
            self._lives()

    def close(self) -> None:
        """Ends watching."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.wait(LOOK_S):
            self.look()
