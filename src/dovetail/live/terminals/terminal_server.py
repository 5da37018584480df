"""The controller's part in interactive jobs: it joins clients to the agents that run their jobs.

A client that is admitted waits here for its job to start, in the thread of its connection. If the
client goes, its job is cancelled: nobody else would ever see it. A connection that breaks in
another way, or an agent that is away, only ends the connection: the client comes back on a new one,
and goes on where it was.
"""

from __future__ import annotations

import logging
import secrets
import select
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.store.intake import Intake
from dovetail.live.store.queries import StoreReader
from dovetail.live.terminals.relay import as_stream, relay
from dovetail.wire.connection import Stream
from dovetail.wire.terminal import REFUSED, frame

LOG = logging.getLogger(__name__)
SESSIONS_MAX, EACH_USER = 64, 16
HAS_KEEPER = (State.RUNNING, State.COMPLETING)
"""The states in which a worker may be there; the last output may come while a job is ending."""
LOOK_S = 0.1
"""How often it looks whether a job has started."""
EARLY_BYTES_MAX = 4096
"""What a client may say before its job runs: who it is, its window, signals."""
LEFT = "its client went away"
CROWDED = "too many interactive jobs are attached"


class TerminalSource(Protocol):
    """Opens a connection to the keeper of a worker, by the agent of its node."""

    def __call__(self, node: int, job: int, worker: int) -> Stream:
        """Returns it. Raises OSError if the agent or the worker cannot be reached now."""


@dataclass(frozen=True, slots=True)
class TerminalJobs:
    """Where it is written how jobs stand, and what cancels one, for a reason."""

    store: Path
    cancel: Callable[[int, str], object]


class TerminalServer:
    """The clients of interactive jobs, a thread each, in number at most `most`."""

    def __init__(
        self,
        jobs: TerminalJobs,
        open_terminal: TerminalSource,
        *,
        most: int = SESSIONS_MAX,
        each_user: int = EACH_USER,
    ) -> None:
        self._jobs, self._open_terminal = jobs, open_terminal
        self._most, self._each_user = most, each_user
        self._lock = threading.Lock()
        self._clients: dict[socket.socket, str] = {}
        self._closing = False

    def serve(self, client: socket.socket, number: int, user: str) -> None:
        """Serves the client of a job until either is over."""
        with self._admitted(client, user) as is_admitted:
            if not is_admitted:
                with suppress(OSError):
                    client.settimeout(1.0)
                    client.sendall(frame(REFUSED, CROWDED.encode()))
                return
            if self._is_left(client, number) and not self._closing:
                self._cancel(number)

    def close(self) -> None:
        """Ends all connections; clients come back to the next controller."""
        with self._lock:
            self._closing = True
            clients = list(self._clients)
        for client in clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def _admitted(self, client: socket.socket, user: str) -> Iterator[bool]:
        with self._lock:
            mine = Counter(self._clients.values())[user]
            is_full = len(self._clients) >= self._most or mine >= self._each_user
            is_admitted = not (is_full or self._closing)
            if is_admitted:
                self._clients[client] = user
        try:
            yield is_admitted
        finally:
            with self._lock:
                if is_admitted:
                    del self._clients[client]

    def _is_left(self, client: socket.socket, number: int) -> bool:
        """Serves the client; returns whether it went away before its job was over."""
        stream, early = as_stream(client), bytearray()
        stream.settimeout(0.0)
        with StoreReader(self._jobs.store) as reader:
            keeper = None
            while keeper is None:
                job = reader.job(number)
                if job is None or job.record.state in TERMINAL or self._closing:
                    return False
                if len(early) > EARLY_BYTES_MAX:
                    return False
                keeper = self._keeper_of(job)
                try:
                    early += _said(stream) if keeper is None else b""
                except ConnectionResetError:
                    return True
                except OSError:
                    return False
        try:
            end = relay(stream, keeper, bytes(early))
        finally:
            keeper.close()
        return end.stream is stream and end.is_gone

    def _keeper_of(self, job: StoredJob) -> Stream | None:
        """Returns a connection to the keeper of a job's worker, None if there is none now."""
        if job.record.state not in HAS_KEEPER or not job.record.members:
            return None
        first = job.record.members[0]
        try:
            return self._open_terminal(first.node, job.number, first.worker)
        except OSError:
            return None

    def _cancel(self, number: int) -> None:
        LOG.info("job %d: %s", number, LEFT)
        with suppress(InputError, DovetailError):
            # It may have ended just now.
            self._jobs.cancel(number, LEFT)


def terminal_server(store: Path, open_terminal: TerminalSource, intake: Intake) -> TerminalServer:
    """Returns the server of a controller with this store and intake."""

    def cancel(number: int, why: str) -> None:
        intake.request("cancel", jobs=[number], argument=why, key=secrets.token_hex(16))

    return TerminalServer(TerminalJobs(store, cancel), open_terminal)


def _said(stream: Stream) -> bytes:
    """Returns what a client says within a moment. Raises OSError, also at its end."""
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    poll.poll(LOOK_S * 1000)
    try:
        piece = stream.recv(EARLY_BYTES_MAX)
    except BlockingIOError:
        return b""
    if not piece:
        raise ConnectionResetError
    return piece
