"""How lines travel between the controller and the process of the agents: one Unix socket.

The agents listen and the controller calls, again and again if it must. Nothing is promised: what
could not be sent is dropped, for every order is sent again until its effect is seen and every
report is part of the next inventory. Nobody can make the other side wait or fill its memory:
buffers are bounded, and whoever does not read loses the connection.
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
from typing import Any

from dovetail.live.edges.protocols import Incoming, NodeLost
from dovetail.wire.agent import REPORTS, AgentOrder
from dovetail.wire.codec import LINE_BYTES_MAX, Codec, WireError

WAITING_BYTES_MAX = 16 << 20
"""More unread bytes than this, and the reader is taken to be dead."""
ORDERS_MAX = 20_000
"""Orders that wait for the loop of the link; the oldest go first, they will be sent again."""
BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Waits between attempts to reach the agents; the last one again and again."""
REVIVE_AFTER = 4
"""Attempts in vain after which agents are taken to be dead, and again after so many more."""
PIECE = 1 << 16
EVERYBODY = -1


@dataclass(frozen=True, slots=True)
class Addressed:
    """An order for the agent of a node."""

    node: int
    order: AgentOrder


@dataclass(frozen=True, slots=True)
class Dismiss:
    """End all workers, politely first, and then yourselves: the cluster is taken down."""

    grace_s: float


TO_AGENTS = Codec({"Addressed": Addressed, "Dismiss": Dismiss})


class Loop:
    """Calls back whoever has something to read or room to write. One thread, no more."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def watch(self, file: socket.socket | int, events: int, call: Callable[[int], None]) -> None:
        """Calls `call(events)` when a file is ready; replaces an earlier watch of it."""
        if events == 0:
            self.leave(file)
        elif self._watches(file):
            self._selector.modify(file, events, call)
        else:
            self._selector.register(file, events, call)

    def leave(self, file: socket.socket | int) -> None:
        """Watches a file no longer."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(file)

    def wait(self, timeout_s: float) -> None:
        """Waits for at most so long and calls back all who are ready."""
        for key, events in self._selector.select(max(0.0, timeout_s)):
            # Whoever was called before may have closed this one.
            if self._watches(key.fileobj):
                key.data(events)

    def _watches(self, file: Any) -> bool:
        try:
            self._selector.get_key(file)
        except (KeyError, ValueError):
            # A closed socket has no number and cannot even be looked up.
            return False
        return True

    def close(self) -> None:
        """Watches nothing any more."""
        self._selector.close()


class Channel:
    """One connection that carries lines both ways, without ever waiting."""

    def __init__(
        self,
        loop: Loop,
        link: socket.socket,
        on_line: Callable[[bytes], None],
        on_close: Callable[[], None],
        *,
        waiting_bytes_max: int = WAITING_BYTES_MAX,
    ) -> None:
        link.setblocking(False)
        self._loop, self._link = loop, link
        self._on_line, self._on_close = on_line, on_close
        self._most = waiting_bytes_max
        self._in, self._out = bytearray(), bytearray()
        self._reads = self._writes = True
        self.open = True
        self._watch()

    def send(self, line: bytes) -> None:
        """Sends a line as soon as the other side takes it; closes if it never does.

        To a peer that is gone nothing is sent. What it said before is still read, to its end.
        """
        if not (self.open and self._writes):
            return
        self._out += line
        self._write()
        if len(self._out) > self._most:
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
        """Reads at once what has come, up to a bound: the other side is known to be gone."""
        self._reads = True
        self._lines()
        for _ in range(LINE_BYTES_MAX // PIECE):
            if not (self.open and self._read()):
                return

    def close(self) -> None:
        """Ends the connection and says so, once."""
        if self.open:
            self.open = False
            self._loop.leave(self._link)
            self._link.close()
            self._on_close()

    def _watch(self) -> None:
        if self.open:
            reads = selectors.EVENT_READ if self._reads else 0
            writes = selectors.EVENT_WRITE if self._out else 0
            self._loop.watch(self._link, reads | writes, self._ready)

    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._write()
        if self.open and events & selectors.EVENT_READ:
            self._read()
        self._watch()

    def _write(self) -> None:
        try:
            while self._out:
                sent = self._link.send(memoryview(self._out)[:PIECE])
                del self._out[:sent]
        except BlockingIOError:
            return
        except OSError:
            # The peer is gone, and what it sent before may still wait in the socket: an agent
            # that was stopped finds orders there of a controller that was killed. Reading them
            # ends with the end of the file, and that closes the connection.
            self._writes = False
            self._out.clear()

    def _read(self) -> bool:
        """Reads a piece; returns whether there was any."""
        try:
            piece = self._link.recv(PIECE)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        if not piece:
            self.close()
            return False
        self._in += piece
        self._lines()
        return True

    def _lines(self) -> None:
        while self.open and self._reads and (end := self._in.find(b"\n")) >= 0:
            line = bytes(self._in[: end + 1])
            del self._in[: end + 1]
            self._on_line(line)
        if self.open and self._reads and len(self._in) > LINE_BYTES_MAX:
            self.close()


class AgentLink:
    """The controller's end: a `Post` whose thread reaches the agents and hears them.

    When nobody has listened for a while, `revive` is asked to bring the agents up again.
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
        self._loop = Loop()
        self._channel: Channel | None = None
        self._thread = threading.Thread(target=self._run, name="agents", daemon=True)
        self._thread.start()

    def send(self, node: int, order: AgentOrder) -> None:
        """Hands an order over; if the agents cannot be reached, it is lost."""
        self._orders.append((node, order))
        self._wake()

    def dismiss(self, grace_s: float) -> None:
        """Tells the agents to end everything and themselves."""
        self._grace_s = grace_s
        self._orders.append((EVERYBODY, AgentOrder(0)))
        self._wake()

    def close(self) -> None:
        """Hangs up; what was handed over before is sent first, if the agents listen."""
        self._closing = True
        self._wake()
        self._thread.join()
        # Not by the thread: it may see `_closing` and end before it is woken here.
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
            os.read(self._wake_r, PIECE)

    def _connect(self) -> None:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            link.connect(str(self._path))
        except OSError:
            link.close()
            return
        self._channel = Channel(self._loop, link, self._heard, self._lost)
        for node, hail in list(self._hails.items()):
            self._say(TO_AGENTS.encode(Addressed(node, hail)))

    def _flush(self) -> None:
        while self._orders:
            node, order = self._orders.popleft()
            if node == EVERYBODY:
                if self._channel is None:
                    # It is said once, and the agents may just be coming up.
                    self._orders.appendleft((node, order))
                    return
                self._say(TO_AGENTS.encode(Dismiss(self._grace_s)))
                continue
            if order.hail is not None:
                self._hails[node] = order
            with contextlib.suppress(WireError):
                # Too long for a line: nothing is promised, and nothing else may be lost for it.
                self._say(TO_AGENTS.encode(Addressed(node, order)))

    def _say(self, line: bytes) -> None:
        if self._channel is not None:
            self._channel.send(line)

    def _heard(self, line: bytes) -> None:
        try:
            report = REPORTS.decode(line)
        except WireError:
            # An agent of another version: better no connection than a wrong picture.
            if self._channel is not None:
                self._channel.close()
            return
        self._put(report)

    def _lost(self) -> None:
        self._channel = None
        if not self._closing:
            for node in self._nodes:
                self._put(NodeLost(node))
