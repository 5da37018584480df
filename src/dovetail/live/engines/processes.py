"""The launcher of this machine: each worker is a process with a keeper, and survives the agent.

Under `workers/` each worker has a folder with its order, the messages that must not be lost, the
number of its keeper and, in the end, its exit code. A later agent finds them there. A keeper has
the lock of its folder while it lives, so that no other process with the same number is taken for
it; signals go through a descriptor of the process, never by number.

Workers run as the user who runs the agent, with no more and no fewer rights, unless the settings
say otherwise (`user_processes`).
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dovetail.files.whole_file import PRIVATE, write_whole
from dovetail.live.engines import keeper, last_output, orphans
from dovetail.live.engines.containers import ContainerRelease
from dovetail.live.engines.keeper import KeeperOrder
from dovetail.live.engines.keeper_terminal import WARNING
from dovetail.live.jobs.lineage import lineage_folder
from dovetail.live.node.launcher import (
    NEVER_RUNS,
    NOT_NOW,
    AdoptedWorker,
    DiskFull,
    LaunchError,
    StartDeferred,
    WorkerExit,
)
from dovetail.live.system.bounded_wait import BoundedWait
from dovetail.live.system.file_lock import is_locked
from dovetail.live.system.private_file import make_private_folder, open_owned
from dovetail.wire.agent import StartWorker
from dovetail.wire.codec import WireError, build_nested, parse_object, plain
from dovetail.wire.worker import FROM_WORKER, FromWorker, ToWorker

NAMED_WITHIN_S = 60.0
"""A keeper writes its name within milliseconds; on a machine that swaps it may take longer."""
LOST = "its keeper was killed"
OUT_OF_MEMORY = "out of memory"


class ProcessSettings:
    """Prepares the processes of workers. This one adds nothing to what was ordered."""

    def must_wait(self, order: StartWorker) -> str:
        """Returns what a worker must wait for before it is started, empty if for nothing."""
        return ""

    def make_folder(self, order: StartWorker) -> None:
        """Makes the folder of a worker's job, if it is not there. Raises OSError, ValueError."""
        Path(order.folder).mkdir(mode=0o700, parents=True, exist_ok=True)

    def owner(self, order: StartWorker) -> int:
        """Returns the uid whose files alone may be touched for a worker, -1 if it is our own."""
        return -1

    def prepare(self, order: StartWorker, token: str, folder: Path) -> KeeperOrder:
        """Returns what the keeper of a worker needs; `token` is the worker's secret.

        Further files may be put into `folder`, which is its own.
        """
        return {
            "argv": list(order.command),
            "workdir": order.workdir,
            "output": order.output,
            "environment": {**os.environ, **dict(order.environment)},
            "cores": [],
            "cgroups": [],
            "mark": orphans.new_mark(),
        }

    def limit(self, order: StartWorker) -> None:
        """Applies another share and memory bound to a running worker, where that is possible."""

    def ran_out_of_memory(self, job: int, worker: int) -> bool:
        """True if a worker was killed for its memory."""
        return False

    def clear(self, job: int, worker: int) -> None:
        """Removes what was made for a worker that has ended."""


@dataclass(slots=True)
class _Kept:
    """The keeper of a living worker: a descriptor of it, and the process if it is our child."""

    folder: Path
    pidfd: int
    child: subprocess.Popen[bytes] | None


