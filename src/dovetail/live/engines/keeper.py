"""The keeper of one worker: a small process that outlives the agent and records how it ended.

Run as `python -I -S keeper.py FOLDER LOCK`; it imports nothing of ours, reads `FOLDER/order.json`,
and holds the open file LOCK, whose lock says that it lives.
The worker is a session of its own; whatever it forks belongs to it and dies with it, even what
left its process group, for the keeper is their reaper: orphans are reaped as they exit. If the
keeper itself is killed the worker dies with it, and the agent ends the rest, by the mark that all
of them bear (`strays`). The exit status of the worker is on disk (`status.json`) before what it
left behind is killed, and once more (`exit.json`, which frees the GPU) after the last of that is
gone. Signals to the keeper are passed on to the worker's group, SIGUSR1 as SIGKILL: only who reaps
a process can signal it without hitting a stranger that has its number by now.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import signal
import stat
import sys
import time
from types import FrameType
from typing import Any

KILL = signal.SIGUSR1
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
RLIMIT_LOCKS = 10
"""The limit on file locks, by which a worker and all it forks are known; see `strays`."""
NOT_NOW, CANNOT_RUN, NOT_FOUND = 125, 126, 127
"""How a worker ends that was never executed: it may be another time, or never."""
PASSING = (
    errno.EAGAIN,
    errno.EBUSY,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ESTALE,
    errno.ETXTBSY,
)
"""What may be over when it is tried again: everything else is the command's own fault."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
ROOM_AGAIN_S = 0.5
"""How long a keeper waits on a full disk before it tries again to say how its worker ended."""
STATUS, EXIT = "status.json", "exit.json"
"""The files of the exit status: when the worker has ended, and when all it forked is gone too."""
RESCAN_S, RESCAN_S_MAX = 0.1, 1.0
"""How long killed orphans may take to exit before others are looked for: at first, and at most."""


def main(folder: str, lock: int) -> None:
    """Runs the worker of a folder to its end."""
    os.set_inheritable(lock, False)
    with open(os.path.join(folder, "order.json"), encoding="utf-8") as file:
        order = json.load(file)
    # Whoever knows its number may signal it, so it must be ready for that first.
    keeper = Keeper()
    write(folder, "keeper.json", {"pid": os.getpid(), "start": start_time(os.getpid())})
    if not begins(folder):
        return
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    why, status = keeper.run(order)
    end = {"exit_code": os.waitstatus_to_exitcode(status), "why": why}
    with contextlib.suppress(OSError):
        # A full disk must not keep orphans alive; the same is in EXIT in the end.
        write(folder, STATUS, end)
    kill_orphans()
    write_in_the_end(folder, EXIT, end)


class Keeper:
    """Waits for one child, passing signals on to its group."""

    def __init__(self) -> None:
        self._child = 0
        self._early = 0
        # Where this signal is ignored, and that is inherited, no exit status is kept.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in (KILL, *PASSED_ON):
            signal.signal(number, self._pass_on)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        number = signal.SIGKILL if number == KILL else number
        if self._child:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child, number)
        else:
            self._early = number

    def run(self, order: dict[str, Any]) -> tuple[str, int]:
        """Starts the worker and returns why it could not run, if so, and its status."""
        told, tell = os.pipe()
        parent = os.getpid()
        passed_on = (KILL, *PASSED_ON)
        signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)
        if self._early:
            return "ended before it ran", self._early
        child = os.fork()
        if child == 0:
            become(order, parent, tell)
        os.close(tell)
        # The child has made its group before it says anything, so the group can be signalled.
        os.read(told, 1)
        self._child = child
        signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
        why = ""
        while piece := os.read(told, 4096):
            why += piece.decode("utf-8", "replace")
        os.close(told)
        # Until it is reaped its number is its own; after that nobody is signalled any more.
        reap_until_exit_of(child)
        signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        return why, os.waitpid(child, 0)[1]


def reap_until_exit_of(child: int) -> None:
    """Returns when a child has exited, still to be reaped; reaps orphans as they exit."""
    while True:
        exited = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        if exited is None or exited.si_pid == child:
            return
        os.waitpid(exited.si_pid, 0)


def kill_orphans() -> None:
    """Kills and reaps the children of this process and what they forked, until none is left.

    Each scan kills the children that are new; when they have exited, theirs are ours. So a tree
    costs one scan per level, not one per process. Processes of other users are left alone.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
    dying: set[int] = set()
    patience_s = RESCAN_S
    while has_children():
        found = children()
        killed = [pid for pid in found if pid not in dying and kill(pid)]
        dying.update(killed)
        if found and not dying:
            return
        if not found:
            # A list made from all processes can miss one that comes while it is read.
            time.sleep(patience_s)
        reap(dying, time.monotonic() + patience_s)
        patience_s = min(2 * patience_s, RESCAN_S_MAX)


def has_children() -> bool:
    """Returns whether this process has a child, running or to be reaped."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kill(pid: int) -> bool:
    """Sends SIGKILL to a child; returns False if it runs as a user whom we may not signal."""
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:
        return False
    return True


