"""Orphans: processes of a worker that outlived its keeper, which would have ended them.

Each worker has a mark that all it forks inherit and cannot remove, neither by a new session nor
by another environment: its own limit on file locks. No kernel since 2.4.25 enforces that limit,
no process may raise it, and `/proc` shows it. A process that lowers it is found by its control
group, where there is one.
"""

from __future__ import annotations

import os
import resource
import secrets
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from dovetail.live.engines import keeper

LOWEST, HIGHEST = 1 << 32, 1 << 62
"""The range of marks: far above every limit that a user could set."""
UNMARKED = 0
SHOWN = "Max file locks"


def new_mark() -> int:
    """Returns the mark of a new worker, `UNMARKED` where processes are limited already."""
    _, ours = resource.getrlimit(keeper.RLIMIT_LOCKS)
    most = HIGHEST if ours == resource.RLIM_INFINITY else min(ours, HIGHEST)
    return LOWEST + secrets.randbelow(most - LOWEST) if most > LOWEST else UNMARKED


def kill_marked(mark: int) -> bool:
    """Kills every process with a mark, without waiting; True if there was one."""
    if mark == UNMARKED:
        return False
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return sum(_kill(pid, lambda one: _mark_of(one) == mark) for pid in pids) > 0


def kill_in_groups(files: Sequence[str]) -> bool:
    """Kills every process of control groups, known by the files through which it joined them.

    Returns whether there was one. None is waited for.
    """
    killed = 0
    for group in (Path(file).parent for file in files):
        with suppress(OSError):
            # Version 2 since Linux 5.14: all at once, also what forks meanwhile.
            (group / "cgroup.kill").write_text("1", encoding="ascii")
        name = f"/{group.parent.name}/{group.name}/"
        killed += sum(_kill(pid, partial(_is_in, name=name)) for pid in _listed(group))
    return killed > 0


def _listed(group: Path) -> list[int]:
    """Returns the processes of a control group and those that were made below it."""
    processes: list[int] = []
    for folder, _, _ in os.walk(group):
        with suppress(OSError, ValueError):
            pids = Path(folder, "cgroup.procs").read_text(encoding="ascii").split()
            # What runs in another namespace is listed as 0, which would mean ourselves.
            processes += [pid for pid in map(int, pids) if pid > 0]
    return processes


def _is_in(pid: int, *, name: str) -> bool:
    """True if a process is in a control group of that name, or below it."""
    lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    return any(name in line + "/" for line in lines)


def _kill(pid: int, is_ours: Callable[[int], bool]) -> bool:
    """Kills a process if it is one of ours; returns whether it is and is not gone."""
    try:
        # Opened first: what is read below is then of the same process that gets the signal.
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not is_ours(pid) or _is_gone(pid):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        return True
    except OSError:
        # It is gone, or runs as another user, whose end we could not wait for.
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
    """True if all of a process has ended, and only its parent has not reaped it yet."""
    return keeper.stat_of(pid)[0] in "ZX" and len(os.listdir(f"/proc/{pid}/task")) == 1