class ProcessLauncher:
    """Runs the workers of one node of this machine.

    Below `home`, the folder of the cluster, a worker writes its output to the folder of its job
    alone.
    """

    def __init__(
        self,
        folder: Path,
        setting: ProcessSettings | None = None,
        tell: Callable[[int, int, ToWorker], None] = lambda job, worker, message: None,
        drain: Callable[[int, int], None] = lambda job, worker: None,
        home: Path | None = None,
    ) -> None:
        self._folder, self._home = folder, home
        self._setting = setting or ProcessSettings()
        self._tell, self._drain = tell, drain
        self._kept: dict[tuple[int, int], _Kept] = {}
        # Folders of workers whose keeper was killed, and its exit code if that is known.
        self._orphaned: dict[tuple[int, int], tuple[Path, int | None]] = {}
        self._orders: dict[tuple[int, int], StartWorker] = {}
        self._removals = ContainerRelease()
        self._ends = select.epoll()
        self._io = BoundedWait()
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_private_folder(folder)

    # What is there from before.

    def adopt(self) -> Sequence[AdoptedWorker]:
        """Returns the workers of earlier agents, and watches those that live."""
        adopted = []
        # One deadline for all: a node with many slow keepers must not take as many times as long.
        give_up_s = time.monotonic() + NAMED_WITHIN_S
        for folder in sorted(self._folder.iterdir()):
            try:
                stored = parse_object((folder / "order.json").read_bytes())
                order = build_nested(stored["start"], StartWorker, "start")
                token, started_s = str(stored["token"]), float(str(stored["started_s"]))
            except (FileNotFoundError, NotADirectoryError):
                # The agent died before it had written the order: nothing was started.
                shutil.rmtree(folder, ignore_errors=True)
                continue
            except (WireError, KeyError, ValueError):
                _end_unread(folder, give_up_s)
                continue
            end = self._take_up(order.job, order.worker, folder, give_up_s)
            if end is None:
                self._orders[order.job, order.worker] = order
                # Its agent may have died after it wrote new limits and before it applied them.
                self._setting.limit(order)
            adopted.append(AdoptedWorker(order, token, started_s, end, _stored_messages(folder)))
        return adopted

    def _take_up(self, job: int, worker: int, folder: Path, give_up_s: float) -> WorkerExit | None:
        """Watches a keeper that lives; returns the end of a worker that has none."""
        pidfd = _living(folder, give_up_s)
        if pidfd is None:
            return self._exit(job, worker, folder, None)
        self._watch(job, worker, _Kept(folder, pidfd, None))
        return None

    def _watch(self, job: int, worker: int, kept: _Kept) -> None:
        self._kept[job, worker] = kept
        self._ends.register(kept.pidfd, select.EPOLLIN)

    # Verbs.

    def start(self, order: StartWorker, token: str, now: float) -> None:
        """Starts a worker and its keeper.

        Raises LaunchError, DiskFull on a full disk, and StartDeferred while it must wait.
        """
        waits_for = self._setting.must_wait(order) or self._waits_for_folder(order)
        if waits_for:
            raise StartDeferred(waits_for)
        folder = self._folder / f"{order.job}-{order.worker}"
        try:
            self._write(folder, order, token, now)
            self._watch(order.job, order.worker, _keep(folder))
            self._orders[order.job, order.worker] = order
        except OSError as error:
            if error.errno in keeper.NO_ROOM:
                self._setting.clear(order.job, order.worker)
                shutil.rmtree(folder, ignore_errors=True)
                raise DiskFull from None
            raise LaunchError(f"{error.filename or folder}: {error.strerror}", NOT_NOW) from None
        except ValueError as error:
            raise LaunchError(str(error)) from None

    def _waits_for_folder(self, order: StartWorker) -> str:
        """Returns that the job's folder does not answer, as one on a network may not."""
        lineage = lineage_folder(Path(order.folder), order.lineage)
        try:
            self._io.call(
                lambda: (lineage.is_dir(), last_output.output_size(order.workdir, order.output))
            )
        except TimeoutError:
            return f"its folder {order.folder} does not answer"
        return ""

    def outputs(self) -> dict[Path, int]:
        """Returns the files in the folders of their jobs to which living workers write.

        Each with the uid whose file it must be, -1 if it is our own.
        """
        orders = (o for o in self._orders.values() if not o.terminal)
        own = (o for o in orders if Path(o.output).parent == Path(o.folder))
        return {Path(o.output): self._setting.owner(o) for o in own}

    def living(self) -> dict[tuple[int, int], tuple[int, tuple[int, ...]]]:
        """Returns the process of the keeper and the GPUs of each living worker."""
        found = {}
        for (job, worker), order in self._orders.items():
            with suppress(OSError, ValueError, KeyError):
                text = (self._folder / f"{job}-{worker}" / "keeper.json").read_bytes()
                found[job, worker] = int(json.loads(text)["pid"]), order.all_gpus
        return found

    def terminal(self, job: int, worker: int) -> Path | None:
        """Returns the folder with the terminal of a worker that lives; None if there is none."""
        order = self._orders.get((job, worker))
        if order is None or not order.terminal:
            return None
        return self._folder / f"{job}-{worker}"

    def warn(self, job: int, worker: int, text: str) -> None:
        """Writes a line into the output of a worker, if that is a plain file or a terminal."""
        order = self._orders.get((job, worker))
        if order is None:
            return
        if order.terminal:
            with suppress(OSError):
                note = self._folder / f"{job}-{worker}" / WARNING
                write_whole(note, f"\r\n[dovetail: {text}]\r\n", mode=PRIVATE, synced=False)
            return
        path, owner = Path(order.workdir, order.output), self._setting.owner(order)

        def write() -> None:
            file = open_owned(path, owner, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
            try:
                os.write(file, f"[dovetail: {text}]\n".encode())
            finally:
                os.close(file)

        with suppress(OSError):
            self._io.call(write)

    def _write(self, folder: Path, order: StartWorker, token: str, now: float) -> None:
        self._setting.make_folder(order)
        folder.mkdir(mode=0o700)
        prepared = self._setting.prepare(order, token, folder)
        own = Path(order.output).parent == Path(order.folder)
        prepared["output_outside"] = "" if own or self._home is None else str(self._home)
        if order.terminal:
            kind, owner = order.terminal, self._setting.owner(order)
            prepared["terminal"] = {"kind": kind, "grace_s": order.grace_s, "owner": owner}
        stored = {
            "start": plain(order),
            "token": token,
            "started_s": now,
            "output_from": last_output.output_size(order.workdir, order.output),
        }
        _write_order(folder, {**stored, **prepared})

    def limit(self, order: StartWorker) -> None:
        """Applies another share and memory bound, and stores them for a later agent."""
        folder = self._folder / f"{order.job}-{order.worker}"
        with suppress(OSError, ValueError):
            # On a full disk a later agent knows less; this one still knows.
            stored = json.loads((folder / "order.json").read_bytes())
            _write_order(folder, {**stored, "start": plain(order)})
        self._setting.limit(order)

    def signal(self, job: int, worker: int, number: int) -> None:
        """Sends a signal to a worker and all that it has forked."""
        kept = self._kept.get((job, worker))
        if kept is None:
            return
        number = keeper.KILL if number == signal.SIGKILL else number
        try:
            signal.pidfd_send_signal(kept.pidfd, number)
            # A keeper that was suspended (SIGSTOP) could not forward the signal.
            signal.pidfd_send_signal(kept.pidfd, signal.SIGCONT)
        except ProcessLookupError:
            return

    def send(self, job: int, worker: int, message: ToWorker) -> None:
        """Sends a message to a worker, if it is connected."""
        self._tell(job, worker, message)

    def store(self, job: int, worker: int, message: FromWorker) -> None:
        """Stores a message of a worker in its folder."""
        try:
            path = self._folder / f"{job}-{worker}" / "said"
            with open(path, "ab", opener=keeper.private) as file:
                file.write(FROM_WORKER.encode(message))
        except OSError:
            # On a full disk a later agent knows less; this one still knows.
            return

    def poll(self) -> Sequence[WorkerExit]:
        """Returns the ends that were not returned before."""
        # First those whose processes were killed the last time, and may be gone by now.
        ends = [self._exit(*key, *left) for key, left in list(self._orphaned.items())]
        if self._kept:
            keys = {kept.pidfd: key for key, kept in self._kept.items()}
            ends += [self._reap(keys[fd]) for fd, _ in self._ends.poll(0)]
        return [end for end in ends if end is not None]

    def fileno(self) -> int:
        """Returns a descriptor that is readable while `poll` has an end to return."""
        return self._ends.fileno()

    @property
    def alive(self) -> int:
        """Returns how many workers have not been polled as ended."""
        return len(self._kept) + len(self._orphaned)

    def forget(self, job: int, worker: int) -> None:
        """Removes the folder of a worker that has ended."""
        shutil.rmtree(self._folder / f"{job}-{worker}", ignore_errors=True)

    def close(self) -> None:
        """Stops watching the keepers; they and their workers live on."""
        for kept in self._kept.values():
            os.close(kept.pidfd)
            if kept.child is not None:
                # Not ours to wait for any more; a later agent finds it in its folder.
                kept.child.returncode = 0
        self._kept.clear()
        self._ends.close()

    # Ends.

    def _reap(self, key: tuple[int, int]) -> WorkerExit | None:
        kept = self._kept.pop(key)
        # Messages that it sent before its end are read first.
        self._drain(*key)
        self._ends.unregister(kept.pidfd)
        os.close(kept.pidfd)
        code = None if kept.child is None else kept.child.wait()
        return self._exit(*key, kept.folder, code)

    def _exit(
        self, job: int, worker: int, folder: Path, keeper_code: int | None
    ) -> WorkerExit | None:
        """Returns how a worker ended whose keeper is gone, None while anything of it is there."""
        end = _written_end(job, worker, folder / keeper.EXIT)
        if end is None:
            if _kill_orphans(folder) or self._removals.is_removing(folder):
                self._orphaned[job, worker] = (folder, keeper_code)
                return None
            # A keeper that was killed while it ended orphans had written the status before.
            end = _written_end(job, worker, folder / keeper.STATUS) or _unwritten_end(
                job, worker, keeper_code
            )
        self._orphaned.pop((job, worker), None)
        self._orders.pop((job, worker), None)
        killed = self._setting.ran_out_of_memory(job, worker)
        self._setting.clear(job, worker)
        if end.exit_code in (NOT_NOW, *NEVER_RUNS) and not end.why:
            return replace(end, why=last_output.why_not_executed(folder, self._io))
        no_room = (killed and end.exit_code < 0) or last_output.found_no_room(folder, end, self._io)
        return replace(end, why=OUT_OF_MEMORY) if no_room else end


def _written_end(job: int, worker: int, file: Path) -> WorkerExit | None:
    """Returns the end that a keeper has written to one of its two files."""
    try:
        end = json.loads(file.read_bytes())
        return WorkerExit(job, worker, int(end["exit_code"]), str(end["why"]))
    except (OSError, ValueError, KeyError):
        return None


def _unwritten_end(job: int, worker: int, keeper_code: int | None) -> WorkerExit:
    """Returns the end of a worker whose keeper was killed."""
    code = keeper_code if keeper_code is not None and keeper_code < 0 else -signal.SIGKILL
    # A signal that came before the keeper could pass it on was meant for the worker.
    was_passed_on = code in (-signal.SIGTERM, -keeper.KILL)
    code = -signal.SIGKILL if code == -keeper.KILL else code
    return WorkerExit(job, worker, code, "" if was_passed_on else LOST)


def _end_unread(folder: Path, give_up_s: float) -> None:
    """Ends a worker whose order cannot be read (another release wrote it): nothing manages it."""
    pidfd = _living(folder, give_up_s)
    if pidfd is None:
        _kill_orphans(folder)
        shutil.rmtree(folder, ignore_errors=True)
        return
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, keeper.KILL)
    os.close(pidfd)


