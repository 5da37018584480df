"""How lines travel between a controller and agents: an event loop, and connections on it.

Delivery is not guaranteed: what could not be sent is dropped, since every order is repeated until
its effect is seen and every report is part of the next inventory. Neither side can make the other
wait or fill its memory: buffers are bounded, and a peer that does not read loses the connection.
"""

from __future__ import annotations

import contextlib
import selectors
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.wire.agent import AgentOrder
from dovetail.wire.codec import LINE_BYTES_MAX, Codec
from dovetail.wire.connection import PIECE_BYTES, LineConnection, LineTooLong, Stream

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

WAITING_BYTES_MAX = 16 << 20
"""Unsent bytes at which the peer is taken to be dead."""


@dataclass(frozen=True, slots=True)
class Addressed:
    """An order for the agent of a node."""

    node: int
    order: AgentOrder


@dataclass(frozen=True, slots=True)
class Dismiss:
    """End all workers, with SIGTERM first, and then the agents: the cluster is shut down."""

    grace_s: float


@dataclass(frozen=True, slots=True)
class LinkTerminal:
    """Join the terminal of a worker to this connection, or, with a `ticket`, to a new one.

    The agent opens that at the gate it came through, and shows the ticket (`wire.join`).
    """

    node: int
    job: int
    worker: int
    ticket: str = ""


TO_AGENTS: Codec[Addressed | Dismiss | LinkTerminal] = Codec(
    {"Addressed": Addressed, "Dismiss": Dismiss, "Terminal": LinkTerminal}
)


class EventLoop:
    """Calls back when a file is ready to be read or written. For one thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def watch(self, file: FileDescriptorLike, events: int, call: Callable[[int], None]) -> None:
        """Calls `call(events)` when a file is ready; replaces an earlier watch of it."""
        if events == 0:
            self.leave(file)
        elif self._watches(file):
            self._selector.modify(file, events, call)
        else:
            self._selector.register(file, events, call)

    def leave(self, file: FileDescriptorLike) -> None:
        """Watches a file no longer."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(file)

    def wait(self, timeout_s: float) -> None:
        """Waits for at most so long and calls back for every file that is ready."""
        for key, events in self._selector.select(max(0.0, timeout_s)):
            # A callback of the same round may have closed this file.
            if self._watches(key.fileobj):
                key.data(events)

    def _watches(self, file: FileDescriptorLike) -> bool:
        try:
            self._selector.get_key(file)
        except (KeyError, ValueError):
            # A closed socket has no number and cannot even be looked up.
            return False
        return True

    def close(self) -> None:
        """Closes the selector; the files stay open."""
        self._selector.close()


class LineChannel:
    """One connection that carries lines both ways on an event loop, without ever waiting."""

    def __init__(
        self,
        loop: EventLoop,
        link: Stream,
        on_line: Callable[[bytes], None],
        on_close: Callable[[], None],
        *,
        waiting_bytes_max: int = WAITING_BYTES_MAX,
        line_bytes_max: int = LINE_BYTES_MAX,
    ) -> None:
        self._loop = loop
        self._connection = LineConnection(link, line_bytes_max=line_bytes_max)
        self._on_line, self._on_close = on_line, on_close
        self._most = waiting_bytes_max
        self._reads = self._writes = True
        self.open = True
        self._watch()

    def send(self, line: bytes) -> None:
        """Sends a line as soon as the peer takes it; closes if too much is unsent.

        Nothing is sent to a peer that is gone, but what it sent before is still read to its end.
        """
        if not (self.open and self._writes):
            return
        self._connection.queue(line)
        self._write()
        if self._connection.unsent_bytes > self._most:
            self.close()
        else:
            self._watch()

    def pause(self) -> None:
        """Reads nothing until `resume`."""
        self._reads = False
        self._watch()

    def resume(self) -> None:
        """Reads again, first what has come already."""
        if self.open and not self._reads:
            self._reads = True
            self._lines()
            self._watch()

    def drain(self) -> None:
        """Reads at once what has arrived, up to a bound: the peer is known to be gone."""
        self._reads = True
        self._lines()
        for _ in range(LINE_BYTES_MAX // PIECE_BYTES):
            if not (self.open and self._read()):
                return

    def release(self) -> LineConnection:
        """Returns the connection, which this channel reads and closes no more."""
        self.open = False
        self._loop.leave(self._connection)
        return self._connection

    def close(self) -> None:
        """Closes the connection and calls `on_close`, once."""
        if self.open:
            self.open = False
            self._loop.leave(self._connection)
            self._connection.close()
            self._on_close()

    def _watch(self) -> None:
        if self.open:
            reads = selectors.EVENT_READ if self._reads else 0
            writes = selectors.EVENT_WRITE if self._connection.unsent_bytes else 0
            self._loop.watch(self._connection, reads | writes, self._ready)

    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._write()
        if self.open and events & selectors.EVENT_READ:
            self._read()
        self._watch()

    def _write(self) -> None:
        try:
            self._connection.flush()
        except OSError:
            # The peer is gone, but what it sent before may still be in the socket: an agent that
            # was suspended finds orders there of a controller that was killed. They must be
            # carried out. Reading reaches the end of the file, and that closes the connection.
            self._writes = False
            self._connection.drop_unsent()

    def _read(self) -> bool:
        """Reads a piece; True if there was one."""
        try:
            has_more = self._connection.receive(0.0)
        except TimeoutError:
            return False
        except OSError:
            has_more = False
        if not has_more:
            self.close()
            return False
        self._lines()
        return True

    def _lines(self) -> None:
        try:
            # A line may pause or close the connection: what is left then waits, or is dropped.
            while self.open and self._reads and (line := self._connection.take_line()) is not None:
                self._on_line(line)
        except LineTooLong:
            self.close()
