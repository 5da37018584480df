"""SIGTERM as the end of an allocation: jobs save, and the controller ends."""

from __future__ import annotations

import logging
import secrets
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from dovetail.live.store.intake import Intake

LOG = logging.getLogger(__name__)


@contextmanager
def saving_on_term(intake: Intake) -> Iterator[None]:
    """Makes the jobs save on SIGTERM, as before the end of an allocation; a second one ends."""
    before = signal.getsignal(signal.SIGTERM)

    def save() -> None:
        LOG.info("SIGTERM: jobs save, and the controller ends")
        intake.request("down", argument="save", key=secrets.token_hex(16))

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, before)
        # Not here: this thread may be in the middle of anything that a request needs.
        threading.Thread(target=save, name="save", daemon=True).start()

    signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
