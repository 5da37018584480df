"""A thread that executes is alive, and one that stands still is not."""

import os
import sys
import threading
import time
from types import FrameType

import pytest

pytest.importorskip("torch")

from dovetail.train.pulse import Pulse

PATIENCE_S = 300.0


class Watched:
    """A thread that stands at one place and then at another, with a pulse looked at by hand."""

    def __init__(self) -> None:
        self.beats = 0
        self._gate, self._opener = os.pipe()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.pulse = Pulse(self._beat)
        self.here()
        self.there()

    def here(self) -> None:
        os.read(self._gate, 1)

    def there(self) -> None:
        os.read(self._gate, 1)

    def _beat(self) -> None:
        self.beats += 1

    def goes_on(self) -> None:
        os.write(self._opener, b".")

    def stands(self, where: str) -> None:
        """Returns when the thread is in the call that stands on the only line of a method."""
        give_up_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up_s:
            frame = sys._current_frames().get(self._thread.ident or 0)
            if frame is not None and (frame.f_code.co_name, in_body(frame)) == (where, True):
                return
            time.sleep(0.001)
        raise TimeoutError(where)

    def end(self) -> None:
        self.goes_on()
        self._thread.join(PATIENCE_S)
        os.close(self._gate)
        os.close(self._opener)


def in_body(frame: FrameType) -> bool:
    """Tells whether a frame has entered the one line of its method, and not only the method."""
    return frame.f_lineno == frame.f_code.co_firstlineno + 1


def test_a_thread_that_waits_has_no_pulse_until_it_moves_on() -> None:
    watched = Watched()
    watched.stands("here")
    for beats in (1, 1, 1):
        watched.pulse.look()
        assert watched.beats == beats
    watched.goes_on()
    watched.stands("there")
    for beats in (2, 2):
        watched.pulse.look()
        assert watched.beats == beats
    watched.end()
