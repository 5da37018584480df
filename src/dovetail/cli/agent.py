"""`dovetail agent`, hidden: the process of all agents on this machine. `dovetail up` starts it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import click

from dovetail.core.errors import DovetailError, InputError

if TYPE_CHECKING:
    from dovetail.live.access.user_list import StoredUsers
    from dovetail.live.engines.agent_server import EngineNodes
    from dovetail.live.engines.engine import EngineSpec
    from dovetail.live.node.transport import EventLoop
    from dovetail.study.option_texts import OptionTexts

REPORT_S = 1.0
"""Seconds of real time between the progress reports of a synthetic job."""

WRITE_S = 5.0
"""Seconds of real time between writes of a job's progress: the most that a kill loses."""

STEPS_MAX = 20
"""Instants that emulated nodes process, in a few milliseconds, before orders are read again."""


@click.command("agent", hidden=True)
@click.option("--home", required=True, type=click.Path(path_type=Path))
@click.option("--engine", required=True, help="As for up.")
@click.option("--given", default="{}", help="Options of the speed of synthetic jobs, as JSON.")
@click.option("--daemon", is_flag=True, help="Continue in the background once it listens.")
@click.option(
    "--users", type=click.Path(path_type=Path), help="As for up: run jobs as their submitters."
)
def agent(home: Path, engine: str, given: str, daemon: bool, users: Path | None) -> None:
    """Run the agents of all nodes of an engine; `dovetail up` starts it.

    \b
    Example:
      dovetail agent --home ~/.dovetail --engine local:4
    """
    from dovetail.live.engines.engine import EngineSpec
    from dovetail.live.system.private_file import check_home, make_private_folder

    words = EngineSpec.parse(engine)
    if users is None:
        check_home(home)
        make_private_folder(home / "nodes")
    file = _user_file(home, users)
    if daemon:
        _detach(home, lambda ready: _serve(home, engine, words, given, ready, file))
    else:
        _serve(home, engine, words, given, lambda: None, file)


def _user_file(home: Path, users: Path | None) -> StoredUsers | None:
    """Returns the users of a cluster; the home is that of `up --users`, `agent` in it is ours."""
    from dovetail.live.access.shared_home import SharedHome
    from dovetail.live.access.user_list import ROOT, StoredUsers

    if users is None:
        return None
    if os.geteuid() != ROOT:
        raise InputError("--users", "only root may run jobs as other users", "start it as root")
    file = StoredUsers(users)
    SharedHome(home.absolute().parent).make(file.users().controller)
    return file


def _detach(home: Path, serve: Callable[[Callable[[], None]], None]) -> None:
    """Serves in a new process, and returns when that process listens. Raises DovetailError."""
    read_end, write_end = os.pipe()
    if os.fork():
        os.close(write_end)
        with os.fdopen(read_end, "rb") as reports:
            message = reports.read().decode("utf-8", "replace")
        if message != "ready":
            raise DovetailError(message or "the agents failed to start; see nodes/agent.log")
        return
    os.close(read_end)
    os.setsid()

    pipe = os.fdopen(write_end, "wb")

    def ready() -> None:
        pipe.write(b"ready")
        pipe.close()

    code, failure = 1, ""
    try:
        _redirect(home / "nodes" / "agent.log")
        serve(ready)
        code = 0
    except DovetailError as error:
        failure = str(error)
        _log(f"cannot run: {failure}")
    except SystemExit:
        # SIGTERM: the workers of this machine continue, and a later agent adopts them.
        code = 0
    except BaseException as error:
        import traceback

        traceback.print_exc()
        failure = f"{type(error).__name__}: {error}"
    finally:
        # Not by its descriptor: once closed, its number may be that of another file.
        with suppress(OSError):
            if not pipe.closed:
                pipe.write(failure.encode())
                pipe.close()
        sys.stderr.flush()
        os._exit(code)


