"""The engine of a cluster: it brings the agents of all nodes up and carries their messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from dovetail.core.cluster import Cluster
from dovetail.live.edges.protocols import Clock, Incoming
from dovetail.live.engines.engine_spec import EngineSpec
from dovetail.live.engines.joined_engine import JoinedEngine, JoinSettings
from dovetail.live.engines.local_engine import LocalEngine
from dovetail.live.join.gate import ClientServer
from dovetail.live.shipping.shipping_store import ShippingStore
from dovetail.wire.agent import AgentOrder
from dovetail.wire.connection import Stream
from dovetail.wire.site import AS_USUAL, SiteSettings


class AgentPost(Protocol):
    """A `Post` that is open until it is closed."""

    def send(self, node: int, order: AgentOrder) -> None:
        """Sends an order to the agent of a node."""
        ...

    def close(self) -> None:
        """Sends what is queued, where agents can be reached, and passes no more reports on."""
        ...


class Engine(Protocol):
    """The nodes of a cluster, and their agents, which outlive the controller."""

    @property
    def cluster(self) -> Cluster:
        """Returns the nodes. Raises DovetailError if none is known before `prepare`."""
        ...

    @property
    def is_known(self) -> bool:
        """True once the nodes are known."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the names of the nodes; none where they have numbers alone."""
        ...

    @property
    def leases_s(self) -> tuple[float, ...]:
        """Returns the lease of each node, none where no silence ends workers."""
        ...

    @property
    def speed(self) -> float:
        """Returns the seconds of the cluster in one of ours."""
        ...

    @property
    def paced(self) -> bool:
        """True if workers are clocks, so that only paced jobs can run."""
        ...

    @property
    def ships(self) -> bool:
        """True if nodes share no folder, so that files of jobs travel through the agents."""
        ...

    @property
    def identity(self) -> str:
        """Returns what an engine must have in common with that of jobs which are under way."""
        ...

    @property
    def ends_with_controller(self) -> bool:
        """True if the nodes are given back when the controller is told to end by a signal."""
        ...

    def prepare(self, *, keeps_nodes: bool) -> None:
        """Finds out which nodes there are; all earlier ones stay if `keeps_nodes`."""
        ...

    def has_changed(self) -> bool:
        """True if there are other nodes than when `prepare` was called."""
        ...

    def start_agents(self) -> None:
        """Starts the agents, unless they run. Raises InputError, DovetailError."""
        ...

    def connect(self, put: Callable[[Incoming], None], clock: Clock) -> AgentPost:
        """Returns the connection to the agents, whose reports are passed to `put`.

        News that has a time has that of the controller's `clock`.
        """
        ...

    def serve_clients(self, serve: ClientServer | None) -> None:
        """Hands clients of other machines over from now on; None refuses them."""
        ...

    def open_terminal(self, node: int, job: int, worker: int) -> Stream:
        """Returns a connection to the keeper of a worker, by its agent. Raises OSError."""
        ...

    def heed_losses(self, is_lost: Callable[[int], bool]) -> None:
        """Admits an agent with another folder than the last one's when its node is lost."""
        ...

    def ship_through(self, store: ShippingStore | None) -> None:
        """Keeps what nodes ship in a store from now on; None refuses them."""
        ...

    def stop_agents(self, *, end: bool) -> None:
        """Ends workers and agents, or (`end` False) leaves both running for a later controller."""
        ...

    def close(self) -> None:
        """Closes what this process has open; agents live on."""
        ...


def open_engine(
    text: str,
    home: Path,
    given: Mapping[str, object] | None = None,
    join: JoinSettings | None = None,
    site: SiteSettings = AS_USUAL,
) -> Engine:
    """Returns the engine of a text, as in `local:4`, `emulated:4x4@60` or `nodes:FILE`.

    `given` are the options by which emulated nodes know how fast jobs go and what a switch costs,
    `join` are those of nodes that join, `site` those of all nodes. Raises InputError.
    """
    spec = EngineSpec.parse(text)
    if spec.joins:
        return JoinedEngine(spec, home, join or JoinSettings(), site)
    return LocalEngine(text, home, given, site)
