"""`ray:HOST:PORT`: agents are started on the nodes of a Ray cluster.

Ray knows the machines, and which of them are alive; it carries no message of ours. An agent
outlives the actor that started it, its raylet, and Ray.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import monotonic

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.engines.starters.ray_actor import CLUSTER_LETTERS, RUNS
from dovetail.live.engines.starters.ray_connection import (
    RayConnection,
    RayNode,
    check_authenticated,
)
from dovetail.live.engines.starters.ray_driver import END_S, PLACED_S, START_S
from dovetail.live.join.word import NAME, JoinWord
from dovetail.live.system.private_file import make_private_folder

LOG = logging.getLogger(__name__)
FIRST_VERSION = (2, 52)
"""The first Ray with authentication."""
AGAIN_S = 30.0
"""How long after a failure Ray is asked again."""


class RayStarter:
    """Starts agents by detached actors, one on each node that Ray calls alive."""

    owns_agents = True
    lists_all = False
    starts_at_once = 16

    def __init__(self, address: str, home: Path) -> None:
        check_installed(address)
        self._address, self._folder = address, home / "nodes"
        self._lock = threading.Lock()
        self._connection: RayConnection | None = None
        self._nodes: dict[str, RayNode] = {}
        self._again_s, self._failure = 0.0, ""
        self._cluster = ""
        self._told: set[str] = set()

    @property
    def gate_host(self) -> str:
        """Returns the address of this machine in Ray, "" before Ray has answered."""
        return self._connection.here if self._connection is not None else ""

    def nodes(self) -> Sequence[str]:
        """Returns the names of the nodes, the last known while Ray does not answer.

        Raises InputError if it never did, or has no authentication.
        """
        with self._lock:
            try:
                self._nodes, notes = named(self._connect().nodes(), self._nodes)
            except DovetailError as error:
                if not self._nodes:
                    raise
                notes = [f"{error}; agents go on, and none is started"]
            for note in notes:
                if note not in self._told:
                    self._told.add(note)
                    LOG.warning("%s", note)
            return tuple(self._nodes)

    def start(self, name: str, word: Path) -> None:
        """Starts the agent of a node with the actor there. Raises DovetailError."""
        with self._lock:
            connection, node = self._connect(), self._nodes.get(name)
        if node is None:
            raise DovetailError("Ray does not know it any more")
        join = JoinWord.read(word)
        self._cluster = join.fingerprint[:CLUSTER_LETTERS]
        how, log = connection.ask(
            START_S + PLACED_S,
            do="start",
            cluster=self._cluster,
            node=node.id,
            gpus=node.gpus,
            name=name,
            word=join.text,
            slots=0 if node.gpus else int(node.cpus),
        )
        if how == RUNS:
            LOG.warning("the agent of node %s runs, and has not joined; see %s there", name, log)

    def gone(self) -> Sequence[str]:
        """Returns none: of a machine whose raylet is dead, agent and workers may live."""
        return ()

    def close(self, *, end: bool) -> None:
        """Ends the driver, and with `end` the actors, which remove the join words."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is None:
            return
        if end and self._cluster and not connection.has_ended:
            try:
                connection.ask(2 * END_S, do="end", cluster=self._cluster)
            except DovetailError as error:
                LOG.error("actors may be left in Ray: %s", error)
        connection.close()

    def _connect(self) -> RayConnection:
        """Returns the driver, a new one if Ray ended the last. Raises InputError, DovetailError."""
        if self._connection is not None and not self._connection.has_ended:
            return self._connection
        if monotonic() < self._again_s:
            raise DovetailError(self._failure or f"Ray at {self._address} ended its driver")
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        try:
            self._connection = self._connected()
            self._failure = ""
        except DovetailError as error:
            self._failure = str(error)
            raise
        finally:
            self._again_s = monotonic() + AGAIN_S
        self._told.clear()
        return self._connection

    def _connected(self) -> RayConnection:
        make_private_folder(self._folder)
        log = self._folder / "ray.log"
        check_authenticated(self._address, log)
        connection = RayConnection(self._address, log)
        try:
            connection.nodes()
        except DovetailError:
            connection.close()
            raise
        return connection


def named(
    found: Sequence[RayNode], before: dict[str, RayNode]
) -> tuple[dict[str, RayNode], list[str]]:
    """Returns the nodes by name, and what was left out and why.

    They are those with GPUs; if none has any, those with CPUs. A name is that of `ray start
    --node-name`, or the host's. Of two machines with one name the one that had it `before` has it.
    """
    has_gpus = any(node.gpus for node in found)
    nodes: dict[str, RayNode] = {}
    notes: list[str] = []
    for node in sorted(found, key=lambda node: (node.address, node.id)):
        if (node.gpus if has_gpus else node.cpus) < 1:
            continue
        name = name_of(node)
        other = nodes.get(name)
        if other is not None and other.address != node.address:
            kept = before.get(name, other)
            left, node = (node, other) if kept.address == other.address else (other, node)
            notes.append(
                f"node {left.address} of Ray is left out: {node.address} is called {name} as well;"
                " give names with: ray start --node-name"
            )
        nodes[name] = node
    return nodes, notes


def name_of(node: RayNode) -> str:
    """Returns our name of a node."""
    text = node.name if node.name and node.name != node.address else node.host
    return text if NAME.fullmatch(text) else re.sub(r"[^A-Za-z0-9]+", "-", node.address).strip("-")


def check_installed(address: str) -> None:
    """Raises InputError unless there is a Ray that knows authentication."""
    where, mend = f"--engine ray:{address}", "pip install 'dovetail[ray]'"
    try:
        have = version("ray")
    except PackageNotFoundError:
        raise InputError(where, "Ray is not installed for this Python", mend) from None
    if tuple(map(int, re.findall(r"\d+", have)[:2])) < FIRST_VERSION:
        first = ".".join(map(str, FIRST_VERSION))
        why = f"this is Ray {have}, which has no authentication; {first} is the first that has"
        raise InputError(where, why, mend)
