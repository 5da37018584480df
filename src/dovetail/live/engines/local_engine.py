"""The nodes of this machine: real ones, or emulated ones whose workers are clocks.

All agents are in one process here, which outlives the controller.
"""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from dovetail.core.cluster import DEFAULT_LINKS, Cluster, NodeGroup
from dovetail.core.errors import DovetailError, InputError
from dovetail.live.edges.protocols import Clock, Incoming
from dovetail.live.engines.devices import (
    Devices,
    machine_memory_bytes,
    slots,
    stored_names,
    usable_cores,
)
from dovetail.live.engines.engine_spec import EMULATED, LOCAL, EngineSpec
from dovetail.live.engines.nvml import gpus
from dovetail.live.engines.site_scripts import FILE as SITE
from dovetail.live.engines.site_scripts import write_site
from dovetail.live.join.gate import ClientServer
from dovetail.live.node.agent_link import AgentLink
from dovetail.live.node.transport import TO_AGENTS, LinkTerminal
from dovetail.live.shipping.shipping_store import ShippingStore
from dovetail.live.system.file_lock import is_locked
from dovetail.live.system.private_file import check_home, make_private_folder
from dovetail.live.system.unix_socket import check_path
from dovetail.wire.agent import WIRE_VERSION
from dovetail.wire.connection import Stream
from dovetail.wire.site import AS_USUAL, SiteSettings

LOG = logging.getLogger(__name__)
UP_WITHIN_S = 300.0
"""A machine under load imports slowly."""
DOWN_WITHIN_S = 120.0
GRACE_S = 10.0
AGAIN_S = 0.05
TERMINAL_S = 5.0
"""How long an agent that is busy may take to answer for a terminal."""
TRUTH = ("switching", "physics", "profiles", "interference", "cycle")
"""The options that set the true speed of paced jobs, and the true cost of a switch."""


def devices_of(spec: EngineSpec) -> tuple[Devices, ...]:
    """Returns the devices of each local node: its GPUs if no slots are given and it has any."""
    if not spec.slots:
        return (gpus().devices or slots(usable_cores()),)
    total = spec.nodes * spec.slots
    return tuple(slots(spec.slots, first=node * spec.slots, of=total) for node in range(spec.nodes))


def notes_of(spec: EngineSpec) -> tuple[str, ...]:
    """Returns notes for the user about the GPUs of this machine, used or left out."""
    return gpus().notes if spec.kind == LOCAL and not spec.slots else ()


def cluster_of(spec: EngineSpec) -> Cluster:
    """Returns the cluster of an engine."""
    if spec.kind == EMULATED:
        return Cluster.parse(spec.shape)
    have = devices_of(spec)
    group = NodeGroup(
        have[0].gpu_type,
        len(have),
        len(have[0].names),
        gpu_type=have[0].gpu_type,
        gpu_memory_bytes=have[0].memory_bytes,
        cpus=float(usable_cores()) / len(have),
        memory_bytes=machine_memory_bytes() / len(have),
    )
    return Cluster((group,), DEFAULT_LINKS)


def control_socket(home: Path) -> Path:
    """Returns where the process of the agents listens for the controller."""
    return home / "nodes" / "agents.sock"


def worker_socket(folder: Path) -> Path:
    """Returns where the agent of a local node listens for its workers."""
    return folder / "agent.sock"


def check_sockets(home: Path, spec: EngineSpec) -> None:
    """Raises InputError where the path of a socket would be too long."""
    check_path(control_socket(home))
    if spec.kind == LOCAL:
        check_path(worker_socket(home / "nodes" / str(spec.nodes - 1)))


def running_engine(home: Path) -> Path:
    """Returns the file with the options that the process of the agents was started with."""
    return home / "nodes" / "engine.json"


def agent_lock(home: Path) -> Path:
    """Returns the file that the process of the agents has locked while it lives."""
    return home / "nodes" / "agent.lock"


