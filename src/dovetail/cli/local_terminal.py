"""The local ends of an interactive job: a terminal in raw mode, and signals as bytes of a pipe.

Whatever happens, the terminal is left as it was found.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

FORWARDED = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGWINCH, signal.SIGCONT,
)  # fmt: skip
"""The signals that come in as bytes. Some are passed on, others end the session or tell it news."""


def no_action(number: int, frame: object) -> None:
    """Does nothing: the number of the signal is in the pipe already."""


@contextmanager
def signals_as_bytes() -> Iterator[int]:
    """Yields a descriptor with a byte for each signal that comes in; before, they had effects."""
    read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = {number: signal.signal(number, no_action) for number in FORWARDED}
    woken = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    try:
        yield read_end
    finally:
        signal.set_wakeup_fd(woken)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(read_end)
        os.close(write_end)


class LocalTerminal:
    """The terminal of standard input, raw while a session has it."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._modes = termios.tcgetattr(file)
        self._is_raw = False

    def make_raw(self) -> None:
        """Passes each key on as it is typed, Ctrl-C among them."""
        tty.setraw(self._file, termios.TCSADRAIN)
        self._is_raw = True

    def restore(self) -> None:
        """Sets the modes that the terminal had before."""
        if self._is_raw:
            self._is_raw = False
            with suppress(termios.error):
                # It may be gone.
                termios.tcsetattr(self._file, termios.TCSADRAIN, self._modes)

    def size(self) -> tuple[int, int]:
        """Returns rows and columns; 0 if they are not known."""
        try:
            size = os.get_terminal_size(self._file)
        except OSError:
            return 0, 0
        return size.lines, size.columns

    def say(self, text: str) -> None:
        """Prints a line about the session, from the first column on."""
        ends = ("\r\n", "\r\n") if self._is_raw else ("", "\n")
        sys.stderr.write(f"{ends[0]}dovetail: {text}{ends[1]}")
        sys.stderr.flush()
