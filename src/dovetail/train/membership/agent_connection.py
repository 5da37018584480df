"""The connection to the agent of the node: one thread that receives and sends messages.

Training never waits for it. If the agent goes away, the worker trains on and the thread reconnects
until an agent answers; messages that must not get lost are sent then.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from select import select

from dovetail.train.membership.mailbox import Mailbox
from dovetail.train.process.environment import WorkerEnvironment
from dovetail.wire.codec import WireError
from dovetail.wire.connection import LineConnection
from dovetail.wire.worker import (
    FROM_WORKER,
    TO_WORKER,
    FromWorker,
    Hello,
    ToWorker,
    Training,
    WorkerRefused,
)

RETRY_S, RETRY_S_MAX = 0.05, 2.0
WAITING_MAX = 1000
"""Messages kept for an agent that is away; the oldest are dropped first."""
REFUSED_EXIT = 3
"""The exit code of a worker that was refused."""


class AgentConnection:
    """The thread that exchanges messages with the agent. Opened once per process."""

    def __init__(self, environment: WorkerEnvironment, mailbox: Mailbox) -> None:
        self._environment, self._mailbox = environment, mailbox
        self._generation: Callable[[], int] = lambda: -1
        self._first_messages: Callable[[], list[FromWorker]] = list
        self._waiting: deque[FromWorker] = deque(maxlen=WAITING_MAX)
        self._lock = threading.Lock()
        self._wake_end, self._woken_end = socket.socketpair()
        self._woken_end.setblocking(False)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dovetail-agent", daemon=True)

    def open(
        self, *, generation: Callable[[], int], first_messages: Callable[[], list[FromWorker]]
    ) -> None:
        """Starts to connect; `first_messages` returns what each new connection begins with."""
        self._generation, self._first_messages = generation, first_messages
        self._thread.start()

    def send(self, message: FromWorker) -> None:
        """Hands a message to the thread; never waits for the agent."""
        with self._lock:  # several threads append messages, and ours removes them
            if isinstance(message, Training):  # an agent that was away needs only the newest
                others = [m for m in self._waiting if not isinstance(m, Training)]
                self._waiting.clear()
                self._waiting.extend(others)
            self._waiting.append(message)
        self._wake()

    def close(self, wait_s: float) -> None:
        """Waits until all is sent, for so long at most, and closes the connection."""
        self._closing.set()
        self._wake()
        self._thread.join(wait_s)

    def _wake(self) -> None:
        with suppress(OSError):  # the thread is awake already, or gone
            self._wake_end.send(b".", socket.MSG_DONTWAIT)

    def _run(self) -> None:
        with self._wake_end, self._woken_end:
            self._keep_connected()

    def _keep_connected(self) -> None:
        pause_s = RETRY_S
        while True:
            peer = self._connect()
            if peer is not None:
                pause_s = RETRY_S
                # Whatever breaks the connection, training goes on and the next agent is awaited.
                with peer, suppress(OSError, WireError):
                    self._talk(peer)
            if self._closing.wait(pause_s):
                return
            pause_s = min(2 * pause_s, RETRY_S_MAX)

    def _connect(self) -> LineConnection | None:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            peer.connect(self._environment.socket)
        except OSError:
            peer.close()
            return None
        return LineConnection(peer)

    def _talk(self, peer: LineConnection) -> None:
        """Receives and sends until the connection breaks, or closes with all sent."""
        about = self._environment
        hello = Hello(about.worker, about.token, os.getpid(), self._generation())
        for first in (hello, *self._first_messages()):
            peer.queue(FROM_WORKER.encode(first))
        sources: list[LineConnection | socket.socket] = [peer, self._woken_end]
        while True:
            # Read before the queue: what was sent before `close` is then in the queue already.
            closing = self._closing.is_set()
            with self._lock:
                message = (
                    self._waiting.popleft() if self._waiting and not peer.unsent_bytes else None
                )
            if message is not None:
                peer.queue(FROM_WORKER.encode(message))
            if closing and not peer.unsent_bytes:
                return
            sends = [peer] if peer.unsent_bytes else []
            readable, writable, _ = select(sources, sends, [])
            if self._woken_end in readable:
                self._woken_end.recv(4096)
            if peer in readable:
                if not peer.receive(0.0):
                    return
                while (line := peer.take_line()) is not None:
                    self._receive(TO_WORKER.decode(line))
            if writable:
                peer.flush()

    def _receive(self, message: ToWorker) -> None:
        """Passes a message of the agent to the mailbox; exits if the agent refuses this worker."""
        if isinstance(message, WorkerRefused):
            # NOTE: no exception. The loop may be in a collective or in the user's code, and a
            # worker that was replaced must not save.
            print(f"dovetail: the agent refuses this worker: {message.why}", flush=True)
            os._exit(REFUSED_EXIT)
        self._mailbox.receive(message)
