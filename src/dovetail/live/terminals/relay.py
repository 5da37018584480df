"""Carries bytes between two connections, both ways, for one thread that does nothing else.

It looks at none of them. What one end does not take now is kept, up to a bound, and then the other
end is not read: so a slow reader slows the writer down, and no memory grows.
"""

from __future__ import annotations

import select
import socket
import ssl
from dataclasses import dataclass, field
from time import monotonic

from dovetail.live.join.gate_stream import GateStream
from dovetail.wire.connection import PIECE_BYTES, Stream

UNSENT_BYTES_MAX = 1 << 16
LAST_S = 5.0
"""How long the last bytes of an end that is over may take to the other."""
LOOK_S = 1.0


@dataclass(slots=True)
class RelayExit:
    """Which of the two ended a relay; `is_gone` if its process let go of the connection.

    A connection that broke otherwise may have a process behind it that lives.
    """

    stream: Stream
    is_gone: bool


@dataclass(slots=True)
class _Direction:
    source: Stream
    sink: Stream
    unsent: bytearray = field(default_factory=bytearray)

    def read(self) -> bool:
        """Reads a piece if there is room; True if one came. Raises _Ended."""
        if len(self.unsent) >= UNSENT_BYTES_MAX:
            return False
        try:
            piece = self.source.recv(PIECE_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:
            raise _Ended(RelayExit(self.source, _is_gone(error))) from None
        if not piece:
            raise _Ended(RelayExit(self.source, True))
        self.unsent += piece
        return True

    def write(self) -> bool:
        """Writes what the sink takes now; True if it took something. Raises _Ended."""
        if not self.unsent:
            return False
        try:
            with memoryview(self.unsent) as unsent:
                sent = self.sink.send(unsent[:PIECE_BYTES])
        except BlockingIOError:
            return False
        except OSError as error:
            raise _Ended(RelayExit(self.sink, _is_gone(error))) from None
        del self.unsent[:sent]
        return True


class _Ended(Exception):
    def __init__(self, end: RelayExit) -> None:
        super().__init__()
        self.end = end


def as_stream(link: socket.socket) -> Stream:
    """Returns a socket as a stream, also one over TLS."""
    return GateStream(link) if isinstance(link, ssl.SSLSocket) else link


def relay(one: Stream, other: Stream, early: bytes = b"") -> RelayExit:
    """Carries bytes until either end is over, and returns which; `early` ones go to `other` first.

    The caller closes both. Whoever shuts one of them down ends it.
    """
    for stream in (one, other):
        stream.settimeout(0.0)
    there, back = _Direction(one, other, bytearray(early)), _Direction(other, one)
    try:
        while True:
            # Read before waiting: over TLS bytes may be here that the socket does not show.
            moved = [step() for way in (there, back) for step in (way.read, way.write)]
            if not any(moved):
                _wait(there, back)
    except _Ended as ended:
        _send_last(back if ended.end.stream is other else there)
        return ended.end


def _wait(there: _Direction, back: _Direction, timeout_s: float = LOOK_S) -> None:
    poll = select.poll()
    for way, opposite in ((there, back), (back, there)):
        reads = select.POLLIN if len(way.unsent) < UNSENT_BYTES_MAX else 0
        poll.register(way.source, reads | (select.POLLOUT if opposite.unsent else 0))
    poll.poll(timeout_s * 1000)


def _send_last(way: _Direction) -> None:
    """Sends what came from an end before it was over."""
    give_up_s = monotonic() + LAST_S
    try:
        while way.unsent and monotonic() < give_up_s:
            if not way.write():
                poll = select.poll()
                poll.register(way.sink, select.POLLOUT)
                poll.poll(LOOK_S * 1000)
    except _Ended:
        return


def _is_gone(error: OSError) -> bool:
    """Returns whether the peer's machine says that no process has the connection any more."""
    is_cut = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
    return is_cut or isinstance(error, ConnectionResetError | BrokenPipeError)
