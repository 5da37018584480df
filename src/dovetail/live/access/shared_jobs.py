"""A folder that nodes share, for the jobs of several users: what root does there, and checks.

```
DIR/                   root:controller  0751   a folder for each job, which its agent makes as root
DIR/.dovetail-jobs     root             0644   the mark of the cluster
DIR/.dovetail-checks/  controller       0700   where agents prove at joining that it is the same
```

Whether root may do so there is the file system's word: NFS with `root_squash` lets root give
nothing to users, and such a folder is refused.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.files.whole_file import write_whole
from dovetail.live.access.file_access import file_access_of
from dovetail.live.access.shared_home import check_roots, make_for
from dovetail.live.access.user_entry import UserEntry
from dovetail.live.access.user_list import ROOT
from dovetail.live.join.shared_folder import CHECKS, FILE, MARK, mark_of
from dovetail.live.system.private_file import is_below

LISTED_BY_CONTROLLER, READ_BY_ALL, OWNER_ONLY = 0o751, 0o644, 0o700
SQUASHED = "root may give no folder to users there (NFS: export it with no_root_squash)"


def make_shared_jobs(folder: Path, controller: UserEntry) -> None:
    """Shares a folder out for the jobs of a cluster; to be called as root. Raises InputError."""
    where = f"--jobs {folder}"
    if not folder.is_dir():
        raise InputError(where, "is no folder", "mount it on all nodes at this path, or make it")
    try:
        mark = mark_of(folder)
        if not mark and any(not entry.name.isdecimal() for entry in folder.iterdir()):
            raise InputError(where, "has other files", "choose a folder for the cluster alone")
        make_for(folder, LISTED_BY_CONTROLLER, ROOT, controller.gid)
        for above in (folder, *folder.parents):
            check_roots(above)
        make_for(folder / CHECKS, OWNER_ONLY, controller.uid, controller.gid)
        if not mark:
            content = json.dumps({"cluster": secrets.token_hex(8)}) + "\n"
            write_whole(folder / MARK, content, mode=READ_BY_ALL)
    except PermissionError:
        raise InputError(where, SQUASHED, "or --jobs none: files travel") from None
    except OSError as error:
        raise InputError(where, f"cannot be used: {error.strerror}") from None


def adopt_shared_jobs(home: Path, folder: Path) -> None:
    """Makes a folder that root has shared out the one of a controller's jobs. Raises InputError."""
    where, mark = f"--jobs {folder}", mark_of(folder)
    if not mark or not is_shared_out(folder):
        raise InputError(where, "root has not shared it out", "start once as root")
    if is_below(folder, home.parent):
        raise InputError(where, "is in the cluster's own folder", "choose one that nodes share")
    stored = home / FILE
    if stored.exists() and json.loads(stored.read_text(encoding="utf-8"))["cluster"] != mark:
        raise InputError(where, "belongs to another cluster", "choose another folder or --home")
    content = json.dumps({"folder": str(folder), "cluster": mark}) + "\n"
    write_whole(stored, content, mode=0o600)


def is_shared_out(folder: Path | int) -> bool:
    """True if root has shared a folder out for jobs, so that nobody else can have marked it."""
    opened = folder
    if isinstance(folder, Path):
        opened = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    assert isinstance(opened, int)
    try:
        seen = os.fstat(opened)
        mark = os.stat(MARK, dir_fd=opened, follow_symlinks=False)
    except OSError:
        return False
    finally:
        if isinstance(folder, Path):
            os.close(opened)
    is_roots = seen.st_uid == ROOT and not seen.st_mode & 0o022
    return is_roots and mark.st_uid == ROOT and stat.S_ISREG(mark.st_mode)


@contextmanager
def access_of_controller(check: Path, controller: UserEntry) -> Iterator[None]:
    """Lets this thread answer a check in a shared folder, as the controller. Raises OSError.

    First it sees that root may do there what jobs of users need. `check` is the file of the check.
    """
    jobs = check.parent.parent
    if not is_shared_out(jobs):
        raise PermissionError(errno.EPERM, "root has not shared it out (dovetail up --users)")
    probe = jobs / f".probe-{secrets.token_hex(8)}"
    try:
        probe.mkdir(mode=OWNER_ONLY)
        try:
            os.chown(probe, controller.uid, controller.gid)
        finally:
            probe.rmdir()
    except PermissionError:
        raise PermissionError(errno.EPERM, SQUASHED) from None
    seen = check.lstat()
    if (seen.st_uid, seen.st_gid) != (controller.uid, controller.gid):
        raise PermissionError(
            errno.EPERM,
            f"user {controller.name} is {controller.uid}:{controller.gid} on this node, and "
            f"{seen.st_uid}:{seen.st_gid} on the controller's machine",
        )
    with file_access_of(controller.uid, controller.gid):
        yield
