"""The keeper of one worker: a small process that outlives the agent and records the exit status.

Run as `python -I -S keeper.py FOLDER LOCK`; it reads `FOLDER/order.json`, and keeps the file LOCK
open: its lock shows that it lives. For most workers it imports nothing of ours.

The worker is a session of its own. Whatever it forks dies with it, even what left its process
group: the keeper is the subreaper of all of them, and reaps orphans as they exit. If the keeper is
killed, the worker dies with it, and the agent ends the rest by the mark that they inherit
(`orphans`). The exit status of the worker is on disk (`status.json`) before its orphans are killed,
and once more (`exit.json`, which frees the GPU) after the last of them is gone. Signals to the
keeper are passed on to the worker's group, SIGUSR1 as SIGKILL: only the parent that reaps a process
can signal it without hitting another one that has its number by now.
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
from collections.abc import Mapping, Sequence
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from dovetail.live.engines.keeper_terminal import Terminal, TerminalOrder
    from dovetail.live.engines.worker_user import WorkerUser

KILL = signal.SIGUSR1
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
RLIMIT_LOCKS = 10
"""The limit on file locks, by which a worker and all it forks are known; see `orphans`."""
NOT_NOW, CANNOT_RUN, NOT_FOUND = 125, 126, 127
"""Exit codes of a worker that was never executed: a retry may help, cannot, or no such program."""
PASSING = (
    errno.EAGAIN, errno.EBUSY, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE,
    errno.ETXTBSY,
)  # fmt: skip
"""Errors that may be gone at the next try; all others are the fault of the command."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
ROOM_AGAIN_S = 0.5
"""How long a keeper waits on a full disk before it tries again to write the exit status."""
STATUS, EXIT = "status.json", "exit.json"
"""The files of the exit status: when the worker has ended, and when all it forked is gone too."""
LOOK_S = 1.0
"""How often a keeper looks whether the lease of its node is over, or a container takes a signal."""
RESCAN_S, RESCAN_S_MAX = 0.1, 1.0
"""How long killed orphans may take to exit before others are looked for: at first, and at most."""


class KeeperOrder(TypedDict):
    """What a keeper needs of `order.json`, where agents store more.

    `cgroups` are the files into which the worker writes itself, `mark` is that of `orphans`. It may
    run as long as the file `lease` allows, and until `lease_over_s` where that cannot be read, or
    for ever. In containers alone, `removal` is the command that removes what the runtime has left
    (in `removal_environment`, if not the worker's), and the file `began` has the number of the
    first process. It runs as `run_as`, or as the keeper does. With a `terminal` its input and
    output are a client's.
    """

    argv: list[str]
    workdir: str
    output: str
    output_outside: NotRequired[str]
    environment: dict[str, str]
    cores: list[int]
    cgroups: Sequence[str]
    mark: int
    lease: NotRequired[str]
    lease_over_s: NotRequired[float]
    removal: NotRequired[list[str]]
    removal_environment: NotRequired[dict[str, str]]
    began: NotRequired[str]
    run_as: NotRequired[WorkerUser]
    terminal: NotRequired[TerminalOrder]


def main(folder: str, lock: int) -> None:
    """Runs the worker of a folder to its end."""
    os.set_inheritable(lock, False)
    with open(os.path.join(folder, "order.json"), encoding="utf-8") as file:
        order = json.load(file)
    # Once `keeper.json` is there agents signal this process, so its handlers come first.
    keeper = Keeper()
    write(folder, "keeper.json", {"pid": os.getpid(), "start": start_time(os.getpid())})
    if not claim_start(folder):
        return
    # Before the fork: orphans of the worker become children of this process.
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    why, status = keeper.run(order)
    code = exit_code(status, in_container="removal" in order)
    end = {"exit_code": code, "why": why}
    with contextlib.suppress(OSError):
        # A full disk must not keep orphans alive; the same is in EXIT in the end.
        write(folder, STATUS, end)
    kill_orphans()
    keeper.finish(order, code)
    write_when_room(folder, EXIT, end)


