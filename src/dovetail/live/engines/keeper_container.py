"""What a keeper does for a worker in a container: signals its program, and removes what is left.

It is imported by keepers, and imports the standard library alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.live.engines.keeper import KeeperOrder

REMOVAL_S, REMOVAL_LOOK_S = 60.0, 0.02
"""How long the removal of a container may take, and how often a keeper looks whether it ended."""


def signal_container(began: str, number: int, parent_of: Callable[[int], int]) -> bool:
    """Signals the first process of a container, known by a file; False if it is not there (yet).

    podman would pass signals on, but one that comes while it starts the container ends podman
    itself, with the exit code of a program that has done its work.
    """
    try:
        with open(began, encoding="ascii", opener=_cautiously) as file:
            pid = int(file.read(20))
        process = os.pidfd_open(pid)
    except (OSError, ValueError):
        return False
    try:
        # Its parent monitors it, and is a child of ours: no other process can have the number.
        if parent_of(parent_of(pid)) != os.getpid():
            return False
        signal.pidfd_send_signal(process, number)
    except (OSError, ValueError, IndexError):
        return False
    finally:
        os.close(process)
    return True


def _cautiously(path: str, flags: int) -> int:
    """Opens a file that is the user's: no link is followed, and no pipe waited for."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def remove_container(order: KeeperOrder) -> None:
    """Removes what the runtime of a container has left of it: its record, mounts and files.

    All its processes are gone by now. A runtime that hangs is given up: the exit must be told.
    """
    command = order["removal"]
    environment = order.get("removal_environment", order["environment"])
    with contextlib.suppress(OSError):
        pid = os.posix_spawn(command[0], command, environment, setsigmask=())
        until_s = time.monotonic() + REMOVAL_S
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() > until_s:
                os.kill(pid, signal.SIGKILL)
            time.sleep(REMOVAL_LOOK_S)
