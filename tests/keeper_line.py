"""A connection to the keeper of an interactive worker, as a client has it."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

from dovetail.live.engines.agent_terminals import keeper_of
from dovetail.wire.terminal import FROM_KEEPER, OUTPUT, Frame, FrameBuffer
from patience import PATIENCE_S, until


def line_of(place: Path) -> Line:
    """Returns a connection to the keeper of a worker's folder, once it listens."""
    found: list[Line] = []

    def listens() -> bool:
        with suppress(FileNotFoundError, ConnectionRefusedError):
            found.append(Line(keeper_of(place)))
        return bool(found)

    until(listens, lambda: (place / "keeper.err").read_text())
    return found[0]


class Line:
    """One connection."""

    def __init__(self, link: socket.socket) -> None:
        link.settimeout(PATIENCE_S)
        self.link, self.frames = link, FrameBuffer(FROM_KEEPER)
        self.taken = 0

    def say(self, *said: bytes) -> Line:
        with suppress(BrokenPipeError, ConnectionResetError):
            self.link.sendall(b"".join(said))
        return self

    def next(self) -> Frame | None:
        """Returns the next frame; None at the end of the connection."""
        while (found := self.frames.take()) is None:
            try:
                piece = self.link.recv(1 << 16)
            except ConnectionResetError:
                piece = b""
            if not piece:
                return None
            self.frames.add(piece)
        return found

    def until(self, *kinds: int) -> Frame:
        """Returns the next frame of one of these kinds."""
        while (found := self.next()) is not None:
            if found.kind in kinds:
                return found
        raise AssertionError(f"it ended without {kinds}")

    def output(self, size: int) -> bytes:
        """Returns so much of the output."""
        data = b""
        while len(data) < size:
            data += self.until(OUTPUT).content
        self.taken += len(data)
        return data

    def is_dropped(self) -> bool:
        """Returns whether the keeper has closed the connection, after what it had to say."""
        while self.next() is not None:
            pass
        return True
