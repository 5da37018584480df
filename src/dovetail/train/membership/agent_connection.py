"""The line to the agent of the node: one thread that listens, and says what there is to say.

Training never waits for it. If the agent goes away, the worker trains on and calls again until
somebody answers; what must not get lost is said then.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from select import select
from typing import Protocol

from dovetail.train.membership.mailbox import Mailbox
from dovetail.wire.codec import LINE_BYTES_MAX, WireError
from dovetail.wire.worker import (
    FROM_WORKER,
    SOCKET,
    TO_WORKER,
    TOKEN,
    WORKER,
    FromWorker,
    Hello,
    Training,
    WorkerRefused,
)

RETRY_S, RETRY_S_MAX = 0.05, 2.0
WAITING_MAX = 1000
"""Messages kept for an agent that is away; the oldest go first."""
REFUSED_EXIT = 3
"""The exit code of a worker that was refused."""


class AgentChannel(Protocol):
    """Whom the training loop reports to."""

    def say(self, message: FromWorker) -> None:
        """Passes a message on, now or when somebody listens."""

    def close(self, wait_s: float) -> None:
        """Says what is left to be said, and hangs up."""


class NoAgent:
    """The agent of a script that was started by hand."""

    def say(self, message: FromWorker) -> None:
        """Says it to nobody."""

    def close(self, wait_s: float) -> None:
        """Has nothing to close."""


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Who this worker is, from its environment. Its number is that within the job."""

    socket: str
    worker: str
    token: str

    @property
    def number(self) -> int:
        """Returns the worker's number in its job."""
        return int(self.worker.rpartition("/")[2])

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> WorkerIdentity | None:
        """Returns the identity in an environment, or None in one without an agent."""
        if not environment.get(SOCKET):
            return None
        return cls(environment[SOCKET], environment[WORKER], environment.get(TOKEN, ""))


class AgentConnection:
    """Speaks with the agent on a thread of its own. Opened once per process."""

    def __init__(self, identity: WorkerIdentity, mailbox: Mailbox) -> None:
        self._identity, self._mailbox = identity, mailbox
        self._generation: Callable[[], int] = lambda: -1
        self._again: Callable[[], list[FromWorker]] = list
        self._waiting: deque[FromWorker] = deque(maxlen=WAITING_MAX)
        self._lock = threading.Lock()
        self._bell, self._ear = socket.socketpair()
        self._ear.setblocking(False)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dovetail-line", daemon=True)

    def open(self, *, generation: Callable[[], int], again: Callable[[], list[FromWorker]]) -> None:
        """Starts to call; `again` gives what is repeated to an agent that answers a new call."""
        self._generation, self._again = generation, again
        self._thread.start()

    def say(self, message: FromWorker) -> None:
        """Hands a message to the thread; never waits, whatever the agent does."""
        with self._lock:  # several threads say things, and ours takes them away
            if isinstance(message, Training):  # one is enough for an agent that does not listen
                others = [m for m in self._waiting if not isinstance(m, Training)]
                self._waiting.clear()
                self._waiting.extend(others)
            self._waiting.append(message)
        self._ring()

    def close(self, wait_s: float) -> None:
        """Waits a moment until all is said, and hangs up."""
        self._closing.set()
        self._ring()
        self._thread.join(wait_s)

    def _ring(self) -> None:
        with suppress(OSError):  # it rings already, or the thread is gone
            self._bell.send(b".", socket.MSG_DONTWAIT)

    def _run(self) -> None:
        with self._bell, self._ear:
            self._keep_calling()

    def _keep_calling(self) -> None:
        pause_s = RETRY_S
        while True:
            peer = self._call()
            if peer is not None:
                pause_s = RETRY_S
                with peer, suppress(OSError, WireError):
                    self._talk(peer)  # a broken line is a line to call again
            if self._closing.wait(pause_s):
                return
            pause_s = min(2 * pause_s, RETRY_S_MAX)

    def _call(self) -> socket.socket | None:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            peer.connect(self._identity.socket)
        except OSError:
            peer.close()
            return None
        peer.setblocking(False)
        return peer

    def _talk(self, peer: socket.socket) -> None:
        """Listens and speaks until the line breaks, or all is said and we hang up."""
        who = self._identity
        hello = Hello(who.worker, who.token, os.getpid(), self._generation())
        to_say = bytearray(b"".join(FROM_WORKER.encode(m) for m in (hello, *self._again())))
        heard = bytearray()
        while True:
            closing = self._closing.is_set()
            if not to_say and (message := self._next()) is not None:
                to_say += FROM_WORKER.encode(message)
            if closing and not to_say:
                return
            readable, writable, _ = select([peer, self._ear], [peer] if to_say else [], [])
            if self._ear in readable:
                self._ear.recv(4096)
            if peer in readable:
                fresh = peer.recv(65536)
                if not fresh:
                    return
                heard += fresh
                self._take(heard)
            if writable:
                del to_say[: peer.send(to_say)]

    def _next(self) -> FromWorker | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def _take(self, heard: bytearray) -> None:
        """Hears the whole lines and leaves the rest."""
        *lines, rest = heard.split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise WireError("a line without an end")
        heard[:] = rest
        for line in lines:
            message = TO_WORKER.decode(bytes(line))
            self._mailbox.hear(message)
            if isinstance(message, WorkerRefused):
                # NOTE: the loop may sit in a collective or in the user's code, and must not save.
                print(f"dovetail: the agent refuses this worker: {message.why}", flush=True)
                os._exit(REFUSED_EXIT)
