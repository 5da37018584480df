"""Group commit: one writer thread commits the waiting works of many threads in one transaction.

A disk makes some hundred commits durable in a second. Works that arrive during one commit go into
the next together. Each caller waits for its own work and gets its own error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from dovetail.core.errors import DovetailError
from dovetail.live.store.database import Database, Outcome, Work

T = TypeVar("T")
BATCH_MAX = 256
"""Works in one transaction at most: a larger one would delay its first caller."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A work, its callback, and the future its caller waits for."""

    work: Work[Any]
    then: Callable[[Any], None] | None
    done: Future[Any] = field(default_factory=Future)

    def settle(self, outcome: Outcome) -> None:
        """Calls back if the work is durable, then wakes the caller with its value or its error."""
        error: BaseException | None = outcome.error
        # The callback runs here, on the writer thread, and not in the caller: callbacks must be in
        # the order of the commits, and callers wake in any order.
        if error is None and self.then is not None:
            try:
                self.then(outcome.value)
            except BaseException as raised:
                error = raised
        if error is not None:
            self.done.set_exception(error)
        else:
            self.done.set_result(outcome.value)


class GroupCommit:
    """Runs works of any thread on the one writing connection."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._write, name="store", daemon=True)
        self._thread.start()

    def do(self, work: Work[T], then: Callable[[T], None] | None = None) -> T:
        """Returns the value of the work once it is durable, as `Database.do` does."""
        waiting = _Waiting(work, then)
        # Under the gate no work can be queued behind the end marker, where it would wait for ever.
        with self._gate:
            if self._closed:
                raise DovetailError("the store is closed")
            self._queue.put(waiting)
        return cast(T, waiting.done.result())

    def close(self) -> None:
        """Commits what is queued, ends the thread and closes the database."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()
        self._database.close()

    def _write(self) -> None:
        while batch := self._gather():
            try:
                outcomes = self._database.do_all([waiting.work for waiting in batch])
            except BaseException as error:
                # Only a bug or the crash point of a test raises here. The thread goes on and wakes
                # every caller, since none could find out otherwise that it waits in vain.
                for waiting in batch:
                    waiting.done.set_exception(error)
                continue
            for waiting, outcome in zip(batch, outcomes, strict=True):
                waiting.settle(outcome)

    def _gather(self) -> list[_Waiting]:
        """Waits for a work and returns it with all that are queued; empty at the end marker."""
        first = self._queue.get()
        batch = [] if first is None else [first]
        while batch and len(batch) < BATCH_MAX and not self._queue.empty():
            following = self._queue.get()
            if following is None:
                # Put back, so that the next call ends the thread after this batch is committed.
                self._queue.put(None)
                break
            batch.append(following)
        return batch


Committer = Database | GroupCommit
"""Runs works in durable transactions: each at once, or together with those of other threads."""
