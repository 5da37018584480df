"""The folder that all nodes of a cluster share, and how each agent proves that it has the same one.

The controller writes a file of a new name; the agent reads it and writes another beside it, which
the controller reads back. So the folder is the same, as it is now, and can be written on both
sides. A mark in the folder says whose it is, by which an agent sees later that it is still there.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from dovetail.core.errors import InputError
from dovetail.files.whole_file import PRIVATE, write_whole
from dovetail.live.system.bounded_wait import BoundedWait
from dovetail.live.system.private_file import is_below, make_private_folder

FILE = "jobs.json"
"""The file of a cluster's folder that says where the folders of its jobs are."""
MARK, CHECKS = ".dovetail-jobs", ".dovetail-checks"
CHECK_S = 5.0
"""How long an agent tries to read and write the folder before it says that it does not answer."""
LOOK_S = 10.0
OLD_CHECKS = 1000
"""Files of checks that nobody removed, as their agents died; beyond this all are."""


@dataclass(frozen=True, slots=True)
class SharedFolder:
    """A declared folder, at the same path on all nodes, and the cluster that it belongs to."""

    path: Path
    cluster: str

    def check_file(self, name: str) -> Path:
        """Returns the file that the controller writes for one check."""
        return self.path / CHECKS / name


def shared_folder(home: Path) -> SharedFolder | None:
    """Returns the folder that a cluster has declared. Raises InputError if that is damaged."""
    path = home / FILE
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        return SharedFolder(Path(said["folder"]), str(said["cluster"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        mend = "put back a copy, or remove it and start with --jobs"
        raise InputError(str(path), f"cannot be read: {error}", mend) from None


def declare(home: Path, folder: Path) -> SharedFolder:
    """Makes a folder the one for the folders of a cluster's jobs.

    Raises InputError if it may not be, or if jobs have their folders elsewhere.
    """
    where = f"--jobs {folder}"
    known = shared_folder(home)
    if known is not None and known.path == folder and mark_of(folder) == known.cluster:
        return known
    _check_suitable(where, folder, home)
    _check_moved(where, known.path if known is not None else home / "jobs", folder)
    mark = mark_of(folder)
    if mark and (known is None or mark != known.cluster):
        raise InputError(
            where, "belongs to another cluster", f"choose another, or rm {folder / MARK}"
        )
    if not mark and any(not entry.name.isdecimal() for entry in folder.iterdir()):
        raise InputError(where, "has other files", "choose a folder for the cluster alone")
    shared = SharedFolder(folder, known.cluster if known is not None else secrets.token_hex(8))
    try:
        _write(folder / MARK, {"cluster": shared.cluster})
        make_private_folder(folder / CHECKS)
        _write(home / FILE, {"folder": str(folder), "cluster": shared.cluster})
    except OSError as error:
        raise InputError(where, f"cannot be written: {error.strerror}") from None
    return shared


def _check_suitable(where: str, folder: Path, home: Path) -> None:
    """Raises InputError for a folder that others write into, or that is not there to be shared."""
    if not folder.is_dir():
        raise InputError(where, "is no folder", "mount it on all nodes at this path, or make it")
    if is_below(folder, home):
        raise InputError(where, "is in the cluster's own folder", "choose one that nodes share")
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        mend = f"chown it to the user of the cluster, and chmod go-w {folder}"
        raise InputError(where, "other users may write into it", mend)


def _check_moved(where: str, old: Path, new: Path) -> None:
    """Raises InputError if jobs have their folders in another place."""
    with suppress(OSError):
        left = [entry.name for entry in old.iterdir() if entry.name.isdecimal()]
        if old != new and any(not (new / name).exists() for name in left):
            mend = f"stop the controller and its jobs, then: mv {old}/[0-9]* {new}/"
            raise InputError(where, f"{len(left)} jobs have their folders in {old}", mend)


def _write(path: Path, content: dict[str, str]) -> None:
    write_whole(path, json.dumps(content) + "\n", mode=PRIVATE)


def mark_of(folder: Path) -> str:
    """Returns the cluster that a folder belongs to, empty if to none."""
    try:
        return str(json.loads((folder / MARK).read_text(encoding="utf-8"))["cluster"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


# A check, by the controller: begun, answered by an agent, and read back.

CheckAccess = Callable[[Path], AbstractContextManager[None]]


def _as_ourselves(file: Path) -> AbstractContextManager[None]:
    return nullcontext()


def begin_check(folder: SharedFolder) -> tuple[str, str]:
    """Returns the name of a new file and what it has. Raises OSError."""
    with suppress(OSError):
        entries = list((folder.path / CHECKS).iterdir())
        for entry in entries if len(entries) > OLD_CHECKS else ():
            entry.unlink(missing_ok=True)
    name, secret = secrets.token_hex(8), secrets.token_hex(16)
    write_whole(folder.check_file(name), secret, mode=PRIVATE)
    return name, secret


def answer_check(path: Path, name: str, access: CheckAccess = _as_ourselves) -> tuple[str, str]:
    """Returns what the file of a check has, once the same was written beside it; or why not.

    `access` returns what the file is touched in.
    """
    file = path / CHECKS / Path(name).name
    try:
        return BoundedWait(CHECK_S).call(lambda: _answer(file, access)), ""
    except FileNotFoundError:
        return "", "has not the controller's file: it is another folder, or an old copy"
    except TimeoutError:
        return "", f"did not answer within {CHECK_S:g} s"
    except OSError as error:
        verb = "written" if error.errno in (errno.EROFS, errno.ENOSPC, errno.EDQUOT) else "used"
        return "", f"cannot be {verb}: {error.strerror}"


def _answer(file: Path, access: CheckAccess) -> str:
    with access(file):
        secret = file.read_text(encoding="ascii")
        write_whole(file.with_name(f"{file.name}.answer"), secret, mode=PRIVATE)
        return secret


def end_check(folder: SharedFolder, name: str, secret: str, answer: str) -> str:
    """Returns why an agent has another folder, empty if it has the same."""
    file = folder.check_file(name)
    written = file.with_name(f"{name}.answer")
    try:
        wrong = "" if answer == secret else "has another file than the controller's"
        if not wrong and written.read_text(encoding="ascii") != secret:
            wrong = "has not what the agent wrote"
    except OSError as error:
        wrong = f"has not what the agent wrote here: {error.strerror}"
    for done in (file, written):
        with suppress(OSError):
            done.unlink()
    return wrong


class FolderMonitor:
    """Looks at the shared folder of a node now and then, in a thread: a loop never waits for it."""

    def __init__(
        self,
        folder: SharedFolder,
        *,
        every_s: float = LOOK_S,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.folder = folder
        self._every_s, self._clock = every_s, clock
        self._seen_s, self._wrong = clock(), ""
        self._ends = threading.Event()
        threading.Thread(target=self._run, name="shared-folder", daemon=True).start()

    @property
    def wrong(self) -> str:
        """What is wrong with the folder now, empty if nothing is."""
        if self._clock() - self._seen_s > 2 * self._every_s:
            return f"the shared folder {self.folder.path} does not answer"
        return self._wrong

    def close(self) -> None:
        """Looks no more."""
        self._ends.set()

    def _run(self) -> None:
        while True:
            self._wrong = self._look()
            self._seen_s = self._clock()
            if self._ends.wait(self._every_s):
                return

    def _look(self) -> str:
        place = self.folder.path
        try:
            mark = json.loads((place / MARK).read_text(encoding="utf-8"))["cluster"]
            draft = place / CHECKS / f"w{secrets.token_hex(8)}"
            draft.write_bytes(b"")
            draft.unlink()
        except FileNotFoundError:
            return f"the shared folder {place} is gone"
        except OSError as error:
            return f"the shared folder {place} fails: {error.strerror}"
        except (ValueError, KeyError, TypeError):
            mark = ""
        return "" if mark == self.folder.cluster else f"{place} is another folder than it was"
