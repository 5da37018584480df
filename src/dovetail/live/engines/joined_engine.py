"""Nodes of other machines: their agents join through a gate, and a starter brings them up."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from dovetail.core.cluster import Cluster
from dovetail.core.errors import DovetailError, InputError
from dovetail.live.edges.protocols import Clock, Incoming, NodesChanged
from dovetail.live.engines.engine_spec import NODES, RAY, SLURM, SSH, EngineSpec
from dovetail.live.engines.node_registry import NodeRegistry
from dovetail.live.engines.starter_loop import StarterLoop
from dovetail.live.engines.starters.none import NoStarter
from dovetail.live.engines.starters.ray import RayStarter
from dovetail.live.engines.starters.srun import SrunStarter
from dovetail.live.engines.starters.ssh import SshStarter
from dovetail.live.engines.starters.starter import Starter
from dovetail.live.join.gate import BACKLOG, ClientServer, Gate
from dovetail.live.join.identity import ControllerIdentity
from dovetail.live.join.shared_folder import shared_folder
from dovetail.live.join.word import CLIENT, JoinWord
from dovetail.live.node.launcher import NEVER_RUNS
from dovetail.live.shipping.shipping_server import ShippingServer
from dovetail.live.shipping.shipping_store import ShippingStore
from dovetail.live.system.private_file import make_private_folder
from dovetail.version import __version__
from dovetail.wire.agent import AgentOrder, AgentReport, StartWorker, WorkerEnded
from dovetail.wire.connection import Stream
from dovetail.wire.join import TERMINALS_SINCE
from dovetail.wire.site import AS_USUAL, SiteSettings

LOG = logging.getLogger(__name__)
JOINED = "nodes that join"
"""The identity of all engines of this kind: the registry keeps the numbers of their nodes."""
LEASE_S = 600.0
FIRST_JOIN_S = 120.0
"""How long a first start waits for the nodes: agents have to be started and to import."""
SETTLED_S = 10.0
"""Once some have joined it waits so long for the next one."""
DOWN_WITHIN_S = 60.0
GRACE_S = 10.0
SHOWN = 3


@dataclass(frozen=True, slots=True)
class JoinSettings:
    """Where nodes reach the controller (HOST or HOST:PORT, empty: by this machine's name), and
    the lease of nodes: how long workers may run without a controller.

    `lease` is `lease_s` as the user wrote it. With `ships` nodes share no folder. With `has_users`
    agents run jobs as their submitters.
    """

    gate: str = ""
    lease_s: float = LEASE_S
    lease: str = "10m"
    ships: bool = False
    has_users: bool = False


class JoinedEngine:
    """The gate, the registry of nodes, and a starter that keeps their agents running."""

    speed = 1.0
    paced = False
    identity = JOINED

    def __init__(
        self,
        spec: EngineSpec,
        home: Path,
        options: JoinSettings,
        site: SiteSettings = AS_USUAL,
    ) -> None:
        self._spec, self._home, self._options = spec, home.expanduser().absolute(), options
        self._site = site
        self._host, self._port = _gate_address(options.gate)
        self._starter = starter_of(spec, self._home)
        self.ends_with_controller = spec.kind == SLURM
        self._registry = NodeRegistry(self._home / "nodes" / "registry.json")
        self._gate: Gate | None = None
        self._loop: StarterLoop | None = None
        self._shipping: tuple[ShippingStore, ShippingServer] | None = None

    @property
    def ships(self) -> bool:
        """True if nodes share no folder, so that files of jobs travel through the agents."""
        return self._options.ships

    @property
    def cluster(self) -> Cluster:
        """Returns the nodes that had joined when `prepare` was called, or in an earlier life."""
        return self._registry.take() if self._gate is None else self._cluster

    @property
    def is_known(self) -> bool:
        """True once any node has joined."""
        return bool(self._registry.nodes)

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the names of the nodes by number."""
        return tuple(node.name for node in self._registry.nodes)

    @property
    def leases_s(self) -> tuple[float, ...]:
        """Returns the lease of each node."""
        return (self._options.lease_s,) * len(self._registry.nodes)

    def prepare(self, *, keeps_nodes: bool) -> None:
        """Opens the gate and waits for nodes that have never joined. Raises DovetailError."""
        expected = self._listed(keeps_nodes)
        self._registry.expect(expected, keeps=keeps_nodes)
        if keeps_nodes and not self._starter.lists_all:
            self._registry.expect_also([node.name for node in self._registry.nodes])
        gate = self._open_gate()
        self._write_words(gate, (*expected, CLIENT))
        if self._loop is None:
            words, before = self._home / "join", self.names
            self._loop = StarterLoop(self._starter, gate, words, expected, before, self._add_nodes)
        if self._registry.missing():
            LOG.info("start: waiting for the nodes %s", ", ".join(self._registry.missing()))
            self._await_nodes(gate, self._loop)
        if missing := self._registry.missing():
            LOG.warning("nodes that have not joined are left out: %s", ", ".join(missing))
        self._cluster = self._registry.take()

    def _listed(self, keeps_nodes: bool) -> Sequence[str]:
        """Returns the nodes that the starter lists; raises what it does.

        Nodes under way are served without it: their agents call, and what they run must not end.
        """
        try:
            return self._starter.nodes()
        except DovetailError as error:
            if self._starter.lists_all or not (keeps_nodes and self._registry.has_any):
                raise
            LOG.error("%s; nodes that have joined before go on, and no agent is started", error)
            return ()

    def _add_nodes(self, names: Sequence[str]) -> None:
        """Admits nodes that the starter lists now; called by its thread."""
        assert self._gate is not None
        LOG.info("new nodes: %s", ", ".join(names))
        self._write_words(self._gate, names)
        self._registry.expect_also(names)

    def _await_nodes(self, gate: Gate, loop: StarterLoop) -> None:
        """Waits for the missing nodes: for the first ones long, then for each next one.

        Not if no agent could be started at all: whoever typed the command is to know at once.
        """
        give_up_s = monotonic() + FIRST_JOIN_S
        while (before := self._registry.missing()) and monotonic() < give_up_s:
            have_some = len(before) < len(self._starter.nodes())
            left_s = min(SETTLED_S, give_up_s - monotonic()) if have_some else 1.0
            is_late = not gate.await_nodes(self._fewer_than(before), left_s)
            if is_late and (have_some or set(loop.failures()) >= set(before)):
                break
        if self._registry.has_any:
            return
        if failures := loop.failures():
            raise DovetailError(f"no agent could be started: {_counted(failures)}")
        raise DovetailError(
            f"no node has joined within {FIRST_JOIN_S:g} s; their join words are in "
            f"{self._home / 'join'}, and controller.log lists who was refused"
        )

    def _fewer_than(self, missing: list[str]) -> Callable[[dict[int, str]], bool]:
        return lambda joined: self._registry.missing() != missing

    def _open_gate(self) -> Gate:
        if self._gate is None:
            self._identity = ControllerIdentity.of(self._home / "gate")
            shared = None if self.ships else shared_folder(self._home)
            self._gate = Gate(
                self._listen(),
                self._identity,
                self._registry,
                shared=shared,
                has_users=self._options.has_users,
                site=self._site,
            )
        return self._gate

    def _listen(self) -> socket.socket:
        """Returns the listener, on the port of the last controller if no port is given."""
        stored = self._home / "gate" / "port"
        last = int(stored.read_text(encoding="ascii")) if stored.exists() else 0
        host = self._host or ""
        for port in dict.fromkeys((self._port,) if self._port else (last, 0)):
            try:
                family = socket.AF_INET6 if ":" in host else socket.AF_INET
                listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
            except OSError as error:
                failure = error
                continue
            stored.write_text(str(listener.getsockname()[1]), encoding="ascii")
            return listener
        raise InputError(
            f"--gate {self._options.gate}", f"cannot be listened on: {failure.strerror}"
        )

    def _write_words(self, gate: Gate, names: Sequence[str]) -> None:
        """Writes the join words of nodes, and of clients."""
        folder = self._home / "join"
        make_private_folder(folder)
        host = self._host or self._starter.gate_host or socket.gethostname()
        for name in names:
            secret = self._identity.secret_of(name)
            word = JoinWord(host, gate.address[1], self._identity.fingerprint, name, secret)
            word.write(self._home / "client" if name == CLIENT else folder / name)

    def has_changed(self) -> bool:
        """True if nodes have joined since `prepare`, or have other devices."""
        return self._registry.has_changed

    def start_agents(self) -> None:
        """Does nothing: the starter keeps agents running from `prepare` on."""

    def connect(self, put: Callable[[Incoming], None], clock: Clock) -> GatePost:
        """Returns the connection to the agents; the gate stays open when it is closed."""
        assert self._gate is not None and self._loop is not None

        def changed() -> None:
            put(NodesChanged())

        def take(incoming: Incoming) -> None:
            said = incoming.said if isinstance(incoming, AgentReport) else None
            if self._shipping is not None and said is not None and said.saved is not None:
                assert isinstance(incoming, AgentReport)
                self._shipping[0].note_saved(incoming.node, said.job, said.saved.step)
            put(incoming)

        self._registry.on_change = changed
        self._gate.report_to(take)
        self._loop.report_to(put, self.names, clock)
        return GatePost(self._gate, self._allow, take)

    def heed_losses(self, is_lost: Callable[[int], bool]) -> None:
        """Admits an agent with another folder than the last one's when its node is lost."""
        self._registry.is_lost = is_lost

    def ship_through(self, store: ShippingStore | None) -> None:
        """Keeps what nodes ship in a store from now on; None refuses them."""
        if self._shipping is not None:
            self._shipping[1].close()
        self._shipping = None if store is None else (store, ShippingServer(store))
        if self._gate is not None:
            self._gate.serve_files(None if self._shipping is None else self._shipping[1].serve)

    def _allow(self, node: int, order: AgentOrder) -> None:
        """Lets a node ship files of the job that it is ordered to start a worker of."""
        if order.start is not None and order.start.ships and self._shipping is not None:
            self._shipping[0].allow(node, order.start.job)

    def open_terminal(self, node: int, job: int, worker: int) -> Stream:
        """Returns a connection to the keeper of a worker, by its agent. Raises OSError."""
        if self._gate is None:
            raise ConnectionError("the gate is closed")
        return self._gate.open_terminal(node, job, worker)

    def serve_clients(self, serve: ClientServer | None) -> None:
        """Hands clients that enter through the gate over from now on; None refuses them."""
        if self._gate is not None:
            self._gate.serve_clients(serve)

    def stop_agents(self, *, end: bool) -> None:
        """Ends workers and agents of the nodes that are connected, or leaves all running."""
        if not (end and self._starter.owns_agents) or self._gate is None:
            return
        if self._loop is not None:
            self._loop.stop()
        self._gate.dismiss(GRACE_S)
        if not self._gate.await_nodes(lambda joined: not joined, DOWN_WITHIN_S):
            left = ", ".join(self._gate.joined().values())
            LOG.error("agents still run on %s; their workers end with their leases", left)
        self._starter.close(end=True)

    def close(self) -> None:
        """Closes the gate; agents live on and call the next controller."""
        if self._loop is not None:
            self._loop.stop()
        if self._gate is not None:
            self._gate.close()
        self._starter.close(end=False)
        self._gate = self._loop = None


class GatePost:
    """The gate as the `Post` of one controller: closing it leaves the gate open."""

    def __init__(
        self,
        gate: Gate,
        before: Callable[[int, AgentOrder], None],
        put: Callable[[Incoming], None],
    ) -> None:
        self._gate, self._before, self._put = gate, before, put

    def send(self, node: int, order: AgentOrder) -> None:
        """Sends an order to the agent of a node, unless that would not understand it."""
        if order.start is not None and (unknown := _news_of(order.start)):
            wire = self._gate.wire_of(node)
            if 0 <= wire < TERMINALS_SINCE:
                self._put(AgentReport(node, ended=_too_old(order.start, unknown)))
                return
        self._before(node, order)
        self._gate.send(node, order)

    def close(self) -> None:
        """Passes no more reports on."""
        self._gate.report_to(lambda incoming: None)


def _news_of(start: StartWorker) -> str:
    """Returns what agents of the version before do not know of a worker, empty for nothing."""
    if start.terminal:
        return "interactive jobs"
    return "jobs that start once on each node" if start.per_node else ""


def _too_old(start: StartWorker, unknown: str) -> WorkerEnded:
    """Returns the end of a worker of a kind `unknown` to its agent, of the version before."""
    why = f"the agent of its node knows no {unknown}; install dovetail {__version__} there"
    return WorkerEnded(start.job, start.worker, start.generation, NEVER_RUNS[0], why)


STARTERS: Mapping[str, Callable[[Path], Starter]] = {NODES: NoStarter, SSH: SshStarter}
"""What starts the agents of each kind of engine, from the file that its text names."""


def starter_of(spec: EngineSpec, home: Path) -> Starter:
    """Returns what starts the agents of an engine. Raises InputError."""
    if spec.kind == SLURM:
        return SrunStarter(home, spec.slots)
    if spec.kind == RAY:
        return RayStarter(spec.target, home)
    return STARTERS[spec.kind](Path(spec.target))


def _counted(failures: Mapping[str, str]) -> str:
    """Returns the failures of a few nodes, and how many more there are."""
    shown = [f"{name}: {why}" for name, why in sorted(failures.items())[:SHOWN]]
    more = len(failures) - len(shown)
    return "; ".join([*shown, *([f"and of {more} more nodes"] if more else [])])


def _gate_address(text: str) -> tuple[str, int]:
    """Returns host and port of `--gate`; empty and 0 for what it does not give."""
    if not text:
        return "", 0
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        host, port = text, "0"
    if not port.isdecimal() or int(port) >= 1 << 16 or not host:
        raise InputError(f"--gate {text}", "expected HOST or HOST:PORT", "as in 10.0.0.1:7077")
    return host.removeprefix("[").removesuffix("]"), int(port)
