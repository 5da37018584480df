"""The thread of a post: it sends the queued orders of the controller and reads the reports."""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass

from dovetail.live.node.transport import TO_AGENTS, Addressed, Dismiss, EventLoop
from dovetail.wire.agent import AgentOrder
from dovetail.wire.codec import WireError
from dovetail.wire.connection import PIECE_BYTES

ORDERS_MAX = 100_000
"""Orders queued for the thread. The oldest are dropped: they will be repeated."""


@dataclass(frozen=True, slots=True)
class _Queued:
    node: int
    order: AgentOrder


class PostThread(ABC):
    """A `Post` with a thread of its own. Newest hails are kept for agents that connect later."""

    def __init__(self, name: str) -> None:
        self._orders: deque[_Queued] = deque(maxlen=ORDERS_MAX)
        self._hails: dict[int, AgentOrder] = {}
        self._wake_r, self._wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._closing = False
        self._dismissal: Dismiss | None = None
        self._loop = EventLoop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def send(self, node: int, order: AgentOrder) -> None:
        """Queues an order; if the agent cannot be reached, it is lost."""
        self._orders.append(_Queued(node, order))
        self.wake()

    def dismiss(self, grace_s: float) -> None:
        """Orders the agents to end all workers and themselves, also those that connect later."""
        self._dismissal = Dismiss(grace_s)
        self.wake()

    def close(self) -> None:
        """Sends what is queued, where agents are connected, and closes all connections."""
        self._closing = True
        self.wake()
        self._thread.join()
        # Not by the thread: it may see `_closing` and end before `wake` writes, and the number
        # of the pipe may belong to another file by then.
        os.close(self._wake_r)
        os.close(self._wake_w)

    def wake(self) -> None:
        """Makes the thread look at once at what it has to do."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_w, b".")

    @abstractmethod
    def _turn(self) -> float:
        """Does what is due, and returns for how many seconds to wait at most."""

    @abstractmethod
    def _say(self, node: int, line: bytes) -> None:
        """Sends a line to the agent of a node, if it is connected."""

    @abstractmethod
    def _dismiss_now(self, line: bytes) -> None:
        """Sends the dismissal to all agents that are connected and have not had it."""

    @abstractmethod
    def _end(self) -> None:
        """Closes all connections."""

    def _hail(self, node: int) -> None:
        """Repeats the newest request for an inventory to an agent that has just connected."""
        if node in self._hails:
            self._say(node, TO_AGENTS.encode(Addressed(node, self._hails[node])))

    def _run(self) -> None:
        self._loop.watch(self._wake_r, selectors.EVENT_READ, self._woken)
        while not self._closing:
            self._loop.wait(self._turn())
            self._flush()
        self._flush()
        self._end()
        self._loop.close()

    def _woken(self, events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_r, PIECE_BYTES)

    def _flush(self) -> None:
        while self._orders:
            queued = self._orders.popleft()
            if queued.order.hail is not None:
                self._hails[queued.node] = queued.order
            with contextlib.suppress(WireError):
                # Too long for a line. It must not end the thread and lose all other orders.
                self._say(queued.node, TO_AGENTS.encode(Addressed(queued.node, queued.order)))
        if self._dismissal is not None:
            self._dismiss_now(TO_AGENTS.encode(self._dismissal))