def _kill_orphans(folder: Path) -> bool:
    """Kills what a worker and all that it forked have left; returns whether something was there."""
    try:
        order = json.loads((folder / "order.json").read_bytes())
        mark = int(order.get("mark", orphans.UNMARKED))
        groups = [str(file) for file in order.get("cgroups", ())]
    except (OSError, ValueError, AttributeError, TypeError):
        return False
    marked = orphans.kill_marked(mark)
    return orphans.kill_in_groups(groups) or marked


def _write_order(folder: Path, order: Mapping[str, object]) -> None:
    """Writes what a keeper reads when it starts, and later agents read back. Raises OSError."""
    text = json.dumps(order)
    write_whole(folder / "order.json", text, mode=PRIVATE, folder_synced=True)


def _keep(folder: Path) -> _Kept:
    """Starts the keeper of a folder, with the lock of the folder already taken."""
    create = os.O_CREAT | os.O_CLOEXEC
    lock = keeper.private(str(folder / "lock"), os.O_RDWR | create)
    errors = keeper.private(str(folder / "keeper.err"), os.O_WRONLY | create)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, "-I", "-S", keeper.__file__, str(folder), str(lock)]
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=(lock,),
            start_new_session=True,
            cwd="/",
            env={},
        )
    finally:
        os.close(lock)
        os.close(errors)
    return _Kept(folder, os.pidfd_open(child.pid), child)