class LocalEngine:
    """The nodes of a cluster, and the process of this machine with their agents.

    `text` is as in `local:4` or `emulated:4x4@60`. `given` are the options by which emulated nodes
    know how fast jobs go and what a switch costs. `speed` is seconds of the cluster in one of ours;
    `paced` is True if workers are clocks, so that only paced jobs can run. Raises InputError.
    """

    ships = False

    def __init__(
        self,
        text: str,
        home: Path,
        given: Mapping[str, object] | None = None,
        site: SiteSettings = AS_USUAL,
    ) -> None:
        self._text, self._home, self._site = text, home.expanduser().absolute(), site
        truth = {name: value for name, value in (given or {}).items() if name in TRUTH}
        self._given = json.dumps(truth, sort_keys=True)
        self._spec = EngineSpec.parse(text)
        self.cluster = cluster_of(self._spec)
        self.speed = self._spec.speed
        self.paced = self._spec.kind == EMULATED
        self.identity = text
        self.is_known = True
        self.ends_with_controller = False
        self.names: tuple[str, ...] = ()
        self.leases_s: tuple[float, ...] = ()
        self._agent_options: tuple[str, ...] = ()

    def prepare(self, *, keeps_nodes: bool) -> None:
        """Does nothing: what this machine has is known."""

    def has_changed(self) -> bool:
        """Returns False."""
        return False

    def heed_losses(self, is_lost: Callable[[int], bool]) -> None:
        """Does nothing: agents of this machine have the folder of the cluster."""

    def ship_through(self, store: ShippingStore | None) -> None:
        """Does nothing: all nodes are this machine."""

    def serve_clients(self, serve: ClientServer | None) -> None:
        """Does nothing: clients of this machine use the controller's own sockets."""

    def close(self) -> None:
        """Does nothing."""

    def start_agents(self) -> None:
        """Starts the agents, unless they run. Raises InputError, DovetailError."""
        self._check_home()
        make_private_folder(self._home / "nodes")
        write_site(self._site, self._home / "nodes" / SITE)
        give_up_s = time.monotonic() + UP_WITHIN_S
        while not (self._is_same() if is_running(self._home) else self._start()):
            # Another process of agents is starting or ending.
            if time.monotonic() > give_up_s:
                raise DovetailError(f"the agents did not come up within {UP_WITHIN_S:g} s")
            time.sleep(AGAIN_S)

    def _check_home(self) -> None:
        """Raises InputError unless the folder is ours alone."""
        check_home(self._home)

    def _start(self) -> bool:
        """Starts the process of the agents; False if another one was faster."""
        command = [sys.executable, "-m", "dovetail", "local-agents", "--daemon"]
        options = ["--home", str(self._home), "--engine", self._text, "--given", self._given]
        options += self._agent_options
        try:
            process = subprocess.run(
                [*command, *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=UP_WITHIN_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise DovetailError(f"the agents did not come up within {UP_WITHIN_S:g} s") from None
        if process.returncode and not is_running(self._home):
            error = process.stderr.decode("utf-8", "replace").strip().removeprefix("dovetail: ")
            raise DovetailError(f"the agents cannot run: {error}")
        return not process.returncode

    def connect(self, put: Callable[[Incoming], None], clock: Clock) -> AgentLink:
        """Returns the connection to the agents; its thread passes their reports to `put`."""
        return self._link(put, self._revive)

    def _revive(self) -> None:
        """Starts the agents again after they died; they adopt the workers that live."""
        try:
            check_home(self._home)
            if not is_running(self._home):
                self._start()
        except DovetailError as error:
            LOG.error("%s", error)

    def open_terminal(self, node: int, job: int, worker: int) -> Stream:
        """Returns a connection to the keeper of a worker, by its agent. Raises OSError."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            link.settimeout(TERMINAL_S)
            link.connect(str(control_socket(self._home)))
            link.sendall(TO_AGENTS.encode(LinkTerminal(node, job, worker)))
        except BaseException:
            link.close()
            raise
        return link

    def stop_agents(self, *, end: bool) -> None:
        """Ends workers and agents, or (`end` False) leaves both running for a later controller."""
        if not end or not is_running(self._home):
            return
        link = self._link(lambda incoming: None, lambda: None)
        link.dismiss(GRACE_S)
        give_up_s = time.monotonic() + DOWN_WITHIN_S
        while is_running(self._home) and time.monotonic() < give_up_s:
            time.sleep(AGAIN_S)
        link.close()
        if is_running(self._home):
            raise DovetailError(f"agents still run after {DOWN_WITHIN_S:g} s; see nodes/agent.log")

    def _link(self, put: Callable[[Incoming], None], revive: Callable[[], None]) -> AgentLink:
        nodes = range(len(self.cluster.installed))
        return AgentLink(control_socket(self._home), nodes, put, revive)

    def _is_same(self) -> bool:
        """True if the agents that run are of this engine, False if they are still starting.

        Raises InputError if they are of another.
        """
        try:
            runs = json.loads(running_engine(self._home).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return False
        except (OSError, ValueError):
            runs = {}
        if runs and runs.get("wire") != WIRE_VERSION:
            raise InputError(
                str(self._home / "nodes"),
                "the agents that run here are of another version of dovetail",
                "end them with that version (dovetail down --drain), or kill the process that "
                "holds nodes/agent.lock: its workers run on, and agents of this version take over",
            )
        is_same = runs.get("engine") == self._text
        if is_same and (not self.paced or runs.get("given") == json.loads(self._given)):
            self._check_devices()
            return True
        raise InputError(
            "--engine",
            f"agents of '{runs.get('engine', 'another engine')}' still run here, "
            "with these or other options",
            "take them down first (dovetail down --drain), or say what they were started with",
        )

    def _check_devices(self) -> None:
        """Raises InputError if the agents that run have other GPUs than are seen from here."""
        theirs = None if self.paced else stored_names(self._home / "nodes" / "0")
        ours = () if theirs is None else devices_of(self._spec)[0].names
        if theirs is not None and theirs != ours:
            raise InputError(
                "--engine",
                f"agents that run here have {', '.join(theirs)}, not {', '.join(ours)}",
                "say the same CUDA_VISIBLE_DEVICES, or first: dovetail down --drain",
            )


def is_running(home: Path) -> bool:
    """True if the process of the agents of a home runs."""
    return is_locked(agent_lock(home))
