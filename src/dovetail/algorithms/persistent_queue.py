"""An immutable queue: every change returns a new queue.

Jobs are in chunks of fixed size, and the chunks in a tuple that is copied once per chunk: with n
jobs a change copies n/4096 references on average, and at most 64 of its own chunk.
"""

from __future__ import annotations

from typing import NamedTuple

CHUNK = 64


class Queue(NamedTuple):
    """First in, first out. The next is `front[at]`; then come `chunks` in order, then `back`."""

    front: tuple[int, ...] = ()
    at: int = 0
    chunks: tuple[tuple[int, ...], ...] = ()
    back: tuple[int, ...] = ()

    @property
    def first(self) -> int | None:
        """Returns the next job, None if the queue is empty."""
        return self.front[self.at] if self.front else None


def joined(queue: Queue, job: int) -> Queue:
    """Returns the queue with one more job at its end."""
    front, at, chunks, back = queue
    if not front:
        return Queue((job,), 0, chunks, back)
    if len(back) < CHUNK:
        return Queue(front, at, chunks, (*back, job))
    return Queue(front, at, (*chunks, back), (job,))


def put_first(queue: Queue, jobs: tuple[int, ...]) -> Queue:
    """Returns the queue with some jobs before all others."""
    return queue._replace(front=(*jobs, *queue.front[queue.at :]), at=0)


def left(queue: Queue) -> Queue:
    """Returns the queue without its first job."""
    front, at, chunks, back = queue
    if at + 1 < len(front):
        return Queue(front, at + 1, chunks, back)
    if chunks:
        return Queue(chunks[0], 0, chunks[1:], back)
    return Queue(back)