def _living(folder: Path, give_up_s: float) -> int | None:
    """Returns a descriptor of a folder's keeper, None if it is gone or too slow to begin."""
    given_up = False
    while is_locked(folder / "lock"):
        try:
            process = json.loads((folder / "keeper.json").read_bytes())
            pidfd = os.pidfd_open(int(process["pid"]))
        except (OSError, ValueError, KeyError):
            if given_up:
                return None
            given_up = time.monotonic() >= give_up_s and _given_up(folder)
            if not given_up:
                time.sleep(0.01)
            continue
        # Another process may have the number by now: the time of its start tells.
        if _started(int(process["pid"])) == process["start"]:
            return pidfd
        os.close(pidfd)
        return None
    return None


def _given_up(folder: Path) -> bool:
    """Claims the start in place of a slow keeper, so that it cannot begin. False if that failed."""
    try:
        keeper.claim_start(str(folder))
    except OSError:
        # A full disk. The keeper cannot begin on it either, and ends when it tries.
        return False
    return True


def _started(pid: int) -> str:
    try:
        return keeper.start_time(pid)
    except (OSError, IndexError):
        return ""


def _stored_messages(folder: Path) -> tuple[FromWorker, ...]:
    """Returns the stored messages of a worker, without a last line that was cut off."""
    messages: list[FromWorker] = []
    try:
        lines = (folder / "said").read_bytes().splitlines()
    except OSError:
        return ()
    for line in lines:
        try:
            messages.append(FROM_WORKER.decode(line))
        except WireError:
            break
    return tuple(messages)
