"""`dovetail local-agents`, hidden: all agents of this machine, in one process of `dovetail up`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from dovetail.live.access.user_list import StoredUsers
    from dovetail.live.engines.agent_server import EngineNodes
    from dovetail.live.engines.engine_spec import EngineSpec
    from dovetail.live.node.transport import EventLoop
    from dovetail.study.option_texts import OptionTexts

REPORT_S = 1.0
"""Seconds of real time between the progress reports of a synthetic job."""

WRITE_S = 5.0
"""Seconds of real time between writes of a job's progress: the most that a kill loses."""

STEPS_MAX = 20
"""Instants that emulated nodes process, in a few milliseconds, before orders are read again."""


@click.command("local-agents", hidden=True)
@click.option("--home", required=True, type=click.Path(path_type=Path))
@click.option("--engine", required=True, help="As for up.")
@click.option("--given", default="{}", help="Options of the speed of synthetic jobs, as JSON.")
@click.option("--daemon", is_flag=True, help="Continue in the background once it listens.")
@click.option(
    "--users", type=click.Path(path_type=Path), help="As for up: run jobs as their submitters."
)
def local_agents(home: Path, engine: str, given: str, daemon: bool, users: Path | None) -> None:
    """Run the agents of all nodes of an engine; `dovetail up` starts it.

    \b
    Example:
      dovetail local-agents --home ~/.dovetail --engine local:4
    """
    from dovetail.live.engines.engine_spec import EngineSpec
    from dovetail.live.system.daemon import detach
    from dovetail.live.system.private_file import check_home, make_private_folder

    words = EngineSpec.parse(engine)
    if users is None:
        check_home(home)
        make_private_folder(home / "nodes")
    stored = _stored_users(home, users)
    if daemon:
        log_file = home / "nodes" / "agent.log"
        detach(log_file, lambda ready: _serve(home, engine, words, given, ready, stored))
    else:
        _serve(home, engine, words, given, lambda: None, stored)


def _stored_users(home: Path, users: Path | None) -> StoredUsers | None:
    """Returns the users of a cluster; `home` is the folder `agent` in that of `up --users`."""
    from dovetail.live.access.shared_home import SharedHome
    from dovetail.live.access.user_list import StoredUsers

    if users is None:
        return None
    stored = StoredUsers.for_root(users)
    SharedHome(home.absolute().parent).make(stored.users().controller)
    return stored


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
    from dovetail.live.engines.controller_links import LocalLinks
    from dovetail.live.engines.engine_spec import EMULATED
    from dovetail.live.engines.local_engine import agent_lock, control_socket, running_engine
    from dovetail.live.node.transport import EventLoop
    from dovetail.live.system.daemon import lock_file, log
    from dovetail.wire.agent import WIRE_VERSION

    lock = lock_file(agent_lock(home), home)
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
        links = LocalLinks(loop, control_socket(home), log, controller_uid)
        server = AgentServer(loop, links, nodes, range(count), clock, speed=words.speed, log=log)
        stack.callback(server.close)
        runs = {"engine": engine, "given": json.loads(given), "wire": WIRE_VERSION}
        write_whole(running, json.dumps(runs), mode=PRIVATE, synced=False)
        stack.callback(_remove_description, running, agent_lock(home), lock)
        log(f"agents of {engine} listen (process {os.getpid()})")
        ready()
        server.serve()
        log("agents end")


def _remove_description(running: Path, path: Path, lock: int) -> None:
    """Removes the file that describes these agents, unless the folder has been recreated since."""
    with suppress(OSError):
        if path.stat().st_ino == os.fstat(lock).st_ino:
            running.unlink()


def _local(
    home: Path,
    words: EngineSpec,
    loop: EventLoop,
    clock: Callable[[], float],
    users: StoredUsers | None,
) -> tuple[EngineNodes, int]:
    from dovetail.live.engines.local_engine import devices_of, notes_of
    from dovetail.live.engines.open_nodes import open_nodes
    from dovetail.live.engines.user_processes import UserJobs
    from dovetail.live.system.daemon import log

    devices = devices_of(words)
    for note in notes_of(words):
        log(note)
    folders = [home / "nodes" / str(node) for node in range(len(devices))]
    if users is None:
        return open_nodes(home, folders, devices, loop, clock, log, home=home), len(devices)
    # Output may go to any place: in a shared home only root and the controller can write anyway.
    jobs = UserJobs(users.users, home.absolute().parent / "jobs", log)
    return open_nodes(home, folders, devices, loop, clock, log, users=jobs), len(devices)


def _emulated(words: EngineSpec, given: OptionTexts) -> tuple[EngineNodes, int]:
    import numpy as np

    from dovetail.core.job import JobTable
    from dovetail.live.emulation.nodes import EmulatedNodes, FolderProgressStore
    from dovetail.live.engines.local_engine import cluster_of
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
