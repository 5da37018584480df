"""A thread that executes is alive, and one that stands still is not."""

import threading

import pytest

pytest.importorskip("torch")

from dovetail.train.pulse import Pulse


class Watched:
    """A thread that goes from one barrier to the next, with a pulse that is looked at by hand."""

    def __init__(self) -> None:
        self.beats = 0
        self._barrier = threading.Barrier(2)
        self._go = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()
        self._barrier.wait()

    def _run(self) -> None:
        self.pulse = Pulse(self._beat)
        self._barrier.wait()
        self._go.wait()
        self._go.clear()
        self._barrier.wait()
        threading.Event().wait()

    def _beat(self) -> None:
        self.beats += 1

    def moves_on(self) -> None:
        self._go.set()
        self._barrier.wait()


def settled(watched: Watched) -> int:
    """Looks until nothing has changed for a while; returns how often something had."""
    still = 0
    while still < 200:
        before = watched.beats
        watched.pulse.look()
        still = 0 if watched.beats > before else still + 1
    return watched.beats


def test_a_thread_that_waits_has_no_pulse_until_it_moves_on() -> None:
    watched = Watched()
    before = settled(watched)
    watched.pulse.look()
    assert watched.beats == before
    watched.moves_on()
    watched.pulse.look()
    assert watched.beats > before
