"""Whether the folders of a job answer: on a network file system that hangs, a call never returns.

The agent has one thread. If that hung, the lease of its node would run out, and all jobs there
would end for the folder of one. So a thread of its own looks first, and the start of the worker
waits; nothing else does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable

ANSWERS_S = 0.5
"""How long a start waits for a folder before it is deferred."""


def look(folder: str) -> None:
    """Looks at a folder; whether it is there does not matter."""
    try:
        os.stat(folder)
    except OSError:
        return


class FolderProbe:
    """Looks at folders in threads; of those that hang there is one for each folder."""

    def __init__(self, look: Callable[[str], None] = look) -> None:
        self._look = look
        self._hanging: dict[str, threading.Event] = {}

    def hanging(self, folders: Iterable[str]) -> str:
        """Returns a folder that does not answer, "" if all do."""
        for folder in folders:
            answered = self._hanging.get(folder)
            patience_s = 0.0
            if answered is None or answered.is_set():
                answered, patience_s = self._begin(folder), ANSWERS_S
            if not answered.wait(patience_s):
                self._hanging[folder] = answered
                return folder
            self._hanging.pop(folder, None)
        return ""

    def _begin(self, folder: str) -> threading.Event:
        answered = threading.Event()

        def do() -> None:
            self._look(folder)
            answered.set()

        threading.Thread(target=do, name="probe", daemon=True).start()
        return answered