class Keeper:
    """Waits for one child and forwards signals to its process group.

    It kills the group when the lease of the node is over: no agent may be there to do it.
    """

    def __init__(self) -> None:
        self._child = self._early = self._unsent = 0
        self._lease = self._began = ""
        self._lease_over_s = float("inf")
        self._terminal: Terminal | None = None
        self._container: ModuleType | None = None
        self._is_told_to_end = False
        # A parent that ignores SIGCHLD passes that on, and then the kernel keeps no exit status.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in (KILL, *PASSED_ON):
            signal.signal(number, self._pass_on)

    def _prepare(self, order: KeeperOrder) -> None:
        """Opens the terminal, and imports now what the installation may lack when it is needed."""
        sys.path.append(os.path.abspath(f"{__file__}/../../../.."))
        if "terminal" in order:
            from dovetail.live.engines.keeper_terminal import Terminal

            self._terminal = Terminal(order["terminal"], self._signal)
        if "removal" in order:
            from dovetail.live.engines import keeper_container

            self._container = keeper_container

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._is_told_to_end = True
        self._signal(signal.SIGKILL if number == KILL else number)
        if self._terminal is not None and self._child and number == signal.SIGTERM:
            self._terminal.hang_up_if_deaf(self._child)

    def _signal(self, number: int) -> None:
        # A signal before the fork is stored: `run` then starts nothing.
        if self._child and self._began and number != signal.SIGKILL:
            self._unsent = 0 if self._reaches_container(number) else number
        elif self._child:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child, number)
        else:
            self._early = number

    def _reaches_container(self, number: int) -> bool:
        assert self._container is not None
        return bool(self._container.signal_container(self._began, number, parent_of))

    def _look(self, number: int, frame: FrameType | None) -> None:
        if self._unsent and self._reaches_container(self._unsent):
            self._unsent = 0
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            # A file that cannot be read now was not renewed either: what was read last counts.
            with open(self._lease, encoding="ascii") as file:
                lease = json.load(file)
            # Twice the same, or this was read while it was written over.
            if lease["until_s"] == lease["again_s"]:
                self._lease_over_s = float(lease["until_s"]) + float(lease["grace_s"])
        if self._child and time.clock_gettime(time.CLOCK_BOOTTIME) >= self._lease_over_s:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child, signal.SIGKILL)

    def run(self, order: KeeperOrder) -> tuple[str, int]:
        """Starts the worker and returns why it could not run, if so, and its status."""
        read_end, write_end = os.pipe()
        parent = os.getpid()
        self._prepare(order)
        passed_on = (KILL, *PASSED_ON, signal.SIGALRM)
        why = "" if self._terminal is None else self._terminal.await_client(lambda: self._early)
        signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)
        if self._early or why:
            return ("ended before it ran", self._early) if self._early else (why, signal.SIGHUP)
        child = os.fork()
        if child == 0:
            exec_worker(order, parent, write_end, self._terminal)
        os.close(write_end)
        # The child writes its first byte after it has made its group, so that from here on the
        # group can be signalled. Signals are blocked until then: one that came between the fork
        # and this line would find no group and be lost.
        os.read(read_end, 1)
        self._child = child
        self._lease, self._began = order.get("lease", ""), order.get("began", "")
        self._lease_over_s = order.get("lease_over_s", self._lease_over_s)
        if self._lease or self._began:
            signal.signal(signal.SIGALRM, self._look)
            signal.setitimer(signal.ITIMER_REAL, LOOK_S, LOOK_S)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
        # The rest of the pipe is why the worker could not be executed. A successful `exec` closes
        # the write end, so that nothing is read and the loop ends at once.
        while piece := os.read(read_end, 4096):
            why += piece.decode("utf-8", "replace")
        os.close(read_end)
        # The child is left a zombie until the group is killed: its number cannot be given to
        # another process meanwhile, and a signal cannot hit a stranger.
        if self._terminal is None:
            reap_until_exit_of(child)
        else:
            self._terminal.started()
            why = why or self._terminal.serve_until_exit(child, reap_until_exit_of)
        # Blocked for good: from the reaping on, the number may belong to another process.
        signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        return why, os.waitpid(child, 0)[1]

    def finish(self, order: KeeperOrder, code: int) -> None:
        """Removes what is left of the container, and delivers what is left of the output."""
        if self._container is not None:
            self._container.remove_container(order)
        if self._terminal is not None:
            self._terminal.finish(code, is_told_to_end=self._is_told_to_end)


def exit_code(status: int, *, in_container: bool) -> int:
    """Returns the exit code of a worker, or -N after signal N.

    The runtime of a container exits with 128 + N when its program was ended by signal N.
    """
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if in_container and 128 < code < 128 + signal.SIGRTMIN else code


def reap_until_exit_of(child: int, how: int = 0) -> bool:
    """Waits until a child has exited, without reaping it; reaps orphans as they exit.

    With WNOHANG it does not wait, and returns whether the child has exited.
    """
    while True:
        exited = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | how)
        if exited is None or exited.si_pid == child:
            return exited is not None
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
        listed = children()
        killed = [pid for pid in listed if pid not in dying and kill(pid)]
        dying.update(killed)
        if listed and not dying:
            # All that are left run as other users: waiting for them could take forever.
            return
        if not listed:
            # A list made from all processes can miss one that comes while it is read.
            time.sleep(patience_s)
        reap(dying, time.monotonic() + patience_s)
        patience_s = min(2 * patience_s, RESCAN_S_MAX)


def has_children() -> bool:
    """True if this process has a child, running or to be reaped."""
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


