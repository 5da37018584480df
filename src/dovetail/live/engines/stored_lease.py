"""What a node keeps of its lease and its fence, so that a later agent, and keepers, find both."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

from dovetail.files.whole_file import PRIVATE, write_whole
from dovetail.live.node.fence import Fence
from dovetail.live.node.lease import Lease

LEASE_BYTES = 256
"""The size of each stored lease, so that one covers the last."""


class StoredFence(Fence):
    """A fence that a later agent of the node finds again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            stored = json.loads(path.read_text(encoding="ascii"))
            super().__init__(stored["epoch"], stored["jobs"], stored.get("void_before", 0))
        except (OSError, ValueError, KeyError, TypeError):
            super().__init__()

    def store(self) -> None:
        """Writes the file. Not synced: a machine that loses power loses its workers too."""
        try:
            content = {"epoch": self.epoch, "jobs": self.jobs(), "void_before": self.void_before}
            write_whole(self._path, json.dumps(content), mode=PRIVATE, synced=False)
        except OSError:
            # On a full disk the present agent still remembers.
            return


class StoredLease(Lease):
    """A lease that later agents of the node find again, and that the keepers of its workers heed.

    Its times are those of `boot_s`: that clock goes on while the machine is suspended.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            stored = json.loads(path.read_text(encoding="ascii"))
            if stored["boot"] == _boot():
                super().__init__(stored["until_s"], stored["length_s"], stored["grace_s"])
                return
        except (OSError, ValueError, KeyError, TypeError):
            pass
        super().__init__()

    def store(self) -> None:
        """Writes the file. Not synced: a machine that loses power loses its workers too."""
        content = {
            "boot": _boot(),
            "until_s": self.until_s,
            "length_s": self.length_s,
            "grace_s": self.grace_s,
            "again_s": self.until_s,
        }
        text = json.dumps(content).ljust(LEASE_BYTES).encode("ascii")
        try:
            write_whole(self.path, text, mode=PRIVATE, synced=False)
        except OSError:
            # A full disk has room for what it has already. If that fails too, keepers know only of
            # less time: they kill early, never late.
            with suppress(OSError):
                _write_over(self.path, text)


def _write_over(path: Path, text: bytes) -> None:
    """Writes over the beginning of a file that is there. Raises OSError."""
    file = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.pwrite(file, text, 0)
    finally:
        os.close(file)


def boot_s() -> float:
    """Returns the seconds since this machine was started, those in which it slept included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
