"""How lines travel between the controller and the process of the agents: one Unix socket.

The agents listen and the controller connects, with retries. Delivery is not guaranteed: what
could not be sent is dropped, since every order is repeated until its effect is seen and every
report is part of the next inventory. Neither side can make the other wait or fill its memory:
buffers are bounded, and a peer that does not read loses the connection.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.live.edges.protocols import Incoming, NodeLost
from dovetail.wire.agent import REPORTS, AgentOrder
from dovetail.wire.codec import LINE_BYTES_MAX, Codec, WireError
from dovetail.wire.connection import PIECE_BYTES, LineConnection, LineTooLong

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

WAITING_BYTES_MAX = 16 << 20
"""Unsent bytes at which the peer is taken to be dead."""
ORDERS_MAX = 20_000
"""Orders queued for the thread of the link. The oldest are dropped: they will be repeated."""
BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Pauses between attempts to connect to the agents; the last one repeats."""
REVIVE_AFTER = 4
"""Failed attempts after which the agents are started again, and again after as many more."""
EVERYBODY = -1


@dataclass(frozen=True, slots=True)
class Addressed:
    """An order for the agent of a node."""

    node: int
    order: AgentOrder


@dataclass(frozen=True, slots=True)
class Dismiss:
    """End all workers, with SIGTERM first, and then the agents: the cluster is shut down."""

    grace_s: float


TO_AGENTS: Codec[Addressed | Dismiss] = Codec({"Addressed": Addressed, "Dismiss": Dismiss})


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
        link: socket.socket,
        on_line: Callable[[bytes], None],
        on_close: Callable[[], None],
        *,
        waiting_bytes_max: int = WAITING_BYTES_MAX,
    ) -> None:
        self._loop, self._connection = loop, LineConnection(link)
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


class AgentLink:
    """The controller's end: a `Post` with a thread that sends orders and receives reports.

    When no agent has listened for a while, `revive` is called to start the agents again.
    """

    def __init__(
        self,
        path: Path,
        nodes: Sequence[int],
        put: Callable[[Incoming], None],
        revive: Callable[[], None] = lambda: None,
    ) -> None:
        self._path, self._nodes, self._put = path, tuple(nodes), put
        self._revive = revive
        self._orders: deque[tuple[int, AgentOrder]] = deque(maxlen=ORDERS_MAX)
        self._hails: dict[int, AgentOrder] = {}
        self._wake_r, self._wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._closing = False
        self._grace_s = 0.0
        self._loop = EventLoop()
        self._channel: LineChannel | None = None
        self._thread = threading.Thread(target=self._run, name="agents", daemon=True)
        self._thread.start()

    def send(self, node: int, order: AgentOrder) -> None:
        """Queues an order; if the agents cannot be reached, it is lost."""
        self._orders.append((node, order))
        self._wake()

    def dismiss(self, grace_s: float) -> None:
        """Orders the agents to end all workers and themselves."""
        self._grace_s = grace_s
        self._orders.append((EVERYBODY, AgentOrder(0)))
        self._wake()

    def close(self) -> None:
        """Sends what is queued, if the agents listen, and closes the connection."""
        self._closing = True
        self._wake()
        self._thread.join()
        # Not by the thread: it may see `_closing` and end before `_wake` writes, and the number
        # of the pipe may belong to another file by then.
        os.close(self._wake_r)
        os.close(self._wake_w)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_w, b".")

    def _run(self) -> None:
        self._loop.watch(self._wake_r, selectors.EVENT_READ, self._woken)
        attempt = 0
        while not self._closing:
            if self._channel is None:
                self._connect()
                attempt = 0 if self._channel else attempt + 1
                if attempt and attempt % REVIVE_AFTER == 0:
                    self._revive()
            pause_s = BACKOFF_S[min(attempt, len(BACKOFF_S) - 1)]
            self._loop.wait(1.0 if self._channel else pause_s)
            self._flush()
        if self._channel is not None:
            self._channel.close()
        self._loop.close()

    def _woken(self, events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_r, PIECE_BYTES)

    def _connect(self) -> None:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            link.connect(str(self._path))
        except OSError:
            link.close()
            return
        self._channel = LineChannel(self._loop, link, self._heard, self._lost)
        for node, hail in list(self._hails.items()):
            self._say(TO_AGENTS.encode(Addressed(node, hail)))

    def _flush(self) -> None:
        while self._orders:
            node, order = self._orders.popleft()
            if node == EVERYBODY:
                if self._channel is None:
                    # The only order that is not repeated: it waits for agents that are starting.
                    self._orders.appendleft((node, order))
                    return
                self._say(TO_AGENTS.encode(Dismiss(self._grace_s)))
                continue
            if order.hail is not None:
                self._hails[node] = order
            with contextlib.suppress(WireError):
                # Too long for a line. It must not end the thread and lose all other orders.
                self._say(TO_AGENTS.encode(Addressed(node, order)))

    def _say(self, line: bytes) -> None:
        if self._channel is not None:
            self._channel.send(line)

    def _heard(self, line: bytes) -> None:
        try:
            report = REPORTS.decode(line)
        except WireError:
            # An agent of another version: no connection is better than a wrong state.
            if self._channel is not None:
                self._channel.close()
            return
        self._put(report)

    def _lost(self) -> None:
        self._channel = None
        if not self._closing:
            for node in self._nodes:
                self._put(NodeLost(node))