def exec_worker(order: KeeperOrder, keeper: int, tell: int, terminal: Terminal | None) -> None:
    """Executes the worker in this process; reports why if that fails."""
    code = CANNOT_RUN
    try:
        # A group of its own, so that signals to the worker never reach the keeper.
        os.setsid()
        os.write(tell, b".")
        # Before anything else of the user: what the worker forks inherits the mark.
        set_mark(order["mark"])
        bound_process(order)
        if "run_as" in order:
            from dovetail.live.engines.worker_user import become

            become(order["run_as"])
        # Only now: the kernel takes it back from a process that changes its user.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            # The keeper died before prctl, so no signal will come.
            os._exit(CANNOT_RUN)
        if terminal is None:
            set_up_process(order)
        else:
            terminal.take_over(order["workdir"])
        for number in (KILL, *PASSED_ON, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        # `exec` keeps the mask and ignored signals: the program would never receive them.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvpe(order["argv"][0], order["argv"], order["environment"])
    except FileNotFoundError as error:
        code, word, path = NOT_FOUND, order["argv"][0], os.fsdecode(error.filename)
        # A command without a slash is searched in PATH, and the error names the last folder of it.
        sought = "/" not in word and path.endswith("/" + word)
        why = error.strerror if path != order["workdir"] else "no such working directory here"
        report_failure(tell, f"{word if sought else path}: {why}")
    except OSError as error:
        code = NOT_NOW if error.errno in (*PASSING, *NO_ROOM) else CANNOT_RUN
        subject = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        report_failure(tell, f"{subject}{error.strerror}")
    except ValueError as error:
        report_failure(tell, str(error))
    finally:
        # Never back into the code of the keeper, of which this process is a copy.
        os._exit(code)


def set_mark(mark: int) -> None:
    """Marks this process and all that it will fork (0: not at all)."""
    if mark:
        resource.setrlimit(RLIMIT_LOCKS, (mark, mark))


def report_failure(tell: int, why: str) -> None:
    """Reports why a worker cannot run: to the keeper, and on standard error."""
    os.write(tell, why.encode("utf-8", "replace")[:2000])
    with contextlib.suppress(OSError):
        os.write(2, f"dovetail: {why}\n".encode("utf-8", "replace"))


def bound_process(order: KeeperOrder) -> None:
    """Sets OOM priority, cores and control groups of this process."""
    # When memory runs out the kernel should kill workers before keepers and agents.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
    if order["cores"]:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, order["cores"])
    for tasks in order["cgroups"]:
        with contextlib.suppress(OSError), open(tasks, "w") as file:
            file.write("0")


def set_up_process(order: KeeperOrder) -> None:
    """Sets directory and output of this process."""
    os.chdir(order["workdir"])
    mode = 0o640 if "run_as" in order else 0o600
    output = open_output(order["output"], order.get("output_outside", ""), mode)
    kind = os.fstat(output).st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISCHR(kind)):
        raise ValueError(f"{order['output']}: output goes to a file")
    os.set_blocking(output, True)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def open_output(path: str, home: str, mode: int) -> int:
    """Opens the file that a worker writes to. Raises ValueError if it is in the cluster's home.

    It was outside when the job was submitted; links in its path may have changed since. An empty
    `home` allows any folder.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    parent = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if home and is_below(os.readlink(f"/proc/self/fd/{parent}"), home):
            raise ValueError(f"{path}: output does not go into the folder of the cluster")
        return os.open(os.path.basename(path), flags, mode, dir_fd=parent)
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(parent)


def is_below(folder: str, home: str) -> bool:
    """True if a folder, known by its real path, is another or lies in it."""
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
    pids = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError):
                if parent_of(int(name)) == os.getpid():
                    pids.append(int(name))
    return pids


def stat_of(pid: int) -> list[str]:
    """Returns the fields of /proc/PID/stat after the name, which may hold anything."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def parent_of(pid: int) -> int:
    """Returns the parent of a process."""
    return int(stat_of(pid)[1])


def start_time(pid: int) -> str:
    """Returns when a process started, in ticks since the machine did."""
    return stat_of(pid)[19]


def write(folder: str, name: str, what: Mapping[str, object]) -> None:
    """Writes a file that appears whole and is on disk, for its owner alone: it may hold secrets.

    Not `files.whole_file`: a keeper imports nothing of ours, and may outlive the installation.
    """
    path = os.path.join(folder, name)
    with open(path + ".new", "w", encoding="utf-8", opener=private) as file:
        json.dump(what, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)
    directory = os.open(folder, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def claim_start(folder: str) -> bool:
    """Returns True to the first of two that claim the start: the keeper, or an agent that gave up.

    An agent may report a slow keeper as lost. Its worker must never run after that, since another
    may run in its place. Making a folder is atomic, so exactly one claim succeeds.
    """
    try:
        os.mkdir(os.path.join(folder, "begun"), 0o700)
    except FileExistsError:
        return False
    return True


def private(path: str, flags: int) -> int:
    """Opens a file that only its owner may read; no link is followed, and no pipe waited for."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def write_when_room(folder: str, name: str, what: Mapping[str, object]) -> None:
    """Writes a file, waiting for room on a full disk: a job that completed must not run again."""
    while True:
        try:
            return write(folder, name, what)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
        time.sleep(ROOM_AGAIN_S)


def prctl(option: int, value: int) -> None:
    """Calls prctl(2) for this process; an old kernel may refuse."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    # By inode from here on: if the folder is removed, another may get its name.
    os.chdir(sys.argv[1])
    main(".", int(sys.argv[2]))
