"""Durable commits of many threads at the price of one: a writer thread takes all that waits.

A disk makes some hundred commits durable in a second, one after another. While one is under way
works gather; they go together into the next. Each caller waits for its own, and gets its own error.
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
"""Works of one transaction at most: a larger one would keep its first caller waiting."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A work, whom to tell when it is kept, and where its caller waits."""

    work: Work[Any]
    then: Callable[[Any], None] | None
    done: Future[Any] = field(default_factory=Future)

    def settle(self, outcome: Outcome) -> None:
        """Tells what became of the work."""
        error: BaseException | None = outcome.error
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
    """Carries works of any thread out on the one writing connection."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._write, name="store", daemon=True)
        self._thread.start()

    def do(self, work: Work[T], then: Callable[[T], None] | None = None) -> T:
        """Returns what the work returned, once it is durable; raises what it raised."""
        waiting = _Waiting(work, then)
        with self._gate:
            if self._closed:
                raise DovetailError("the store is closed")
            self._queue.put(waiting)
        return cast(T, waiting.done.result())

    def close(self) -> None:
        """Finishes what waits, ends the thread and closes the database."""
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
                # Only a bug or a crash point comes here; no caller may wait for ever.
                for waiting in batch:
                    waiting.done.set_exception(error)
                continue
            for waiting, outcome in zip(batch, outcomes, strict=True):
                waiting.settle(outcome)

    def _gather(self) -> list[_Waiting]:
        """Returns all that waits, after waiting for the first; nothing when the end is reached."""
        first = self._queue.get()
        batch = [] if first is None else [first]
        while batch and len(batch) < BATCH_MAX and not self._queue.empty():
            following = self._queue.get()
            if following is None:
                self._queue.put(None)
                break
            batch.append(following)
        return batch
