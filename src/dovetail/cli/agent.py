"""`dovetail agent`: the agent of this machine, for a controller on another one."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING

import click

from dovetail.core.errors import InputError

if TYPE_CHECKING:
    from dovetail.live.access.node_rule import NodeRule
    from dovetail.live.engines.devices import Devices
    from dovetail.live.join.dial import JoinedNode, Joiner

SLOTS_MAX = 1024
LOOK_S = 0.05
TRANSIENT = "transient"
"""The file that marks a folder that goes with its agent."""


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The address of this machine for others (empty: found out), how long the folder lives, and the
    rule of a node of several users.
    """

    host: str
    is_transient: bool
    rule: NodeRule | None


@click.command("agent")
@click.option(
    "--join",
    "word",
    required=True,
    type=click.Path(path_type=Path, allow_dash=True),
    help="File with the join word of this node, as `dovetail up` writes it; -: standard input.",
)
@click.option(
    "--folder",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder of the agent, on a disk of this machine.",
)
@click.option(
    "--slots",
    type=click.IntRange(1, SLOTS_MAX),
    default=None,
    help="CPU slots in place of GPUs. [default: the GPUs, or a slot for each core]",
)
@click.option(
    "--host",
    default="",
    metavar="ADDRESS",
    help="Address of this machine for other nodes. [default: from which it calls the controller]",
)
@click.option(
    "--users",
    type=click.Path(path_type=Path),
    default=None,
    metavar="FILE",
    help="As for up, of this node: jobs run as their submitters. [default: as the agent's user]",
)
@click.option("--daemon", is_flag=True, help="Continue in the background.")
@click.option(
    "--transient",
    is_flag=True,
    help="In a batch job: SIGTERM ends the workers as well, and the folder goes with the agent.",
)
def agent(
    word: Path,
    folder: Path,
    slots: int | None,
    host: str,
    users: Path | None,
    daemon: bool,
    transient: bool,
) -> None:
    """Run the agent of this machine, for the controller of a join word.

    The agent calls the controller, again and again while it does not answer. Its workers outlive
    it: a later agent of the same folder takes them over. Without any word of the controller they
    end when the lease of the node is over.

    With --users it is root's, and goes by that file whatever its controller says.

    \b
    Example:
      dovetail agent --join n1 --folder /var/lib/dovetail
    """
    from dovetail.live.join.word import JoinWord
    from dovetail.live.system.daemon import detach

    given = JoinWord.parse(sys.stdin.readline().strip(), "--join -") if str(word) == "-" else None
    word, folder = word.expanduser().absolute(), folder.expanduser().absolute()
    if given is None:
        JoinWord.read(word)
    rule = _make_folder(folder, users)
    if transient and not any(folder.iterdir()):
        (folder / TRANSIENT).touch()
    if given is not None:
        # Kept, as it is needed for each call. A newer one is of the controller that runs now.
        word = folder / "word"
        given.write(word)
    devices = _devices(slots)
    host = _own_address(host) if host else ""
    how = AgentOptions(host, transient, rule)
    if daemon:
        detach(folder / "agent.log", lambda ready: _serve(word, folder, devices, how, ready))
    else:
        _serve(word, folder, devices, how, lambda: None)


def _make_folder(folder: Path, users: Path | None) -> NodeRule | None:
    """Makes the folder of the agent, and returns the rule of its node. Raises InputError."""
    from dovetail.live.access.node_rule import NodeRule, make_agent_folder
    from dovetail.live.system.private_file import check_home

    if users is not None:
        rule = NodeRule(users)
        make_agent_folder(folder)
        # Files are touched with the rights of users, and of none of root's groups.
        os.setgroups([])
        return rule
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), f"cannot be used: {error.strerror}") from None
    check_home(folder)
    return None


