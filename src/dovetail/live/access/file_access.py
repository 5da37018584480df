"""Files touched with the rights of a user by one thread of root's, as servers of files do it.

The kernel checks files by a uid of their own (setfsuid(2)), which each thread has for itself. With
it root's rights over files go and come back (capabilities(7)), so that no link that the user has
put anywhere leads further than the user may go. Processes and sockets are not concerned.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_LIBC = ctypes.CDLL(None, use_errno=True)
_ASK = -1
"""No uid: the kernel changes nothing and says which there is."""


@contextmanager
def file_access_of(uid: int, gid: int) -> Iterator[None]:
    """Gives this thread no other rights on files than a user has. Raises PermissionError.

    The process must have given up root's further groups (`os.setgroups`): these stay.
    """
    _LIBC.setfsgid(gid)
    _LIBC.setfsuid(uid)
    try:
        if (_LIBC.setfsuid(_ASK), _LIBC.setfsgid(_ASK)) != (uid, gid):
            raise PermissionError(f"files cannot be touched as uid {uid}, gid {gid}")
        yield
    finally:
        _LIBC.setfsuid(os.geteuid())
        _LIBC.setfsgid(os.getegid())
