"""The accounts of this machine, as its user database knows them: ids, groups, home and shell.

Nothing here authenticates anybody: the kernel says which uid is at the other end of a socket.
"""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.core.errors import InputError

UID_MIN = 1000
"""The first uid of people (UID_MIN in login.defs); below are root and the system's services."""
NOBODY = 65534
"""The uid to which the kernel maps users that it does not know."""


@dataclass(frozen=True, slots=True)
class UserEntry:
    """A user of this machine; `groups` has all, the first of them with number `gid` too."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str


def user_entry(user: str | int) -> UserEntry | None:
    """Returns the entry of a name or uid, None if this machine has none."""
    try:
        row = pwd.getpwuid(user) if isinstance(user, int) else pwd.getpwnam(user)
    except (KeyError, OverflowError):
        return None
    groups = tuple(sorted(set(os.getgrouplist(row.pw_name, row.pw_gid))))
    return UserEntry(row.pw_name, row.pw_uid, row.pw_gid, groups, row.pw_dir, row.pw_shell)


def group_ids(where: str, names: Sequence[str]) -> tuple[int, ...]:
    """Returns the numbers of groups. Raises InputError for one that this machine does not have."""
    ids = []
    for name in names:
        try:
            ids.append(grp.getgrnam(name).gr_gid)
        except KeyError:
            raise InputError(
                where, f"there is no group '{name}' here", "see getent group"
            ) from None
    return tuple(ids)


def become(entry: UserEntry) -> None:
    """Makes this process run as a user for good. Raises OSError.

    Groups go first, then gid and uid with their saved values: after that there is no way back.
    """
    os.setgroups(entry.groups)
    os.setresgid(entry.gid, entry.gid, entry.gid)
    os.setresuid(entry.uid, entry.uid, entry.uid)
    os.environ.update(HOME=entry.home, USER=entry.name, LOGNAME=entry.name)