def _own_address(text: str) -> str:
    """Returns an address of this machine. Raises InputError if it is none."""
    import socket

    try:
        family, kind, protocol, _, place = socket.getaddrinfo(text, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(place)
    except OSError as error:
        why = f"this machine does not have it: {error.strerror}"
        raise InputError(f"--host {text}", why, "see: ip address") from None
    return str(place[0])


def _devices(slots: int | None) -> Devices:
    from dovetail.live.engines.engine_spec import EngineSpec
    from dovetail.live.engines.local_engine import devices_of

    return devices_of(EngineSpec("local", 1, slots or 0))[0]


def _serve(
    word: Path, folder: Path, devices: Devices, how: AgentOptions, ready: Callable[[], None]
) -> None:
    """Serves until the cluster is shut down."""
    from dovetail.live.engines.devices import machine_memory_bytes, usable_cores
    from dovetail.live.join.dial import Joiner
    from dovetail.live.system.daemon import lock_file
    from dovetail.wire.join import NodeDevices, incarnation_of

    lock = lock_file(folder / "agent.lock", folder)
    try:
        has = NodeDevices(
            devices.names,
            devices.gpu_type,
            devices.memory_bytes,
            float(usable_cores()),
            machine_memory_bytes(),
        )
        # A folder that ends with its agent has nothing to be known by later.
        identity = "" if how.is_transient else _identity(folder)
        incarnation = incarnation_of(identity, secrets.token_hex(8))
        joiner = Joiner(word, incarnation, has, guard=how.rule)
        ready()
        while _serve_as_node(joiner, folder, devices, how):
            pass
        # Not a folder that was there before: it may have other files.
        if (folder / TRANSIENT).exists():
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _serve_as_node(joiner: Joiner, folder: Path, devices: Devices, how: AgentOptions) -> bool:
    """Serves under the number that the controller gave; True if it gives another one by now."""
    from dovetail.live.engines.agent_server import AgentServer
    from dovetail.live.engines.controller_links import GateLinks
    from dovetail.live.engines.open_nodes import open_nodes
    from dovetail.live.engines.site_scripts import FILE as SITE
    from dovetail.live.engines.site_scripts import write_site
    from dovetail.live.engines.stored_lease import boot_s
    from dovetail.live.engines.user_processes import UserJobs, owner_access
    from dovetail.live.join.dial import carry_files, carry_terminal
    from dovetail.live.node.transport import EventLoop
    from dovetail.live.shipping.shipper import Shipper
    from dovetail.live.system.daemon import log

    joined, number = None, _stored_number(folder)
    if number is None:
        joined = _join(joiner, log)
        number = joined.number
        _store_number(folder, number)
    with ExitStack() as stack:
        loop = stack.enter_context(closing(EventLoop()))
        place = folder / "node"
        users = None if how.rule is None else UserJobs(how.rule.users, folder / "jobs", log, True)
        nodes = open_nodes(
            folder, [place], [devices], loop, boot_s, log, first=number, leased=True, users=users
        )
        stack.callback(nodes.close)
        joiner = replace(joiner, is_busy=lambda: bool(nodes.alive))
        access = {} if users is None else {"access": owner_access}
        shipper = Shipper(folder / "jobs", lambda: carry_files(joiner.word), log, **access)
        stack.callback(shipper.close)
        nodes.carry_files(shipper)
        nodes.call_terminals(lambda ticket: carry_terminal(joiner.word, ticket))

        def on_join(joined: JoinedNode) -> None:
            nodes.move_to(how.host or joined.host)
            nodes.watch_folder(joined.shared)
            try:
                write_site(joined.site, folder / SITE)
            except OSError as error:
                log(f"the site's settings cannot be stored; the last ones hold: {error.strerror}")

        links = GateLinks(loop, joiner, number, log, joined, on_join)
        server = AgentServer(loop, links, nodes, (number,), boot_s, gathers=True, log=log)
        stack.callback(server.close)
        if how.is_transient:
            signal.signal(signal.SIGTERM, lambda *_: server.end_soon())
        log(f"the agent of node {number} runs (process {os.getpid()})")
        server.serve()
    if links.moved:
        (folder / "number.json").unlink(missing_ok=True)
    log("the agent ends")
    return links.moved


def _join(joiner: Joiner, log: Callable[[str], None]) -> JoinedNode:
    from dovetail.live.join.dial import JoinThread

    dialer = JoinThread(joiner, lambda: None, log)
    while (joined := dialer.turn()) is None:
        sleep(LOOK_S)
    return joined


def _identity(folder: Path) -> str:
    """Returns what this folder is known by; made with the first agent that uses it."""
    from dovetail.files.whole_file import PRIVATE, write_whole

    path = folder / "identity"
    with suppress(OSError):
        return path.read_text(encoding="ascii").strip()
    identity = secrets.token_hex(8)
    write_whole(path, identity, mode=PRIVATE)
    return identity


def _stored_number(folder: Path) -> int | None:
    """Returns the number that this node had; None if it has not joined yet."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads((folder / "number.json").read_text(encoding="ascii"))["number"])
    return None


def _store_number(folder: Path, number: int) -> None:
    from dovetail.files.whole_file import PRIVATE, write_whole

    write_whole(folder / "number.json", json.dumps({"number": number}), mode=PRIVATE)
