"""The terminals for which a gate waits: an agent calls back, and shows the ticket it was given."""

from __future__ import annotations

import queue
import secrets
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from dovetail.live.node.transport import TO_AGENTS, LinkTerminal
from dovetail.wire.connection import Stream


class PendingTerminal:
    """What the agent that was asked comes back with, once."""

    def __init__(self) -> None:
        self._come: queue.Queue[Stream] = queue.Queue(1)

    def put(self, stream: Stream) -> None:
        """Gives the connection to whoever waits."""
        self._come.put_nowait(stream)

    def get(self, within_s: float) -> Stream:
        """Returns the connection. Raises OSError if it does not come in time."""
        try:
            return self._come.get(timeout=within_s)
        except queue.Empty:
            raise TimeoutError("the agent of the node did not call back") from None

    def close(self) -> None:
        """Closes a connection that came too late."""
        try:
            self._come.get_nowait().close()
        except queue.Empty:
            return


class TerminalHub:
    """What is asked of agents, and who waits for it. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[int, PendingTerminal]] = {}
        self._lines: deque[tuple[int, bytes]] = deque()

    @contextmanager
    def waiting(self, node: int, job: int, worker: int) -> Iterator[PendingTerminal]:
        """Yields where the connection for the terminal of a worker will be, and asks for it."""
        ticket, answer = secrets.token_hex(16), PendingTerminal()
        line = TO_AGENTS.encode(LinkTerminal(node, job, worker, ticket))
        with self._lock:
            self._waiting[ticket] = node, answer
            self._lines.append((node, line))
        try:
            yield answer
        finally:
            with self._lock:
                self._waiting.pop(ticket, None)
            answer.close()

    def take_lines(self) -> Iterator[tuple[int, bytes]]:
        """Yields what is to be sent, with the node that it is for."""
        while self._lines:
            yield self._lines.popleft()

    def node_of(self, ticket: str) -> int | None:
        """Returns the node that was given a ticket for which somebody waits still."""
        with self._lock:
            known = self._waiting.get(ticket)
        return None if known is None else known[0]

    def answer(self, ticket: str, stream: Stream) -> None:
        """Hands a connection to whoever waits for it, or closes it."""
        with self._lock:
            known = self._waiting.pop(ticket, None)
            if known is not None:
                known[1].put(stream)
                return
        stream.close()
