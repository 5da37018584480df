"""Starting workers: an interrupt waits until they stand, whichever thread it was sent to."""

from __future__ import annotations

import os
import signal
import sys
from threading import Event, Thread, current_thread, main_thread

import pytest

from dovetail.study.parallel import undisturbed


@pytest.mark.skipif(current_thread() is not main_thread(), reason="signals need the main thread")
def test_an_interrupt_waits_until_the_workers_stand() -> None:
    leave, stood = Event(), []
    bystander = Thread(target=leave.wait)  # as a library's thread, it takes signals
    bystander.start()
    heard, hears = os.pipe()
    os.set_blocking(hears, False)

    def start_workers() -> None:
        with undisturbed():
            assert bystander.ident is not None
            signal.pthread_kill(bystander.ident, signal.SIGINT)
            os.read(heard, 1)  # It has come, on a busy machine some time later.
            stood.append("both workers")

    before = signal.set_wakeup_fd(hears)
    try:
        with pytest.raises(KeyboardInterrupt):
            start_workers()
    finally:
        signal.set_wakeup_fd(before)
        leave.set()
        bystander.join()
        os.close(heard)
        os.close(hears)
    assert stood
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_the_users_script_is_hidden_while_workers_start() -> None:
    script = sys.modules["__main__"]
    with undisturbed():
        assert sys.modules["__main__"] is not script
    assert sys.modules["__main__"] is script