def reap(dying: set[int], until_s: float) -> None:
    """Reaps children until all that are dying are gone, or the time has come."""
    while dying:
        pid = os.waitpid(-1, os.WNOHANG)[0]
        dying.discard(pid)
        left_s = until_s - time.monotonic()
        # The signal is blocked, so it is pending if a child has exited since that call.
        if not pid and (left_s <= 0 or not signal.sigtimedwait((signal.SIGCHLD,), left_s)):
            return


def become(order: dict[str, Any], keeper: int, tell: int) -> None:
    """Turns this process into the worker; says why if that cannot be."""
    code = CANNOT_RUN
    try:
        os.setsid()
        os.write(tell, b".")
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(CANNOT_RUN)
        bear(order["mark"])
        settle_in(order)
        for number in (KILL, *PASSED_ON, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvpe(order["argv"][0], order["argv"], order["environment"])
    except FileNotFoundError as error:
        code = NOT_FOUND
        word, named = order["argv"][0], os.fsdecode(error.filename)
        # A bare word is looked for in all of PATH; the error names the last folder of it.
        sought = "/" not in word and named.endswith("/" + word)
        complain(tell, f"{word if sought else named}: {error.strerror}")
    except OSError as error:
        code = NOT_NOW if error.errno in (*PASSING, *NO_ROOM) else CANNOT_RUN
        named = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        complain(tell, f"{named}{error.strerror}")
    except ValueError as error:
        complain(tell, str(error))
    finally:
        os._exit(code)


def bear(mark: int) -> None:
    """Makes this process, and all it will ever fork, known by a mark (0: by none)."""
    if mark:
        resource.setrlimit(RLIMIT_LOCKS, (mark, mark))


def complain(tell: int, why: str) -> None:
    """Says why a worker cannot run, to the agent and (or the keeper's errors) into its output."""
    os.write(tell, why.encode("utf-8", "replace")[:2000])
    with contextlib.suppress(OSError):
        os.write(2, f"dovetail: {why}\n".encode("utf-8", "replace"))


def settle_in(order: dict[str, Any]) -> None:
    """Takes on directory, output, priority for the killer of memory, cores and control groups."""
    os.chdir(order["workdir"])
    output = open_output(order["output"], order.get("output_outside", ""))
    kind = os.fstat(output).st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISCHR(kind)):
        raise ValueError(f"{order['output']}: output goes to a file")
    os.set_blocking(output, True)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # When memory runs out workers go before what looks after them.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
    if order["cores"]:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, order["cores"])
    for tasks in order["cgroups"]:
        with contextlib.suppress(OSError), open(tasks, "w") as file:
            file.write("0")


def open_output(path: str, home: str) -> int:
    """Opens the file that a worker writes to. Raises ValueError if it is in the cluster's home.

    It was outside when the job was submitted; links in its path may have changed since. An empty
    `home` allows any folder.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    parent = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if home and is_below(os.readlink(f"/proc/self/fd/{parent}"), home):
            raise ValueError(f"{path}: output does not go into the folder of the cluster")
        return os.open(os.path.basename(path), flags, 0o600, dir_fd=parent)
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(parent)


def is_below(folder: str, home: str) -> bool:
    """Returns whether a folder, known by its real path, is another or lies in it."""
    while not os.path.samefile(folder, home):
        if folder == os.path.dirname(folder):
            return False
        folder = os.path.dirname(folder)
    return True


def children() -> list[int]:
    """Returns the children of this process, running or to be reaped."""
    try:
        with open("/proc/thread-self/children", encoding="utf-8") as file:
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:
        return children_by_parent()


def children_by_parent() -> list[int]:
    """Returns the same from all processes, for a kernel that has no list of children."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError):
                if int(stat_of(int(name))[1]) == os.getpid():
                    found.append(int(name))
    return found


def stat_of(pid: int) -> list[str]:
    """Returns the fields of /proc/PID/stat after the name, which may hold anything."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def start_time(pid: int) -> str:
    """Returns when a process started, in ticks since the machine did."""
    return stat_of(pid)[19]


def write(folder: str, name: str, what: dict[str, Any]) -> None:
    """Writes a file that appears whole and is on disk, for its owner alone: it may hold secrets."""
    path = os.path.join(folder, name)
    with open(path + ".new", "w", encoding="utf-8", opener=private) as file:
        json.dump(what, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)
    directory = os.open(folder, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def begins(folder: str) -> bool:
    """Tells whether this process is the first to say so: a keeper, or an agent that gave one up.

    A worker whose keeper was so slow that it was said to be gone must never run: by then another
    may run in its place.
    """
    try:
        os.mkdir(os.path.join(folder, "begun"), 0o700)
    except FileExistsError:
        return False
    return True


def private(path: str, flags: int) -> int:
    """Opens a file that only its owner may read."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def write_in_the_end(folder: str, name: str, what: dict[str, Any]) -> None:
    """Writes a file, after waiting for room on the disk: what ended well must not run again."""
    while True:
        try:
            return write(folder, name, what)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
        time.sleep(ROOM_AGAIN_S)


def prctl(option: int, value: int) -> None:
    """Asks the kernel for something about this process; an old kernel may refuse."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    # Should the folder be removed or moved, another worker's may have its name by now.
    os.chdir(sys.argv[1])
    main(".", int(sys.argv[2]))
