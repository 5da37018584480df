"""Files that only their owner may read, and the folder they lie in."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from dovetail.core.errors import InputError


def open_private(path: Path, flags: int) -> int:
    """Opens a file for its owner alone, made if needed. Raises InputError for a symbolic link."""
    try:
        return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _link_refused(path) from None
        raise


def open_owned(path: Path, uid: int = -1, flags: int = os.O_RDONLY) -> int:
    """Opens a plain file, and nothing else. Raises OSError.

    With a `uid` only a file of that user is opened, by whatever links it is reached: who reads
    or writes for another user must be able to do no more than that user may.
    """
    seen = os.open(path, os.O_PATH | os.O_CLOEXEC | (flags & os.O_NOFOLLOW))
    try:
        status = os.fstat(seen)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is no plain file", str(path))
        if uid >= 0 and status.st_uid != uid:
            raise OSError(errno.EPERM, "belongs to another user", str(path))
        # Once more by what was looked at: the path may lead elsewhere by now.
        again = flags & ~os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(f"/proc/self/fd/{seen}", again)
    finally:
        os.close(seen)


def make_private_folder(path: Path) -> None:
    """Makes a folder for its owner alone, unless it is there. Raises InputError for a link."""
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink():
        raise _link_refused(path)


def _link_refused(path: Path) -> InputError:
    return InputError(
        str(path),
        "it is a symbolic link: nothing of a cluster is kept through one",
        "remove the link; the --home itself may be one",
    )


def is_gone(path: Path, inode: int) -> bool:
    """True if a file is gone, or another has its name.

    Raises OSError where that cannot be known now (no permission, an input error, a network file
    system that is away): that is no answer, to be asked again.
    """
    try:
        return path.stat().st_ino != inode
    except (FileNotFoundError, NotADirectoryError):
        return True


def has_no_inodes(path: Path) -> bool:
    """True if a file system takes no more files; False where it does not count them."""
    try:
        room = os.statvfs(path)
    except OSError:
        return False
    return room.f_files > 0 and room.f_favail == 0


def is_below(path: Path, folder: Path) -> bool:
    """True if a path leads into a folder once links are followed, by whatever name."""
    real = path.resolve()
    for above in (real, *real.parents):
        with suppress(OSError):
            if above.samefile(folder):
                return True
    return False


def check_home(home: Path) -> None:
    """Raises InputError unless the folder is ours alone: jobs run as its owner, and no other."""
    try:
        seen = home.stat()
    except OSError as error:
        raise InputError(str(home), f"cannot be used: {error.strerror}") from None
    if seen.st_uid != os.geteuid():
        raise InputError(
            str(home),
            "belongs to another user; jobs run as the owner of the folder, and no other",
            "choose a --home of your own",
        )
    if seen.st_mode & 0o077:
        raise InputError(
            str(home),
            "other users may enter it",
            f"choose a folder for the cluster alone; if it is one: chmod 700 {home}",
        )
