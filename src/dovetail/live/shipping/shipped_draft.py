"""A file that arrives in pieces: it gets its name only once it is whole and has the right hash."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from pathlib import Path
from typing import Protocol

from dovetail.wire.shipping import PIECE_BYTES, ShippedFile

CHECKPOINT = re.compile(r"checkpoint-(\d{12})\.pt", re.ASCII)
SCRIPT = "script"
SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
ROOM_BYTES = 1 << 30
"""Left free on the disk of a receiver: its own state needs room more than any checkpoint."""
READ_BYTES = 1 << 20


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


class ShippingDiskFull(OSError):
    """The receiver's disk has no room for a file."""


class ShippedDraft:
    """The pieces of one file so far, in a draft beside its later place.

    The draft outlives the process, and its name has the hash: another version has another draft.
    """

    def __init__(self, folder: Path, file: ShippedFile) -> None:
        self.file, self._target = file, folder / file.name
        self._draft = folder / f".{file.name}.{file.sha256[:16]}.part"
        self._hash: _Hash = hashlib.sha256()
        self.offset = 0
        if self._draft.exists():
            self._hash, self.offset = _hash_of(self._draft)
        elif file.size + ROOM_BYTES > _free_bytes(folder):
            raise ShippingDiskFull(f"no room for the {file.size >> 20} MB of {file.name}")

    def add(self, offset: int, data: bytes) -> bool:
        """Adds a piece if it is the next one; True once the file is there. Raises OSError."""
        if offset == self.offset and self.offset + len(data) <= self.file.size:
            with open(self._draft, "ab", opener=_private) as draft:
                if draft.tell() != self.offset:
                    # A write that failed halfway left more than was counted.
                    draft.truncate(self.offset)
                draft.write(data)
            self._hash.update(data)
            self.offset += len(data)
        if self.offset < self.file.size:
            return False
        return self._finish()

    def _finish(self) -> bool:
        if self._hash.hexdigest() != self.file.sha256:
            self._draft.unlink(missing_ok=True)
            self._hash, self.offset = hashlib.sha256(), 0
            return False
        if not self.file.size:
            self._draft.touch(mode=0o600)
        with open(self._draft, "rb") as draft:
            os.fsync(draft.fileno())
        if self.file.name == SCRIPT:
            self._draft.chmod(0o700)
        self._draft.replace(self._target)
        return True


def step_of(name: str) -> int:
    """Returns the step of a checkpoint, -1 for another file."""
    match = CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else -1


def checkpoints_in(folder: Path) -> list[Path]:
    """Returns the checkpoints of a folder, newest first; none if it is not there."""
    try:
        return sorted((p for p in folder.iterdir() if step_of(p.name) >= 0), reverse=True)
    except OSError:
        return []


def described(path: Path) -> ShippedFile:
    """Returns what names a whole file. Raises OSError."""
    digest, size = _hash_of(path)
    return ShippedFile(path.name, size, digest.hexdigest())


def piece_at(path: Path, offset: int) -> str:
    """Returns the piece of a file from an offset on. Raises OSError."""
    with open(path, "rb", opener=unlinked) as file:
        file.seek(offset)
        return encoded(file.read(PIECE_BYTES))


def encoded(data: bytes) -> str:
    """Returns bytes as a field of a message."""
    return base64.b64encode(data).decode("ascii")


def decoded(text: str) -> bytes:
    """Returns the bytes of a field. Raises ValueError if they are none, or too many."""
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise ValueError("a piece is no base64") from None
    if len(data) > PIECE_BYTES:
        raise ValueError(f"a piece is over {PIECE_BYTES} bytes")
    return data


def _hash_of(path: Path) -> tuple[_Hash, int]:
    digest, size = hashlib.sha256(), 0
    with open(path, "rb", opener=unlinked) as file:
        while piece := file.read(READ_BYTES):
            digest.update(piece)
            size += len(piece)
    return digest, size


def _free_bytes(folder: Path) -> int:
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)


def unlinked(path: str, flags: int) -> int:
    """Opens a file itself, for `open`. Raises OSError."""
    # Jobs write into these folders: a link to another file is not read, and no pipe waited for.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
