"""Lines over one socket: cut where they end, bounded in length, with or without waiting.

Server, client, agents and workers all speak through it. A thread that may wait calls `send` and
`read_line`; a loop over a selector calls `receive(0)`, `take_line`, `queue` and `flush`, none of
which waits. The caller decides what a line means, which peer may send it, and how long to wait.
An interrupted system call is repeated by Python itself (PEP 475).
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import TracebackType
from typing import Protocol

from dovetail.wire.codec import LINE_BYTES_MAX, WireError

PIECE_BYTES = 1 << 16
"""Read or written by one system call."""


class Stream(Protocol):
    """What a connection needs of a socket; one over TLS has it too."""

    def fileno(self) -> int:
        """Returns the descriptor to wait for."""

    def close(self) -> None:
        """Closes the socket."""

    def gettimeout(self) -> float | None:
        """Returns how long a call waits; None without limit."""

    def settimeout(self, value: float | None, /) -> None:
        """Sets how long a call waits."""

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """Returns what came in. Raises BlockingIOError, TimeoutError, OSError."""

    def send(self, data: memoryview, /) -> int:
        """Returns how much was taken. Raises BlockingIOError, OSError."""

    def sendall(self, data: bytes, /) -> None:
        """Sends all. Raises TimeoutError, OSError."""


class LineTooLong(WireError):
    """The peer sent a line over the limit; what follows cannot be told apart from it."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"a line is over {bytes_max} bytes")
        self.bytes_max = bytes_max


class LineBuffer:
    """Bytes as they came in, taken out line by line, without the line ends."""

    def __init__(self, bytes_max: int = LINE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = bytearray()
        # How far the first line was searched for its end: a long line that comes in many pieces
        # must not be searched from its beginning for each of them.
        self._searched = 0

    @property
    def is_empty(self) -> bool:
        """True if no part of a line is left."""
        return not self._bytes

    def add(self, piece: bytes) -> None:
        """Appends what came in."""
        self._bytes += piece

    def take_all(self) -> bytes:
        """Returns all that is left: what follows is no line."""
        rest, self._searched = bytes(self._bytes), 0
        self._bytes.clear()
        return rest

    def take(self) -> bytes | None:
        """Returns the next whole line, None if none is whole. Raises LineTooLong."""
        end = self._bytes.find(b"\n", self._searched)
        if (len(self._bytes) if end < 0 else end) > self._bytes_max:
            raise LineTooLong(self._bytes_max)
        if end < 0:
            self._searched = len(self._bytes)
            return None
        line = bytes(self._bytes[:end])
        del self._bytes[: end + 1]
        self._searched = 0
        return line


class LineConnection:
    """A connected socket that carries lines both ways. Closing it closes the socket."""

    def __init__(
        self,
        link: Stream,
        *,
        line_bytes_max: int = LINE_BYTES_MAX,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self._link = link
        self._timeout_s = link.gettimeout()
        self._piece_bytes = piece_bytes
        self._in = LineBuffer(line_bytes_max)
        self._out = bytearray()

    def __enter__(self) -> LineConnection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def fileno(self) -> int:
        """Returns the descriptor to wait for in a selector; -1 once closed."""
        return self._link.fileno()

    def close(self) -> None:
        """Closes the socket; what is queued is dropped."""
        self._link.close()

    # What came in.

    @property
    def is_empty(self) -> bool:
        """True if no part of a line has come in beyond the lines taken."""
        return self._in.is_empty

    def take_line(self) -> bytes | None:
        """Returns the next line that is here already, None if none is whole. Raises LineTooLong."""
        return self._in.take()

    def detach(self) -> tuple[Stream, bytes]:
        """Returns the socket, which carries other things than lines now, and what came of them."""
        return self._link, self._in.take_all()

    def receive(self, timeout_s: float | None = None) -> bool:
        """Waits for more bytes, at most so long; False at the end of the connection.

        None waits without a limit and 0 not at all. Raises TimeoutError if nothing came, OSError
        if the connection broke.
        """
        self._set_timeout(timeout_s)
        try:
            piece = self._link.recv(self._piece_bytes)
        except BlockingIOError:
            raise TimeoutError from None
        self._in.add(piece)
        return bool(piece)

    def read_line(self, timeout_s: float | None = None) -> bytes | None:
        """Returns the next line; None at the end, where a line that was cut off does not count.

        `timeout_s` is for each wait, not for the whole line. Raises TimeoutError, LineTooLong.
        """
        while (line := self._in.take()) is None:
            if not self.receive(timeout_s):
                return None
        return line

    def lines(self, timeout_s: float | None = None) -> Iterator[bytes]:
        """Yields the lines up to the end of the connection, as `read_line` returns them."""
        while (line := self.read_line(timeout_s)) is not None:
            yield line

    def is_quiet(self) -> bool:
        """True while the connection is open and nothing waits to be read."""
        if not self._in.is_empty:
            return False
        self._set_timeout(0.0)
        try:
            self._link.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        # Bytes that nobody has asked for, or the end.
        return False

    # What goes out.

    def send(self, line: bytes, timeout_s: float | None = None) -> None:
        """Sends a line, waiting for a slow peer. Raises TimeoutError if it takes too long."""
        self._set_timeout(timeout_s)
        self._link.sendall(line)

    @property
    def unsent_bytes(self) -> int:
        """How much of what was queued the peer has not taken yet."""
        return len(self._out)

    def queue(self, line: bytes) -> None:
        """Adds a line to what `flush` sends."""
        self._out += line

    def drop_unsent(self) -> None:
        """Forgets what is queued: the peer takes no more."""
        self._out.clear()

    def flush(self) -> None:
        """Sends of what is queued as much as the peer takes now. Raises OSError if it is gone."""
        self._set_timeout(0.0)
        try:
            while self._out:
                # Released also if this fails: what an error's traceback still looks at could not
                # be dropped.
                with memoryview(self._out) as unsent, unsent[: self._piece_bytes] as piece:
                    sent = self._link.send(piece)
                del self._out[:sent]
        except BlockingIOError:
            return

    def _set_timeout(self, timeout_s: float | None) -> None:
        # NOTE: each change is a system call, and a loop that never waits changes nothing.
        if timeout_s != self._timeout_s:
            self._link.settimeout(timeout_s)
            self._timeout_s = timeout_s
