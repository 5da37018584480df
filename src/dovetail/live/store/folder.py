"""The folder of a cluster: the paths of its store, socket, token and jobs, and its lock.

A controller locks the folder while it runs, so there is one at a time; the operating system
releases the lock when its process dies. All files are readable by their owner alone.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path
from time import monotonic, sleep

from dovetail.core.errors import InputError
from dovetail.files.whole_file import PRIVATE, write_whole
from dovetail.live.jobs.lineage import newest_lineage
from dovetail.live.join.shared_folder import shared_folder
from dovetail.live.system.private_file import check_home, make_private_folder, open_private

TOKEN_BYTES = 32
DYING_S = 30.0
"""Timeout for the lock of a process that was killed and has not ended yet."""
_OWNER_ONLY = 0o700
"""The mode of folders and programs for their owner alone."""


class Folder:
    """The paths in the folder `home`. Nothing is created but by the methods that say so.

    With `jobs` the folders of jobs are below that, and belong to their submitters: agents make
    them, and the controller may read there.
    """

    def __init__(self, home: Path, jobs: Path | None = None) -> None:
        self.home = home.expanduser().absolute()
        self.shared = shared_folder(self.home) if jobs is None else None
        self.jobs = jobs or (self.shared.path if self.shared else self.home / "jobs")
        self.owned_by_users = jobs is not None
        self.store = self.home / "store.db"
        self.socket = self.home / "api.sock"
        self.log = self.home / "controller.log"
        self._token = self.home / "token"
        self._lock = self.home / "lock"

    def node(self, number: int) -> Path:
        """Returns the folder of a node's agent."""
        return self.home / "nodes" / str(number)

    def job(self, number: int) -> Path:
        """Returns the folder of a job: its script, output and checkpoints."""
        return self.jobs / str(number)

    def make(self) -> None:
        """Creates the folder for its owner alone. Raises InputError if others may enter it."""
        try:
            self.home.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
            # Before anything is created in it: a mistyped --home may be a folder of other files.
            check_home(self.home)
            for folder in (self.home / "nodes", self.home / "jobs"):
                make_private_folder(folder)
        except OSError as error:
            raise InputError(str(self.home), f"cannot be used: {error.strerror}") from None

    def make_job(self, number: int) -> Path:
        """Returns the folder of a job, created if it does not exist."""
        folder = self.job(number)
        folder.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
        return folder

    def newest_job(self) -> int:
        """Returns the greatest number of a job that has a folder, 0 if none has."""
        if not self.jobs.is_dir():
            return 0
        return max((int(f.name) for f in self.jobs.iterdir() if f.name.isdecimal()), default=0)

    def newest_lineage(self, number: int) -> int:
        """Returns the newest lineage of a job that is on the disk."""
        return newest_lineage(self.job(number))

    def keep_script(self, number: int, script: str) -> Path:
        """Returns the file of a job's script, written if it does not exist or differs."""
        path = self.make_job(number) / "script"
        try:
            if path.read_bytes() == script.encode():
                return path
        except FileNotFoundError:
            pass
        write_whole(path, script, mode=_OWNER_ONLY)
        return path

    def token(self) -> str:
        """Returns the secret that clients over TCP must send, created if it does not exist."""
        with open(open_private(self._token, os.O_RDWR), encoding="ascii") as file:
            token = file.read().strip()
        if not token:
            token = secrets.token_urlsafe(TOKEN_BYTES)
            write_whole(self._token, token, mode=PRIVATE)
        return token

    def lock(self) -> FolderLock:
        """Locks the folder. Raises InputError while another process has the lock."""
        return FolderLock(self._lock)


class FolderLock:
    """The lock of a folder, from construction to `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self._file = open_private(path, os.O_RDWR)
        deadline = monotonic() + DYING_S
        while not self._take():
            owner = os.pread(self._file, 32, 0).decode("ascii", "replace").strip()
            # A killed process keeps its lock until the kernel has freed its resources.
            if _is_dying(owner) and monotonic() < deadline:
                sleep(0.01)
                continue
            os.close(self._file)
            raise InputError(
                str(path.parent),
                f"a controller runs here already (process {owner or 'unknown'})",
                "stop it with `dovetail down`, or choose another --home",
            )
        try:
            # The number of the process is for messages and `_is_dying`; the lock itself is flock's.
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode("ascii"), 0)
        except OSError as error:
            os.close(self._file)
            what = f"cannot be written: {error.strerror}"
            raise InputError(str(path), what, "free space on its disk") from None

    def _take(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def release(self) -> None:
        """Releases the lock."""
        os.close(self._file)


def _is_dying(process: str) -> bool:
    """True if a process has ended, or is ending and has freed its memory."""
    try:
        return process.isdecimal() and not Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return True
