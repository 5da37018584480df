"""The open connections of one listener: their limit, and which idle one is closed first."""

from __future__ import annotations

import contextlib
import socket
import threading
from time import monotonic

LINGER_S = 1.0
LINGER_BYTES = 4 << 20
"""Limits of reading a connection that we have ended, until its client ends it too."""


class Connections:
    """Limits the connections of one listener, so that its clients cannot use up those of another.

    At the limit a new connection ends the one that has been idle longest; at the limit of one peer
    (`most_each`) one of that peer's. Any thread may call.
    """

    def __init__(self, most: int, most_each: int = 0) -> None:
        self._most, self._most_each = most, most_each or most
        self._open: dict[socket.socket, int] = {}
        self._idle: dict[socket.socket, None] = {}
        """Connections that wait for a line of their client, the longest wait first."""
        self._guard = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: socket.socket, peer: int = -1) -> bool:
        """Adds a connection of a peer and returns True, or returns False at a limit."""
        with self._guard:
            its_own = sum(each == peer for each in self._open.values())
            if its_own >= self._most_each and not self._end_idle(peer):
                return False
            if len(self._open) >= self._most and not self._end_idle():
                return False
            self._open[connection] = peer
            return True

    def release(self, connection: socket.socket) -> None:
        """Removes a connection that has ended."""
        with self._guard:
            self._open.pop(connection, None)
            self._idle.pop(connection, None)

    def set_idle(self, connection: socket.socket, is_idle: bool) -> None:
        """Records that a connection waits for a line, or has received a part of one."""
        with self._guard:
            if is_idle and connection in self._open:
                self._idle[connection] = None
            else:
                self._idle.pop(connection, None)

    def shut_down(self, how: int) -> None:
        """Shuts down every open connection for reading, writing or both."""
        with self._guard:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(how)

    def _end_idle(self, peer: int | None = None) -> bool:
        """Ends the connection that has been idle longest, of one peer or of all."""
        idle = (c for c in self._idle if peer is None or self._open.get(c) == peer)
        oldest = next(idle, None)
        if oldest is None:
            return False
        del self._idle[oldest]
        del self._open[oldest]
        with contextlib.suppress(OSError):
            # Only for reading: a request that has just come in is still answered.
            oldest.shutdown(socket.SHUT_RD)
        return True


def end_after_reply(connection: socket.socket) -> None:
    """Ends our side of a connection and reads on for a moment.

    Closing a socket with unread bytes resets the connection, and the client may then lose the
    reply with the reason.
    """
    deadline, bytes_left = monotonic() + LINGER_S, LINGER_BYTES
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        while bytes_left > 0 and (timeout_s := deadline - monotonic()) > 0:
            connection.settimeout(timeout_s)
            piece = connection.recv(65536)
            if not piece:
                return
            bytes_left -= len(piece)
