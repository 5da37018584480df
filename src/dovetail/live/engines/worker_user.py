"""What the process of a worker does to become the user who submitted the job.

Root's last acts: it is imported by keepers, so it imports the standard library alone.
"""

from __future__ import annotations

import os
from typing import TypedDict

UMASK = 0o022
"""What the files of users begin with, as after a login."""


class WorkerUser(TypedDict):
    """As whom a worker runs; the text `script`, if there is one, is written to `path` as them."""

    uid: int
    gid: int
    groups: list[int]
    script: str
    path: str


def become(user: WorkerUser) -> None:
    """Makes this process run as a user for good. Raises OSError, ValueError.

    Groups first, then gid and uid with their saved values, so that nothing leads back. All that
    follows is done with the rights of the user: links in paths lead no further than these.
    """
    if user["uid"] == 0 or user["gid"] == 0 or 0 in user["groups"]:
        raise ValueError("no worker runs as root, or in its group")
    os.setgroups(user["groups"])
    os.setresgid(user["gid"], user["gid"], user["gid"])
    os.setresuid(user["uid"], user["uid"], user["uid"])
    os.umask(UMASK)
    if user["script"]:
        write_script(user["path"], user["script"])


def write_script(path: str, text: str) -> None:
    """Writes the script of a job, whole: other workers of the job may do the same now."""
    draft = f"{path}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(draft, flags, 0o700), "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(draft, path)
