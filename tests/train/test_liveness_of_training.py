"""A thread that executes is alive, and one that stands still is not."""

import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest

pytest.importorskip("torch")

from dovetail.train.membership.liveness import LivenessThread

PATIENCE_S = 300.0


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Collects no garbage: it is not safe to look at frames of others while that happens."""
    gc.disable()
    yield
    gc.enable()


class Looker:
    """Looks at the main thread from another one, and counts the beats of its pulse."""

    def __init__(self) -> None:
        self.gate, self._opener = os.pipe()
        self.main = threading.get_ident()
        self.found: list[list[int]] = []
        self._beats = 0
        self._pulse = LivenessThread(self._beat)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        self._beats += 1

    def _run(self) -> None:
        for where in ("here", "there"):
            try:
                self._wait_until_it_stands(where)
                self.found.append([self._look() for _ in range(4)])
            finally:
                os.write(self._opener, b".")

    def _look(self) -> int:
        self._pulse.check()
        return self._beats

    def _wait_until_it_stands(self, where: str) -> None:
        give_up_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up_s:
            frame = sys._current_frames().get(self.main)
            if frame is not None and (frame.f_code.co_name, in_body(frame)) == (where, True):
                return
            time.sleep(0.001)
        raise TimeoutError(where)

    def end(self) -> None:
        self._thread.join(PATIENCE_S)
        os.close(self.gate)
        os.close(self._opener)


def in_body(frame: FrameType) -> bool:
    """Tells whether a frame has entered the one line of its method, and not only the method."""
    return frame.f_lineno == frame.f_code.co_firstlineno + 1


def here(gate: int) -> None:
    os.read(gate, 1)


def there(gate: int) -> None:
    os.read(gate, 1)


def test_a_thread_that_waits_has_no_pulse_until_it_moves_on(uncollected: None) -> None:
    looker = Looker()
    here(looker.gate)
    there(looker.gate)
    looker.end()
    assert looker.found == [[0] * 4, [1] * 4]
