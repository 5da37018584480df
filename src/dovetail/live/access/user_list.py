"""Who may use a cluster of several users, and who operates it, as its operator's file states.

```toml
controller = "dovetail"     # the account that runs the controller: not root, and nobody's own
groups = ["gpu"]            # who may use the cluster: members of these groups,
users = ["ann"]             # and these users
operators = ["eve"]         # may change every job, nodes and the controller
max_submitted_jobs = 1000   # of each user, waiting and running; 0: no limit

[[user]]                    # other limits of one user
name = "ann"
max_submitted_jobs = 5000
```

Limits on GPUs and running jobs are in the cluster's file, since policies must know them.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dovetail.core.errors import InputError, nearest
from dovetail.live.access.user_entry import NOBODY, UID_MIN, UserEntry, group_ids, user_entry

LOG = logging.getLogger(__name__)
ROOT = 0
_NAMES = ("users", "groups", "operators")
_FIELDS = ("controller", *_NAMES, "max_submitted_jobs", "user")


@dataclass(frozen=True, slots=True)
class UserList:
    """The users of a cluster. `submitted_max` is the most jobs of each, 0 for no limit."""

    file: Path
    controller: UserEntry
    users: frozenset[str] = frozenset()
    groups: frozenset[int] = frozenset()
    operators: frozenset[str] = frozenset()
    submitted_max: int = 0
    submitted_max_of: tuple[tuple[str, int], ...] = ()

    def is_operator(self, user: str) -> bool:
        """Returns whether a user may change what is not their own (Slurm: Operator)."""
        entry = user_entry(user)
        return entry is not None and (
            entry.uid in (ROOT, self.controller.uid) or entry.name in self.operators
        )

    def why_not_admitted(self, user: str) -> str:
        """Returns why a user may not talk to the controller, empty if they may."""
        return "" if self.is_operator(user) else self.why_not_run(user)

    def why_not_run(self, user: str) -> str:
        """Returns why jobs may not run as a user, empty if they may."""
        entry = user_entry(user)
        if entry is None:
            return f"user {user} is unknown on this machine"
        if not UID_MIN <= entry.uid < NOBODY:
            return f"no job runs as user {entry.name}: uid {entry.uid} is not a person's"
        if entry.uid == self.controller.uid:
            return f"no job runs as user {entry.name}, who runs the controller"
        listed = entry.name in self.users or entry.name in self.operators
        if not listed and self.groups.isdisjoint(entry.groups):
            return f"user {entry.name} is not in {self.file}, nor in a group of it"
        return ""

    def most_submitted(self, user: str) -> int:
        """Returns how many jobs of a user may wait and run, 0 for no limit."""
        return dict(self.submitted_max_of).get(user, self.submitted_max)


class StoredUsers:
    """The users in a file as it is now; while it cannot be read, as it was last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = _state(path)
        self._users = read_user_list(path)
        self._guard = threading.Lock()

    @staticmethod
    def for_root(path: Path) -> StoredUsers:
        """Returns the users by whom an agent goes, which is root then. Raises InputError."""
        if os.geteuid() != ROOT:
            raise InputError("--users", "only root may run jobs as other users", "start it as root")
        return StoredUsers(path)

    def users(self) -> UserList:
        """Returns the users; any thread may call."""
        with self._guard:
            seen = _state(self._path)
            if seen != self._seen:
                self._seen = seen
                try:
                    self._users = read_user_list(self._path)
                    LOG.info("%s has changed and is in force", self._path)
                except InputError as error:
                    LOG.error("%s; what it said before is still in force", error)
            return self._users


def _state(path: Path) -> tuple[int, int, int]:
    """Returns what changes when a file is written or replaced."""
    try:
        seen = path.stat()
    except OSError:
        return 0, 0, 0
    return seen.st_ino, seen.st_mtime_ns, seen.st_size


def read_user_list(path: Path) -> UserList:
    """Returns the users in a file. Raises InputError.

    Root starts jobs by it, so nobody but root, or whom we run as, may be able to change it.
    """
    where = str(path)
    table = _table(path)
    for key in table:
        if key not in _FIELDS:
            raise InputError(where, f"unknown field '{key}'", nearest(key, _FIELDS))
    named = {key: _texts(where, key, table.get(key, [])) for key in _NAMES}
    for user in (*named["users"], *named["operators"]):
        if user_entry(user) is None:
            raise InputError(where, f"there is no user '{user}' here", "see getent passwd")
    if not any(named.values()):
        raise InputError(where, "it names nobody", 'as in groups = ["gpu"], or users = ["ann"]')
    return UserList(
        path,
        _controller(where, table.get("controller")),
        frozenset(named["users"]),
        frozenset(group_ids(where, named["groups"])),
        frozenset(named["operators"]),
        _whole(where, "max_submitted_jobs", table.get("max_submitted_jobs", 0)),
        tuple(_own_limits(where, table.get("user", []))),
    )


def _table(path: Path) -> Mapping[str, object]:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(file, "rb") as opened:
            seen = os.fstat(file)
            if not stat.S_ISREG(seen.st_mode):
                raise InputError(str(path), "is no plain file")
            if seen.st_uid not in (ROOT, os.geteuid()) or seen.st_mode & 0o022:
                mend = f"chown root {path}; chmod 644 {path}"
                raise InputError(str(path), "others than root may change it", mend)
            return tomllib.load(opened)
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(str(path), f"cannot be read as TOML: {error}") from None


def _controller(where: str, name: object) -> UserEntry:
    if not isinstance(name, str) or not name:
        mend = 'as in controller = "dovetail", made by: useradd --system dovetail'
        raise InputError(where, "'controller' names the account that runs the controller", mend)
    entry = user_entry(name)
    if entry is None:
        raise InputError(where, f"there is no user '{name}' here", f"useradd --system {name}")
    if entry.uid == ROOT:
        what = "the controller does not run as root: it reads what everybody sends"
        raise InputError(where, what, "useradd --system dovetail, and name that")
    return entry


def _texts(where: str, key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
        raise InputError(where, f"'{key}' must be a list of names", f'as in {key} = ["ann"]')
    return tuple(value)


def _whole(where: str, key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(where, f"'{key}' must be a whole number of 0 or more, not {value!r}")
    return value


def _own_limits(where: str, rows: object) -> list[tuple[str, int]]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(where, "'user' must be a list of tables", "write [[user]]")
    limits: dict[str, int] = {}
    for number, row in enumerate(rows, start=1):
        place = f"{where}, user {number}"
        for key in row:
            if key not in ("name", "max_submitted_jobs"):
                mend = nearest(key, ("name", "max_submitted_jobs"))
                raise InputError(place, f"unknown field '{key}'", mend)
        name = row.get("name")
        if not isinstance(name, str) or user_entry(name) is None:
            raise InputError(place, f"there is no user {name!r} here", "see getent passwd")
        if name in limits:
            raise InputError(place, f"user '{name}' has a table already", "join them")
        if "max_submitted_jobs" not in row:
            raise InputError(place, "it limits nothing", "give max_submitted_jobs")
        limits[name] = _whole(place, "max_submitted_jobs", row["max_submitted_jobs"])
    return list(limits.items())
