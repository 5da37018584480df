"""The frames between the client of an interactive job and the keeper of its process.

A frame is one byte for its kind, four for the length of what follows, and that. Agent and
controller carry the bytes and look at none of them, so a session goes on where it was when either
begins anew: both ends count the bytes of input and output, keep what the other has not taken, and
send it again. What is untaken is bounded, so that neither end can fill the memory of anybody.

Keepers import this file, and so it imports the standard library alone.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

PTY, PIPES = "pty", "pipes"
"""What the process of an interactive job has: a pseudo-terminal, or a pipe for each stream."""
KEY_BYTES = 16
PIECE_BYTES = 1 << 14
"""The most that one frame carries of a stream."""
OUTPUT_BYTES_MAX, INPUT_BYTES_MAX = 1 << 18, 1 << 16
"""Bytes of output, and of input, at most that the other end has not taken yet."""
RETURN_S = 120.0
"""How long a process waits for its client to come, or to come back, and a client to reach it."""
SIDE_MAX = 1 << 15
"""The most lines or columns of a window: larger is no window, and no number of the kernel's."""

_HEAD = struct.Struct("!BI")
_ATTACH = struct.Struct(f"!{KEY_BYTES}sQHH")
_COUNT = struct.Struct("!Q")
_WINDOW = struct.Struct("!HH")
_SIGNAL = struct.Struct("!B")
_EXIT = struct.Struct("!i")

ATTACH, INPUT, INPUT_END, TAKEN, WINDOW, SIGNAL, DONE = range(1, 8)
"""What a client sends: who it is, its input, how much output it has, its window, a signal, its
thanks for the exit code.
"""
ATTACHED, OUTPUT, ERROR_OUTPUT, ACCEPTED, EXIT, REFUSED = range(16, 22)
"""What a keeper sends: where input goes on, both outputs, how much input it has, the end."""
FROM_CLIENT: Mapping[int, tuple[int, int]] = {
    ATTACH: (_ATTACH.size, _ATTACH.size),
    INPUT: (1, PIECE_BYTES),
    INPUT_END: (0, 0),
    TAKEN: (_COUNT.size, _COUNT.size),
    WINDOW: (_WINDOW.size, _WINDOW.size),
    SIGNAL: (_SIGNAL.size, _SIGNAL.size),
    DONE: (0, 0),
}
FROM_KEEPER: Mapping[int, tuple[int, int]] = {
    ATTACHED: (_COUNT.size, _COUNT.size),
    OUTPUT: (1, PIECE_BYTES),
    ERROR_OUTPUT: (1, PIECE_BYTES),
    ACCEPTED: (_COUNT.size, _COUNT.size),
    EXIT: (_EXIT.size, _EXIT.size),
    REFUSED: (0, 200),
}
"""The shortest and the longest content of each kind of frame."""


class FrameError(ValueError):
    """The peer sent what is no frame, or one that does not belong here."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: its kind and its content."""

    kind: int
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Attach:
    """Who comes (the same `key` each time), the output it has, and its window (0: none)."""

    key: bytes
    output_at: int
    rows: int = 0
    columns: int = 0


def frame(kind: int, content: bytes = b"") -> bytes:
    """Returns the bytes of a frame."""
    return _HEAD.pack(kind, len(content)) + content


def attach(who: Attach) -> bytes:
    """Returns the frame by which a client begins."""
    content = _ATTACH.pack(who.key, who.output_at, *bounded(who.rows, who.columns))
    return frame(ATTACH, content)


def attach_of(content: bytes) -> Attach:
    """Returns who comes."""
    return Attach(*_ATTACH.unpack(content))


def count(kind: int, number: int) -> bytes:
    """Returns a frame with a number of bytes."""
    return frame(kind, _COUNT.pack(number))


def count_of(content: bytes) -> int:
    """Returns the number of bytes in a frame."""
    return int(_COUNT.unpack(content)[0])


def window(rows: int, columns: int) -> bytes:
    """Returns the frame of a window."""
    return frame(WINDOW, _WINDOW.pack(*bounded(rows, columns)))


def window_of(content: bytes) -> tuple[int, int]:
    """Returns rows and columns."""
    rows, columns = _WINDOW.unpack(content)
    return int(rows), int(columns)


def bounded(rows: int, columns: int) -> tuple[int, int]:
    """Returns a window that a frame can hold."""
    return min(max(rows, 0), SIDE_MAX), min(max(columns, 0), SIDE_MAX)


def a_signal(number: int) -> bytes:
    """Returns the frame of a signal."""
    return frame(SIGNAL, _SIGNAL.pack(number))


def signal_of(content: bytes) -> int:
    """Returns the number of a signal."""
    return content[0]


def exit_frame(code: int) -> bytes:
    """Returns the frame of an exit code, -N after signal N."""
    return frame(EXIT, _EXIT.pack(code))


def exit_of(content: bytes) -> int:
    """Returns an exit code."""
    return int(_EXIT.unpack(content)[0])


def frames(kind: int, data: bytes) -> bytes:
    """Returns the frames that carry a piece of a stream."""
    pieces = range(0, len(data), PIECE_BYTES)
    return b"".join(frame(kind, data[at : at + PIECE_BYTES]) for at in pieces)


class FrameBuffer:
    """Bytes as they came in, taken out frame by frame; `sizes` are those of the peer's frames."""

    def __init__(self, sizes: Mapping[int, tuple[int, int]]) -> None:
        self._sizes = sizes
        self._bytes = bytearray()

    def add(self, piece: bytes) -> None:
        """Appends what came in."""
        self._bytes += piece

    def take(self) -> Frame | None:
        """Returns the next whole frame, None if none is whole. Raises FrameError."""
        if len(self._bytes) < _HEAD.size:
            return None
        kind, length = _HEAD.unpack_from(self._bytes)
        least, most = self._sizes.get(kind, (1, 0))
        # Before its content is here: nobody collects what will be refused.
        if not least <= length <= most:
            raise FrameError(f"a frame of kind {kind} has {length} bytes")
        if len(self._bytes) < _HEAD.size + length:
            return None
        content = bytes(self._bytes[_HEAD.size : _HEAD.size + length])
        del self._bytes[: _HEAD.size + length]
        return Frame(kind, content)
