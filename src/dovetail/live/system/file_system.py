"""Which file system a folder is on, and whether a store may lie there.

SQLite's write-ahead log is shared memory between the processes that have the store open, and locks
that a file system of several machines does not keep reliably: https://sqlite.org/wal.html says that
it "does not work over a network filesystem".
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from dovetail.core.errors import InputError

MOUNTS = Path("/proc/self/mountinfo")
LOCAL = frozenset(
    (
        "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "fuse.fuse-overlayfs", "jfs",
        "overlay", "ramfs", "reiserfs", "tmpfs", "ubifs", "xfs", "zfs",
    )
)  # fmt: skip
"""File systems of one machine, on which a store works."""
SHARED = frozenset(
    (
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "fhgfs", "fuse", "gfs", "gfs2",
        "glusterfs", "gpfs", "lustre", "mmfs", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs",
        "panfs", "pvfs2", "smb2", "smb3", "smbfs", "vboxsf", "vmhgfs", "wekafs",
    )
)  # fmt: skip
"""File systems of several machines, by their names in the table of mounts; so is any `fuse.X`."""
_ESCAPED = re.compile(r"\\([0-7]{3})")


def file_system_of(path: Path, mounts: str) -> str:
    """Returns the file system of a path in a text of `MOUNTS`; empty if none is named.

    Of a path that does not exist it is that of the folder in which it would be made.
    """
    real, device = path.resolve(), _device_of(path)
    found, score = "", (False, -1)
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = Path(_ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), fields[4]))
        if not real.is_relative_to(point):
            continue
        # A later mount hides an earlier one, also one further down: the device tells them apart.
        rank = (fields[2] == device, len(point.parts))
        if rank >= score:
            found, score = after.split()[0], rank
    return found


def check_local(home: Path, mounts: str | None = None) -> str:
    """Returns a note for the user if nothing is known of a folder's file system, else nothing.

    Raises InputError for a folder on a file system of several machines. `mounts` is the text of
    `MOUNTS` (default: as it is).
    """
    if mounts is None:
        try:
            mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            mounts = ""
    name = file_system_of(home, mounts)
    if name in LOCAL:
        return ""
    if name in SHARED or name.startswith("fuse."):
        raise InputError(
            str(home),
            f"it is on a network file system ({name}), where the store would be damaged",
            "choose a --home on a local disk of this machine",
        )
    return (
        f"{home} is on a file system that dovetail does not know ({name or 'not in the table'});"
        " its store needs a local one"
    )


def _device_of(path: Path) -> str:
    """Returns the device of the nearest folder that exists, as the table of mounts writes it."""
    for there in (path, *path.absolute().parents):
        with suppress(OSError):
            device = there.stat().st_dev
            return f"{os.major(device)}:{os.minor(device)}"
    return ""
