"""What a worker left behind when its keeper was killed, who would have ended it.

Each worker bears a mark that whatever it forks inherits and cannot shed, neither by a session of
its own nor by another environment: a limit of its own on file locks. No kernel since 2.4.25 looks
at that limit, nobody may raise it, and `/proc` shows it to all.
"""

from __future__ import annotations

import os
import resource
import secrets
import signal

from dovetail.live.engines import keeper

LOWEST, HIGHEST = 1 << 32, 1 << 62
"""Marks lie between: far above every limit that somebody could mean."""
UNMARKED = 0
SHOWN = "Max file locks"


def draw_mark() -> int:
    """Returns the mark of a new worker, `UNMARKED` where processes are limited already."""
    _, ours = resource.getrlimit(keeper.RLIMIT_LOCKS)
    most = HIGHEST if ours == resource.RLIM_INFINITY else min(ours, HIGHEST)
    return LOWEST + secrets.randbelow(most - LOWEST) if most > LOWEST else UNMARKED


def kill_marked(mark: int) -> bool:
    """Kills every process that bears a mark; returns whether there was one. None is waited for."""
    if mark == UNMARKED:
        return False
    return sum(_kill(int(name), mark) for name in os.listdir("/proc") if name.isdecimal()) > 0


def _kill(pid: int, mark: int) -> bool:
    """Kills a process if it bears the mark; returns whether it does and is not gone."""
    try:
        # The descriptor is of whoever has the number now, and so the mark is.
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if _mark_of(pid) != mark or _is_gone(pid):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        return True
    except OSError:
        # It is gone; or it became another user, and nobody could wait for it to go.
        return False
    finally:
        os.close(descriptor)


def _mark_of(pid: int) -> int:
    with open(f"/proc/{pid}/limits", encoding="ascii") as file:
        for line in file:
            if line.startswith(SHOWN):
                hard = line.removeprefix(SHOWN).split()[1]
                return int(hard) if hard.isdecimal() else UNMARKED
    return UNMARKED


def _is_gone(pid: int) -> bool:
    """Tells whether all of a process has ended, and only its parent has not been told yet."""
    return keeper.stat_of(pid)[0] in "ZX" and len(os.listdir(f"/proc/{pid}/task")) == 1
