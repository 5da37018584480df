"""Unix sockets: the mode of the file admits its owner or all, the kernel names the peer."""

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


def listen(path: Path, *, for_all: bool = False) -> socket.socket:
    """Returns a socket that listens on a path, for its owner alone or for all. Raises InputError.

    A file that is there was left by a process that is gone: the lock of the folder is ours.
    """
    check_path(path)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o111 if for_all else 0o177)
    try:
        listener.bind(os.fspath(path))
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    listener.listen(BACKLOG)
    return listener


def remove_socket(path: Path, inode: int) -> None:
    """Removes the file of a socket, unless another process listens there by now.

    A folder may have been removed and made anew meanwhile. To be called before the socket is
    closed: as long as it is open no other file gets its inode.
    """
    with suppress(OSError):
        if path.stat().st_ino == inode:
            path.unlink()


def peer_uid(connection: socket.socket) -> int:
    """Returns the user id of the peer of a Unix socket, from the kernel."""
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, uid, _ = struct.unpack("3i", credentials)
    return int(uid)


def is_same_user(connection: socket.socket) -> bool:
    """True if the peer runs as the same user."""
    return peer_uid(connection) == os.geteuid()