def _redirect(log: Path) -> None:
    from dovetail.live.system.private_file import open_private

    out = open_private(log, os.O_WRONLY | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
    os.close(nothing)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _serve(
    home: Path,
    engine: str,
    words: EngineSpec,
    given: str,
    ready: Callable[[], None],
    users: StoredUsers | None,
) -> None:
    from dovetail.files.whole_file import PRIVATE, write_whole
    from dovetail.live.engines.agent_server import AgentServer
    from dovetail.live.engines.engine import EMULATED, agent_lock, control_socket, running_engine
    from dovetail.live.node.transport import EventLoop
    from dovetail.wire.agent import WIRE_VERSION

    lock = _lock(home)
    began_s = monotonic()

    def clock() -> float:
        return (monotonic() - began_s) * words.speed

    running = running_engine(home)
    running.unlink(missing_ok=True)  # A killed process may have left this file.
    with ExitStack() as stack:
        stack.callback(os.close, lock)
        loop = stack.enter_context(closing(EventLoop()))
        if words.kind == EMULATED:
            nodes, count = _emulated(words, json.loads(given))
        else:
            nodes, count = _local(home, words, loop, clock, users)
        stack.callback(nodes.close)
        controller_uid = -1 if users is None else users.users().controller.uid
        server = AgentServer(
            loop,
            control_socket(home),
            nodes,
            count,
            clock,
            speed=words.speed,
            log=_log,
            controller_uid=controller_uid,
        )
        stack.callback(server.close)
        runs = {"engine": engine, "given": json.loads(given), "wire": WIRE_VERSION}
        write_whole(running, json.dumps(runs), mode=PRIVATE, synced=False)
        stack.callback(_remove_description, running, agent_lock(home), lock)
        _log(f"agents of {engine} listen (process {os.getpid()})")
        ready()
        server.serve()
        _log("agents end")


def _remove_description(running: Path, path: Path, lock: int) -> None:
    """Removes the file that describes these agents, unless the folder has been recreated since."""
    with suppress(OSError):
        if path.stat().st_ino == os.fstat(lock).st_ino:
            running.unlink()


def _lock(home: Path) -> int:
    """Returns the lock of the agents of a folder. Raises InputError if it is taken."""
    from dovetail.live.engines.engine import agent_lock
    from dovetail.live.system.private_file import open_private

    lock = open_private(agent_lock(home), os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise InputError(str(home), "agents run here already") from None
    return lock


def _local(
    home: Path,
    words: EngineSpec,
    loop: EventLoop,
    clock: Callable[[], float],
    users: StoredUsers | None,
) -> tuple[EngineNodes, int]:
    from functools import partial
    from hashlib import sha256

    from dovetail.live.engines.cgroup import MEMORY, PREFIX, SHARE, ControlGroups
    from dovetail.live.engines.engine import devices_of, notes_of
    from dovetail.live.engines.local import LocalNodes, LocalProcessSettings
    from dovetail.live.engines.user_processes import UserJobs, UserProcessSettings

    devices = devices_of(words)
    for note in notes_of(words):
        _log(note)
    ControlGroups.sweep()
    groups = ControlGroups.below_own(f"{PREFIX}{sha256(bytes(home)).hexdigest()[:12]}")
    for what in (SHARE, MEMORY):
        if what not in groups.enforces and not devices[0].are_gpus:
            _log(f"control groups are unavailable: limits on {what} are not enforced")
    if groups.tracking is None:
        _log("control groups are unavailable: processes that leave their session outlive their job")
    settings: Callable[..., LocalProcessSettings] = LocalProcessSettings
    if users is not None:
        jobs = UserJobs(users.users, home.absolute().parent / "jobs", _log)
        settings = partial(UserProcessSettings, jobs)
    elif os.geteuid() == 0:
        _log("jobs run as root, the owner of this folder")
    folders = [home / "nodes" / str(node) for node in range(len(devices))]
    # Below the home of several users only root and the controller can write anyway.
    outside = home if users is None else None
    try:
        nodes = LocalNodes(folders, devices, loop, clock, groups, outside, settings=settings)
    except DovetailError:
        groups.close()
        raise
    if nodes.alive:
        _log(f"found {len(nodes.alive)} running workers")
    return nodes, len(devices)


def _emulated(words: EngineSpec, given: OptionTexts) -> tuple[EngineNodes, int]:
    import numpy as np

    from dovetail.core.job import JobTable
    from dovetail.live.emulation.nodes import EmulatedNodes, FolderProgressStore
    from dovetail.live.engines.engine import cluster_of
    from dovetail.live.serving.scheduler import live_options, live_physics

    cluster = cluster_of(words)
    options = live_options(cluster, given)
    jobs = JobTable.build([], np.empty(0), np.empty(0, np.int64))
    nodes = EmulatedNodes(
        len(cluster.installed),
        cluster.installed,
        jobs=jobs,
        physics=live_physics(jobs, options),
        costs=options.switching,
        progress=FolderProgressStore(),
        report_s=REPORT_S * max(1.0, words.speed),
        write_s=WRITE_S * words.speed,
        incarnation=f"{os.getpid()}",
        speed=words.speed,
        steps_max=STEPS_MAX,
    )
    return nodes, len(cluster.installed)


def _log(text: str) -> None:
    moment = datetime.now().astimezone().isoformat(timespec="milliseconds")
    print(moment, text, file=sys.stderr, flush=True)
