"""The folder of a cluster: the paths of its store, socket, token and jobs, and its lock.

One controller at a time: it has the lock of the folder while it lives, and the operating system
releases the lock when it dies. Everything is its owner's alone.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path
from time import monotonic, sleep

from dovetail.core.errors import InputError
from dovetail.files.whole_file import PRIVATE, write_whole
from dovetail.live.system.private_file import (
    check_home,
    make_private_folder,
    open_private,
)

TOKEN_BYTES = 32
DYING_S = 30.0
"""How long to wait for a lock whose holder was killed just now."""
_PRIVATE_FOLDER, _PRIVATE_PROGRAM = 0o700, 0o700


class Folder:
    """The paths under one home. Only methods named by a verb create anything."""

    def __init__(self, home: Path) -> None:
        self.home = home.expanduser().absolute()
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
        return self.home / "jobs" / str(number)

    def make(self) -> None:
        """Makes the folder for its owner alone. Raises InputError if others may enter it."""
        try:
            self.home.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
            # Before anything is made in it: it may be somebody's folder, named by mistake.
            check_home(self.home)
            for folder in (self.home / "nodes", self.home / "jobs"):
                make_private_folder(folder)
        except OSError as error:
            raise InputError(str(self.home), f"cannot be used: {error.strerror}") from None

    def make_job(self, number: int) -> Path:
        """Returns the folder of a job, made if it was not there."""
        folder = self.job(number)
        folder.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        return folder

    def keep_script(self, number: int, script: str) -> Path:
        """Returns the file that holds a job's script, written whole if it is not there already."""
        path = self.make_job(number) / "script"
        try:
            if path.read_bytes() == script.encode():
                return path
        except FileNotFoundError:
            pass
        write_whole(path, script, mode=_PRIVATE_PROGRAM)
        return path

    def token(self) -> str:
        """Returns the secret that clients on loopback must send, created if it is not there."""
        with open(open_private(self._token, os.O_RDWR), encoding="ascii") as file:
            token = file.read().strip()
        if not token:
            token = secrets.token_urlsafe(TOKEN_BYTES)
            write_whole(self._token, token, mode=PRIVATE)
        return token

    def lock(self) -> FolderLock:
        """Returns the lock of the folder. Raises InputError while another process holds it."""
        return FolderLock(self._lock)


class FolderLock:
    """The lock of a folder, from construction to `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self._file = open_private(path, os.O_RDWR)
        deadline = monotonic() + DYING_S
        while not self._take():
            holder = os.pread(self._file, 32, 0).decode("ascii", "replace").strip()
            # A process that was killed just now keeps its lock until it has ended.
            if _is_dying(holder) and monotonic() < deadline:
                sleep(0.01)
                continue
            os.close(self._file)
            raise InputError(
                str(path.parent),
                f"a controller runs here already (process {holder or 'unknown'})",
                "stop it with `dovetail down`, or choose another --home",
            )
        try:
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
    """True if a process is gone, or has freed its memory already."""
    try:
        return process.isdecimal() and not Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return True
