"""The socket on which the workers of one node reach their agent, each with a secret of its own.

A connection must identify itself at once, with the secret of its worker, and come from the user as
whom that worker runs. A worker that sends too much is read more slowly; one that does not read
loses its connection. None can delay another.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from dovetail.live.node.agent import Agent
from dovetail.live.node.transport import EventLoop, LineChannel
from dovetail.live.system.unix_socket import (
    BACKLOG,
    is_same_user,
    listen,
    peer_uid,
    remove_socket,
)
from dovetail.wire.codec import WireError
from dovetail.wire.worker import FROM_WORKER, TO_WORKER, FromWorker, Hello, ToWorker, WorkerRefused

HELLO_WITHIN_S = 5.0
STRANGERS_MAX = 64
"""Connections that have not identified themselves yet; the oldest is closed first."""
LINES_PER_S = 200
"""A worker sends a few lines a second; beyond this it is not read for the rest of the second."""
LAST_LINES = 10_000
"""Of a worker that has ended: its last messages are read without that limit, up to this."""
WAITING_BYTES_MAX = 1 << 20


class WorkerHub:
    """The connections of the workers of one node."""

    def __init__(
        self,
        loop: EventLoop,
        path: Path,
        clock: Callable[[], float],
        on_message: Callable[[int, int, FromWorker], None],
        uids: Mapping[tuple[int, int], int] | None = None,
    ) -> None:
        self._loop, self._clock, self._on_message = loop, clock, on_message
        self._agent: Agent | None = None
        self._path = path
        # As whom each worker runs; None: all as the user of this process.
        self._uids = uids
        self._server = listen(path, for_all=uids is not None)
        self._server.setblocking(False)
        # The path may be made anew by another agent; only a file with this inode is removed.
        self._inode = path.stat().st_ino
        self._lines: dict[tuple[int, int], _Line] = {}
        self._strangers: list[_Line] = []
        loop.watch(self._server, selectors.EVENT_READ, self._accept)

    def attach(self, agent: Agent) -> None:
        """Sets the agent of the node; until then every worker is refused."""
        self._agent = agent

    def send(self, job: int, worker: int, message: ToWorker) -> None:
        """Sends a message to a worker, if it is connected."""
        line = self._lines.get((job, worker))
        if line is not None:
            line.channel.send(TO_WORKER.encode(message))

    def drain(self, job: int, worker: int) -> None:
        """Reads all that a worker sent before it ended; it may not even be accepted yet."""
        # A worker may connect, send and end between two turns of the loop: its connection is then
        # in the backlog, and its last messages (`Finished`) are in the socket.
        for _ in range(BACKLOG):
            if not self._take_in():
                break
        for line in list(self._strangers):
            line.drain()
        known = self._lines.get((job, worker))
        if known is not None:
            known.drain()

    def tick(self) -> None:
        """Closes strangers that did not identify themselves in time; resumes paused workers."""
        now = self._clock()
        for line in [s for s in self._strangers if now - s.since_s > HELLO_WITHIN_S]:
            line.channel.close()
        for line in list(self._lines.values()):
            line.refill(now)

    def next_due(self) -> float:
        """Returns when `tick` has something to do."""
        slow = [line.since_s + 1.0 for line in self._lines.values() if line.lines_left <= 0]
        strange = [line.since_s + HELLO_WITHIN_S for line in self._strangers]
        return min((*slow, *strange), default=float("inf"))

    def close(self) -> None:
        """Closes all connections; workers train on and connect again."""
        for line in [*self._lines.values(), *self._strangers]:
            line.channel.close()
        self._loop.leave(self._server)
        remove_socket(self._path, self._inode)
        self._server.close()

    def _accept(self, events: int) -> None:
        self._take_in()

    def _take_in(self) -> bool:
        """Accepts one connection; False if there is none."""
        try:
            link, _ = self._server.accept()
        except OSError:
            return False
        if not self._is_expected(link):
            link.close()
            return True
        line = _Line(self, link, self._clock())
        # No user can push out the connections of another.
        own = [each for each in self._strangers if each.uid == line.uid]
        if len(own) >= STRANGERS_MAX:
            # The oldest has had the most time. Refusing new ones would lock real workers out.
            own[0].channel.close()
        self._strangers.append(line)
        return True

    def _is_expected(self, link: socket.socket) -> bool:
        """True for a peer that runs as a worker of this node may."""
        return is_same_user(link) if self._uids is None else peer_uid(link) in self._uids.values()

    # What lines do.

    def receive(self, line: _Line, text: bytes) -> None:
        """Handles a line of a worker, or of a stranger that identifies itself."""
        try:
            message = FROM_WORKER.decode(text)
        except WireError:
            # Not a worker of this version, or a broken one. If it connects again, it starts clean.
            line.channel.close()
            return
        if line.key is None:
            self._greet(line, message)
        elif not isinstance(message, Hello):
            # A second Hello could claim to be another worker.
            self._on_message(*line.key, message)

    def _greet(self, line: _Line, message: FromWorker) -> None:
        key = _key_of(message)
        if key is None or not isinstance(message, Hello):
            line.channel.close()
            return
        if self._agent is None or not self._admits(self._agent, *key, message.token, line.uid):
            line.channel.send(TO_WORKER.encode(WorkerRefused("this is no worker of mine")))
            line.channel.close()
            return
        # A worker that reconnects may be faster than the end of its old connection. The new one is
        # registered after the old one is closed, so that `gone` does not remove it.
        before = self._lines.get(key)
        if before is not None:
            before.channel.close()
        self._strangers.remove(line)
        line.key = key
        self._lines[key] = line
        self._on_message(*key, message)

    def _admits(self, agent: Agent, job: int, worker: int, token: str, uid: int) -> bool:
        """True if a worker lives, the secret is its own, and so is the user."""
        if not agent.admits(job, worker, token):
            return False
        return self._uids is None or self._uids.get((job, worker)) == uid

    def gone(self, line: _Line) -> None:
        """Removes a connection that was closed."""
        if line.key is None:
            self._strangers.remove(line)
        elif self._lines.get(line.key) is line:
            del self._lines[line.key]
            if self._agent is not None:
                self._agent.disconnected(*line.key)


class _Line:
    """One connection, and how many lines it may still send in this second."""

    def __init__(self, hub: WorkerHub, link: socket.socket, now: float) -> None:
        self._hub = hub
        self.key: tuple[int, int] | None = None
        self.since_s, self.lines_left = now, LINES_PER_S
        self.uid = peer_uid(link)
        self.channel = LineChannel(
            hub._loop, link, self._receive, self._gone, waiting_bytes_max=WAITING_BYTES_MAX
        )

    def drain(self) -> None:
        self.lines_left = LAST_LINES
        self.channel.drain()

    def refill(self, now: float) -> None:
        if now - self.since_s >= 1.0:
            self.since_s, self.lines_left = now, LINES_PER_S
            self.channel.resume()

    def _receive(self, text: bytes) -> None:
        self.lines_left -= 1
        if self.lines_left <= 0:
            # It is read again in the next second; its socket fills, and only that worker waits.
            self.channel.pause()
        self._hub.receive(self, text)

    def _gone(self) -> None:
        self._hub.gone(self)


def _key_of(message: FromWorker) -> tuple[int, int] | None:
    if not isinstance(message, Hello):
        return None
    job, slash, worker = message.worker.partition("/")
    if not (slash and job.isdecimal() and worker.isdecimal()):
        return None
    return int(job), int(worker)
