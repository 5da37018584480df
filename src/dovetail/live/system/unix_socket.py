"""Unix sockets for one user: who may connect is a matter of the file, who did says the kernel."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

from dovetail.core.errors import InputError

PATH_BYTES_MAX = 107
"""The kernel's limit for the path of a Unix socket."""
BACKLOG = 128


def check_path(path: Path) -> None:
    """Raises InputError for a path that the kernel takes for no socket."""
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise InputError(
            str(path),
            f"a socket's path has at most {PATH_BYTES_MAX} bytes",
            "use a shorter --home",
        )


def listen(path: Path) -> socket.socket:
    """Returns a socket that listens on a path for its owner alone. Raises InputError.

    What lies there is of a process that is gone: the lock of the folder says that none runs.
    """
    check_path(path)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    listener.listen(BACKLOG)
    return listener


def take_away(path: Path, inode: int) -> None:
    """Removes the file of a socket, unless another process listens there by now.

    A folder may have been removed and made anew meanwhile. To be called before the socket is
    closed: as long as it is open no other file gets its inode.
    """
    with suppress(OSError):
        if path.stat().st_ino == inode:
            path.unlink()


def uid_behind(connection: socket.socket) -> int:
    """Returns the user at the other end of a Unix socket, as the kernel says."""
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, uid, _ = struct.unpack("3i", credentials)
    return int(uid)


def is_ours(connection: socket.socket) -> bool:
    """Tells whether the other side runs as the same user as we."""
    return uid_behind(connection) == os.geteuid()
