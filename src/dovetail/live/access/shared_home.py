"""The folder of a cluster of several users: who owns which part of it.

```
HOME/             root        0755   DOVETAIL_HOME of everybody
HOME/api.sock     -> run/api.sock
HOME/run/         controller  0755   the socket where everybody reaches the controller (0666)
HOME/controller/  controller  0700   store, log, lock, the socket of the owner: as without users
HOME/agent/       root        0711   what the agent of this machine needs; its sockets are 0666
HOME/jobs/        root        0711   a folder for each job, which belongs to its submitter
```

Sockets that anybody may open ask the kernel who is there. Root writes in folders of root alone, so
that neither a user nor the controller can lead it elsewhere by a link.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.live.access.user_entry import UserEntry
from dovetail.live.access.user_list import ROOT
from dovetail.live.store.folder import Folder

PASSED_BY_ALL = 0o711
SEEN_BY_ALL = 0o755
OWNER_ONLY = 0o700
SOCKET = "api.sock"


class SharedHome:
    """The paths in a folder that root shares out. Nothing is created but by `make`."""

    def __init__(self, home: Path) -> None:
        self.home = home.expanduser().absolute()
        self.controller = self.home / "controller"
        self.run = self.home / "run"
        self.agent = self.home / "agent"
        self.jobs = self.home / "jobs"
        self.socket = self.run / SOCKET

    @property
    def folder(self) -> Folder:
        """Returns the folder of the controller, whose jobs have theirs beside it."""
        return Folder(self.controller, jobs=self.jobs)

    def make(self, controller: UserEntry) -> None:
        """Creates what is not there; to be called as root. Raises InputError."""
        try:
            self.home.mkdir(mode=SEEN_BY_ALL, parents=True, exist_ok=True)
            for above in (self.home, *self.home.parents):
                check_roots(above)
            self.home.chmod(SEEN_BY_ALL)
            for folder in (self.agent, self.agent / "nodes", self.jobs):
                make_for(folder, PASSED_BY_ALL, ROOT, ROOT)
            make_for(self.controller, OWNER_ONLY, controller.uid, controller.gid)
            make_for(self.run, SEEN_BY_ALL, controller.uid, controller.gid)
            link = self.home / SOCKET
            if not link.is_symlink():
                link.symlink_to(Path(self.run.name, SOCKET))
        except OSError as error:
            raise InputError(str(self.home), f"cannot be used: {error.strerror}") from None

    def check(self, controller: UserEntry) -> None:
        """Raises InputError unless root has made it for this account."""
        for folder, owner in ((self.jobs, ROOT), (self.run, controller.uid)):
            if not folder.is_dir() or folder.stat().st_uid != owner:
                raise InputError(
                    str(self.home),
                    f"it is no folder of a cluster that {controller.name} may run",
                    "let root start it once: dovetail up --users FILE",
                )


def check_roots(folder: Path) -> None:
    """Raises InputError if others than root may put links into a folder that root passes."""
    seen = folder.stat()
    writable = seen.st_mode & 0o022 and not seen.st_mode & stat.S_ISVTX
    if seen.st_uid != ROOT or writable:
        raise InputError(
            str(folder), "others than root may change it", "choose a --home such as /srv/dovetail"
        )


def make_for(folder: Path, mode: int, uid: int, gid: int) -> None:
    """Makes a folder, if it is not there, with this mode and owner. Raises OSError."""
    folder.mkdir(mode=OWNER_ONLY, exist_ok=True)
    # By descriptor, so that a link in its place is refused and never followed.
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchown(file, uid, gid)
        os.fchmod(file, mode)
    finally:
        os.close(file)
