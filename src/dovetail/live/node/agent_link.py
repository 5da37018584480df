"""The controller's end of the Unix socket on which the agents of this machine listen."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from dovetail.live.edges.protocols import Incoming, NodeLost
from dovetail.live.node.post_thread import PostThread
from dovetail.live.node.transport import LineChannel
from dovetail.wire.agent import REPORTS
from dovetail.wire.codec import WireError

BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Pauses between attempts to connect to the agents; the last one repeats."""
REVIVE_AFTER = 4
"""Failed attempts after which the agents are started again, and again after as many more."""


class AgentLink(PostThread):
    """One connection for all nodes of this machine, with retries.

    When no agent has listened for a while, `revive` is called to start the agents again.
    """

    def __init__(
        self,
        path: Path,
        nodes: Sequence[int],
        put: Callable[[Incoming], None],
        revive: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__("agents")
        self._path, self._nodes, self._put = path, tuple(nodes), put
        self._revive = revive
        self._channel: LineChannel | None = None
        self._attempt = 0
        self._dismissed = False
        self._thread.start()

    def _turn(self) -> float:
        if self._channel is None:
            self._connect()
            self._attempt = 0 if self._channel else self._attempt + 1
            if self._attempt and self._attempt % REVIVE_AFTER == 0:
                self._revive()
        pause_s = BACKOFF_S[min(self._attempt, len(BACKOFF_S) - 1)]
        return 1.0 if self._channel else pause_s

    def _connect(self) -> None:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            link.connect(str(self._path))
        except OSError:
            link.close()
            return
        self._channel = LineChannel(self._loop, link, self._heard, self._lost)
        for node in list(self._hails):
            self._hail(node)

    def _say(self, node: int, line: bytes) -> None:
        if self._channel is not None:
            self._channel.send(line)

    def _dismiss_now(self, line: bytes) -> None:
        # The only order that is not repeated: it waits for agents that are starting.
        if self._channel is not None and not self._dismissed:
            self._channel.send(line)
            self._dismissed = True

    def _end(self) -> None:
        if self._channel is not None:
            self._channel.close()

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
