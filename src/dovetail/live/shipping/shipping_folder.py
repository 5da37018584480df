"""The files of one job on a node, and what of them travels: steps that a connection may cut.

Each transfer is a generator that makes one request at a time, and yields whether it got on. After a
cut it is begun again: both ends know by offsets and hashes how far they were.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path

from dovetail.files.whole_file import PRIVATE, write_whole
from dovetail.live.jobs.lineage import lineage_folder
from dovetail.live.shipping.shipped_draft import (
    SCRIPT,
    ShippedDraft,
    ShippingDiskFull,
    checkpoints_in,
    decoded,
    described,
    encoded,
    step_of,
    unlinked,
)
from dovetail.wire.shipping import (
    PIECE_BYTES,
    AppendOutput,
    AskFiles,
    FilePiece,
    FilesFound,
    GetPiece,
    PutCheckpoint,
    ShippedFile,
    ShippedTo,
    ShippingRefused,
    ShippingReply,
    ShippingRequest,
)

FILE = ".shipping.json"
OUTPUT = "output.log"
STATE_BYTES_MAX = 4096
Ask = Callable[[ShippingRequest], ShippingReply]
"""Makes a request and returns the answer. Raises OSError if the connection is cut."""


class ShippingFolder:
    """The folder of a job on a node. For one thread."""

    def __init__(self, folder: Path, job: int) -> None:
        self.folder, self.job = folder, job
        self.waits_for = ""
        self._stream, self._inode, self._offset = "", -1, -1
        self._unended = b""
        self._shipped: set[str] = set()
        self._described: tuple[tuple[Path, int, int], ShippedFile] | None = None
        self._generation, self._lineage = -1, 0
        with suppress(OSError, ValueError, KeyError, TypeError):
            with open(folder / FILE, encoding="ascii", opener=unlinked) as file:
                said = json.loads(file.read(STATE_BYTES_MAX))
            self._generation, self._lineage = int(said["generation"]), int(said["lineage"])
            self._stream, self._inode = str(said["stream"]), int(said["inode"])

    @property
    def unshipped_step(self) -> int:
        """Returns the step of the newest checkpoint if it is still to be shipped, else -1."""
        newest = checkpoints_in(lineage_folder(self.folder, self._lineage))[:1]
        return step_of(newest[0].name) if newest and newest[0].name not in self._shipped else -1

    @property
    def newest_step(self) -> int:
        """Returns the step of the newest checkpoint, -1 without any."""
        newest = checkpoints_in(lineage_folder(self.folder, self._lineage))
        return step_of(newest[0].name) if newest else -1

    # Output.

    def push_output(self, ask: Ask) -> Iterator[bool]:
        """Ships what workers write, line by line where that is possible; never ends."""
        while True:
            yield self._push_piece(ask)

    def _push_piece(self, ask: Ask) -> bool:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            file = os.open(self.folder / OUTPUT, flags)
        except OSError:
            return False
        try:
            status = os.fstat(file)
            if not self._stream or status.st_ino != self._inode or status.st_size < self._offset:
                self._stream, self._inode = secrets.token_hex(8), status.st_ino
                self._offset = 0
                self._keep()
            if self._offset < 0 and not self._told(ask(AppendOutput(self.job, self._stream, -1))):
                return False
            data = os.pread(file, PIECE_BYTES, self._offset)
        finally:
            os.close(file)
        # Outputs of several nodes become one: a line that is being written waits for its end once.
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and data != self._unended:
            self._unended = data
            return False
        data, self._unended = whole or data, b""
        if not data:
            return False
        return self._told(ask(AppendOutput(self.job, self._stream, self._offset, encoded(data))))

    def _told(self, reply: ShippingReply) -> bool:
        """Goes on from where the controller is; False if it takes nothing now, as for no room."""
        if isinstance(reply, ShippedTo):
            self._offset = reply.offset
        return isinstance(reply, ShippedTo)

    @property
    def is_shipped(self) -> bool:
        """True if all output, and the newest checkpoint, were shipped or will never be taken."""
        return self.is_output_shipped and self.unshipped_step < 0

    @property
    def is_output_shipped(self) -> bool:
        """True if all output was shipped."""
        try:
            return (self.folder / OUTPUT).stat().st_size == self._offset
        except OSError:
            return True

    # Checkpoints.

    def push_checkpoints(self, ask: Ask) -> Iterator[bool]:
        """Ships the newest checkpoint, then the one that is newest by then; never ends."""
        while True:
            newest = checkpoints_in(lineage_folder(self.folder, self._lineage))[:1]
            if not newest or newest[0].name in self._shipped or self._generation < 0:
                yield False
                continue
            # A checkpoint is written whole and never changed; it may be removed for a newer one.
            with suppress(FileNotFoundError):
                yield from self._push_checkpoint(ask, newest[0])

    def _push_checkpoint(self, ask: Ask, path: Path) -> Iterator[bool]:
        lineage, generation = self._lineage, self._generation
        with open(path, "rb", opener=unlinked) as stream:
            status = os.fstat(stream.fileno())
            key = (path, status.st_mtime_ns, status.st_size)
            if self._described is None or self._described[0] != key:
                # Once: the connection may be cut while a large file is read.
                self._described = key, described(path)
            file, offset = self._described[1], 0
            data = b""
            while True:
                piece = PutCheckpoint(self.job, lineage, generation, file, offset, encoded(data))
                reply = ask(piece)
                if isinstance(reply, ShippingRefused) and not reply.forever:
                    # As for want of room: asked again later, while logs go on.
                    yield False
                    data = b""
                    continue
                if not isinstance(reply, ShippedTo) or reply.offset >= file.size:
                    self._shipped = {name for name in self._shipped if name > path.name}
                    self._shipped.add(path.name)
                    return
                offset = reply.offset
                stream.seek(offset)
                data = stream.read(PIECE_BYTES)
                yield True

    # What a start needs.

    def fetch(self, ask: Ask, lineage: int, asked: AskFiles) -> Iterator[bool]:
        """Fetches what a worker needs. While it waits for another node, `waits_for` says why."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = yield from self._found(ask, asked)
        folder = lineage_folder(self.folder, lineage)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file in found:
            if file.name != SCRIPT and step_of(file.name) < 0:
                raise ValueError(f"{file.name[:80]!r} is no file of a job")
            target = (self.folder if file.name == SCRIPT else folder) / file.name
            # Workers of the job may run here, and have saved since.
            is_older = 0 <= step_of(file.name) < self.newest_step and not asked.fresh
            if not (is_older or _is_there(target, file)):
                yield from self._fetch_file(ask, lineage, file, target.parent)
        if asked.fresh:
            # What is left of an earlier start is superseded: a newer name would win over this one.
            names = {file.name for file in found}
            for path in checkpoints_in(folder):
                if path.name not in names:
                    path.unlink(missing_ok=True)
            self._shipped = {name for name in names if step_of(name) >= 0}
        self._lineage, self._generation = lineage, max(self._generation, asked.generation)
        self._keep()
        self.waits_for = ""

    def _found(self, ask: Ask, asked: AskFiles) -> Generator[bool, None, tuple[ShippedFile, ...]]:
        """Returns which files there are, once none of them is awaited from another node."""
        while True:
            found = ask(asked)
            if isinstance(found, FilesFound) and not found.why:
                return found.files
            if isinstance(found, FilesFound | ShippingRefused):
                self.waits_for = found.why
            yield False

    def _fetch_file(
        self, ask: Ask, lineage: int, file: ShippedFile, folder: Path
    ) -> Iterator[bool]:
        while True:
            try:
                partial = ShippedDraft(folder, file)
                break
            except ShippingDiskFull as error:
                self.waits_for = str(error)
                yield False
        data = b""
        while not partial.add(partial.offset, data):
            size, come = file.size >> 20, partial.offset >> 20
            self.waits_for = f"{file.name} is on its way: {come} of {size} MB have come"
            yield True
            reply = ask(GetPiece(self.job, lineage, file, partial.offset))
            if not isinstance(reply, FilePiece):
                why = reply.why if isinstance(reply, ShippingRefused) else "no piece"
                raise ConnectionError(f"{file.name} of job {self.job}: {why}")
            data = decoded(reply.data)

    def _keep(self) -> None:
        content = {
            "generation": self._generation,
            "lineage": self._lineage,
            "stream": self._stream,
            "inode": self._inode,
        }
        write_whole(self.folder / FILE, json.dumps(content), mode=PRIVATE, synced=False)


def _is_there(path: Path, file: ShippedFile) -> bool:
    """True if a file is there, in this version."""
    try:
        return described(path) == file
    except OSError:
        return False
