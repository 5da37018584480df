"""Input and output that may never return, as on a network file system whose server is away."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LIMIT_S = 2.0


class BoundedWait:
    """Calls that a thread of its own makes, so that none is waited for longer than `limit_s`.

    While a call has not come back, all others fail at once: a loop waits once for one thread.
    """

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._hanging: threading.Thread | None = None

    @property
    def hangs(self) -> bool:
        """True while a call has not come back."""
        return self._hanging is not None and self._hanging.is_alive()

    def call(self, do: Callable[[], T]) -> T:
        """Returns what a call returns. Raises what it raises, TimeoutError if it takes too long."""
        if self.hangs:
            raise _late()
        results: list[T] = []
        failures: list[BaseException] = []

        def run() -> None:
            try:
                results.append(do())
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run, name="bounded-io", daemon=True)
        thread.start()
        thread.join(self._limit_s)
        if failures:
            raise failures[0]
        if not results:
            self._hanging = thread
            raise _late()
        return results[0]


def _late() -> TimeoutError:
    return TimeoutError(errno.ETIMEDOUT, "does not answer")
