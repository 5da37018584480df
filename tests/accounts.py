"""Real accounts for tests of several users: made for a test session, and always removed."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from dovetail.live.access.user_entry import UserEntry, become, user_entry

PREFIX = "dvt"
LOCKED_S = 30.0
"""How long another process may hold the lock of the user database."""


@dataclass(frozen=True)
class Accounts:
    """Two users, an operator, a stranger, and a service that runs controllers."""

    ann: UserEntry
    bob: UserEntry
    eve: UserEntry
    mal: UserEntry
    service: UserEntry


@contextlib.contextmanager
def accounts() -> Iterator[Accounts]:
    """Gives accounts of this machine, or skips the test."""
    if os.geteuid() != 0 or shutil.which("useradd") is None:
        pytest.skip("needs root and useradd, to run jobs as real users")
    _remove(_left_behind())
    names = {role: f"{PREFIX}{os.getpid()}{role}" for role in ("ann", "bob", "eve", "mal")}
    service = f"{PREFIX}{os.getpid()}ctl"
    try:
        for name in names.values():
            _change("useradd", "--no-create-home", "--home-dir", "/", name)
        _change("useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent", service)
        yield Accounts(service=_entry(service), **{r: _entry(name) for r, name in names.items()})
    finally:
        _remove([*names.values(), service])


def as_user(entry: UserEntry, act: Callable[[], object]) -> str:
    """Returns what a function returns, as text, in a process of a user; its error if it raises."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            become(entry)
            said = str(act())
        except BaseException as error:
            said = "".join(traceback.format_exception_only(error)).strip()
        os.write(write_end, said.encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def _entry(name: str) -> UserEntry:
    entry = user_entry(name)
    assert entry is not None
    return entry


def _left_behind() -> list[str]:
    """Returns the accounts of sessions that were killed."""
    found = []
    for row in pwd.getpwall():
        number = row.pw_name.removeprefix(PREFIX).rstrip("abcdefghijklmnopqrstuvwxyz")
        ours = row.pw_name.startswith(PREFIX) and number.isdecimal()
        if ours and not os.path.exists(f"/proc/{number}"):
            found.append(row.pw_name)
    return found


def _remove(names: list[str]) -> None:
    for name in names:
        if user_entry(name) is not None:
            _change("userdel", name)


def _change(*command: str) -> None:
    deadline = time.monotonic() + LOCKED_S
    while True:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        # Another session may be changing the user database.
        if "lock" not in done.stderr or time.monotonic() > deadline:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
        time.sleep(0.1)
