"""The machines: nodes by group, the tree of links between GPUs, queues, and node states.

A `Cluster` is a value. A node that fails, drains or returns makes a new one (`with_node`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from dovetail.core.errors import InputError, nearest
from dovetail.core.tenants import AccountSpec, QosSpec, QueueSpec, ReservationSpec, UserLimits

UP, DRAINING, DOWN = "up", "draining", "down"
ISLAND = "island"
"""The level of the link tree below the node: GPUs of a node that NVLink joins."""
GIB = 2**30
NODES_MAX = 1_000_000
ASSUMED_GPU_MEMORY_BYTES = 16.0 * GIB
"""The memory of a GPU where neither the user nor the table of GPU types gives one."""

_SHORT_FORM = re.compile(
    r"(?P<nodes>\d{1,7})x(?:(?P<islands>\d{1,5})x)?(?P<gpus>\d{1,5})(?::(?P<type>[^/]+))?"
    r"(?:/(?P<size>\d+(?:\.\d+)?)(?P<unit>[gt])(?:i?b)?)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """`nodes` machines that are alike. Sizes in bytes; 0 CPUs or memory means not limiting.

    `price_per_gpu_h` is in the owner's currency, 0 if unknown. `gpus_per_island` is the size of an
    NVLink island, 0 if the whole node is one.
    """

    name: str
    nodes: int
    gpus_per_node: int
    gpu_type: str = ""
    gpu_memory_bytes: float = ASSUMED_GPU_MEMORY_BYTES
    cpus: float = 0.0
    memory_bytes: float = 0.0
    storage_bytes_per_s: float = 0.0
    price_per_gpu_h: float = 0.0
    gpus_per_island: int = 0

    @property
    def size(self) -> str:
        """The group in short form without its type: `8x8`, with two islands in a node `8x2x4`."""
        islands, rest = divmod(self.gpus_per_node, self.gpus_per_island or self.gpus_per_node or 1)
        whole = islands < 2 or rest
        inside = self.gpus_per_node if whole else f"{islands}x{self.gpus_per_island}"
        return f"{self.nodes}x{inside}"


@dataclass(frozen=True, slots=True)
class Link:
    """One level of the link tree: GPUs that meet here exchange data at this speed.

    `nodes` is how many nodes one link of this level joins (0: all; 1: inside a node). The level
    with the name `island` is inside an island of a node, and gives no nodes.
    """

    name: str
    bandwidth_bytes_per_s: float
    latency_s: float = 0.0
    nodes: int = 0


DEFAULT_LINKS = (
    Link("node", 12e9, 5e-6, nodes=1),
    Link("fabric", 1.25e9, 3e-5),
)
"""PCIe 3.0 x16 class inside a node, 10 Gbit/s between nodes (the papers' testbeds)."""


def _group_of(
    text: str, number: int, part: str, memory_of: Callable[[str], float | None]
) -> NodeGroup:
    match = _SHORT_FORM.fullmatch(part)
    if match is None:
        mend = "as in 16x4, 8x8/32G (memory of a GPU), 8x2x4 (2 islands) or 16x4:t4+8x8:v100/32G"
        raise InputError(f"cluster '{text}'", f"expected NODESxGPUS, not '{part}'", mend)
    gpu_type = match["type"] or ""
    unit_bytes = 1024 * GIB if match["unit"] == "t" else GIB
    given_bytes = float(match["size"]) * unit_bytes if match["size"] else None
    if given_bytes == 0:
        raise InputError(f"cluster '{text}'", f"'{part}' gives a GPU no memory")
    memory_bytes = given_bytes or memory_of(gpu_type) or ASSUMED_GPU_MEMORY_BYTES
    name = gpu_type or f"group{number}"
    gpus, islands = int(match["gpus"]), int(match["islands"] or 1)
    size = gpus if islands > 1 else 0
    return NodeGroup(
        name,
        int(match["nodes"]),
        gpus * islands,
        gpu_type,
        memory_bytes,
        gpus_per_island=size,
    )


@dataclass(frozen=True)
class Cluster:
    """Frozen topology. Nodes are numbered 0.. over the groups in order."""

    groups: tuple[NodeGroup, ...]
    links: tuple[Link, ...] = DEFAULT_LINKS
    queues: tuple[QueueSpec, ...] = ()
    accounts: tuple[AccountSpec, ...] = ()
    qos: tuple[QosSpec, ...] = ()
    reservations: tuple[ReservationSpec, ...] = ()
    states: tuple[tuple[int, str], ...] = field(default=())
    gpu_states: tuple[tuple[int, int, str], ...] = field(default=())
    """GPUs that are not up, as (node, GPU, state), in order. One that is draining is held by jobs,
    which may finish there, and no other job joins them; one that is down is out of service."""
    users: tuple[UserLimits, ...] = ()

    def __post_init__(self) -> None:
        if not self.groups or sum(g.nodes * g.gpus_per_node for g in self.groups) < 1:
            raise InputError("cluster", "it has no GPUs", "give NODESxGPUS, as in 16x4")
        for g in self.groups:
            if g.nodes < 0 or g.gpus_per_node < 0:
                raise InputError("cluster", f"group {g.name} has a negative size")
            if g.gpus_per_node > 4096:
                raise InputError("cluster", f"group {g.name} has over 4096 GPUs in a node")
            if g.gpus_per_island and (g.gpus_per_node % g.gpus_per_island):
                what = f"{g.gpus_per_node} GPUs are no islands of {g.gpus_per_island}"
                raise InputError(f"cluster, group {g.name}", what, "give a size that divides them")
        if (nodes := sum(g.nodes for g in self.groups)) > NODES_MAX:
            raise InputError("cluster", f"it has {nodes:,} nodes, more than {NODES_MAX:,}")
        self._check_island_link()
        names = [g.name for g in self.groups]
        for queue in self.queues:
            for name in queue.groups:
                if name not in names:
                    where = f"cluster, queue {queue.name}"
                    raise InputError(
                        where, f"unknown group of nodes '{name}'", nearest(name, names)
                    )

    def _check_island_link(self) -> None:
        """Raises InputError if the link inside islands joins nodes, or there are no islands."""
        links = [link for link in self.links if link.name.casefold() == ISLAND]
        if links and not self.has_islands:
            mend = "give a [[group]] its gpus_per_island"
            raise InputError("cluster", f"it has a link '{ISLAND}' and no islands", mend)
        if len(links) > 1 or any(link.nodes for link in links):
            what = f"the link '{ISLAND}' is inside a node and stated once"
            raise InputError("cluster", what, "leave out its nodes")

    @property
    def has_islands(self) -> bool:
        """True if any node has several islands."""
        return any(0 < g.gpus_per_island < g.gpus_per_node for g in self.groups)

    @property
    def tree(self) -> tuple[Link, ...]:
        """The links from a whole node upwards."""
        return tuple(link for link in self.links if link.name.casefold() != ISLAND)

    @property
    def island_speedup(self) -> float:
        """The bandwidth inside an island over that of the rest of its node; 1 if not stated."""
        inside = [link for link in self.links if link not in self.tree]
        node = [link.bandwidth_bytes_per_s for link in self.tree if link.nodes == 1]
        if not inside or not node:
            return 1.0
        return max(1.0, inside[0].bandwidth_bytes_per_s / min(node))

    @staticmethod
    def uniform(nodes: int, gpus_per_node: int) -> Cluster:
        """Returns `nodes` alike machines with `gpus_per_node` GPUs each."""
        return Cluster((NodeGroup("all", nodes, gpus_per_node),))

    @staticmethod
    def parse(text: str, memory_of: Callable[[str], float | None] = lambda _: None) -> Cluster:
        """Returns the cluster of a short form: `16x4`, `8x8/32G`, or groups `16x4:t4+8x8:v100`.

        Where the form gives no GPU memory, `memory_of` the GPU type does (bytes, or None where the
        type is not known), else `ASSUMED_GPU_MEMORY_BYTES`. Raises InputError.
        """
        parts = text.lower().split("+")
        groups = tuple(_group_of(text, i, part, memory_of) for i, part in enumerate(parts))
        return Cluster(groups)

    @property
    def node_group(self) -> tuple[int, ...]:
        """Returns, per node, the position of its group."""
        return _node_group(self.groups)

    @property
    def installed(self) -> tuple[int, ...]:
        """Returns, per node, its GPUs, whatever its state."""
        return _installed(self.groups)

    @cached_property
    def state_of(self) -> dict[int, str]:
        """The state of every node that is not up."""
        return dict(self.states)

    @cached_property
    def draining(self) -> frozenset[int]:
        """The draining nodes: their jobs may finish, and no other job may start there."""
        return frozenset(node for node, state in self.states if state == DRAINING)

    @cached_property
    def installed_gpus(self) -> int:
        """The number of GPUs of all nodes, whatever their state."""
        return sum(self.installed)

    @cached_property
    def largest_node(self) -> int:
        """The most GPUs that a node has, whatever its state."""
        return max(self.installed)

    @cached_property
    def closed_gpus(self) -> frozenset[tuple[int, int]]:
        """The GPUs (node, GPU) on which no other job may start: draining or down."""
        return frozenset((node, gpu) for node, gpu, _ in self.gpu_states)

    @cached_property
    def gpus_down(self) -> frozenset[tuple[int, int]]:
        """The GPUs (node, GPU) that are out of service, and that nobody holds."""
        return frozenset((node, gpu) for node, gpu, state in self.gpu_states if state == DOWN)

    def capacity_of(self, node: int) -> int:
        """Returns the usable GPUs of one node."""
        if self.state_of.get(node) == DOWN:
            return 0
        return self.installed[node] - sum(at == node for at, _ in self.gpus_down)

    @cached_property
    def capacity(self) -> tuple[int, ...]:
        """The usable GPUs of each node: 0 for a node that is down."""
        if self.gpus_down:
            return tuple(self.capacity_of(node) for node in range(self.nodes))
        return tuple(0 if self.state_of.get(i) == DOWN else g for i, g in enumerate(self.installed))

    @cached_property
    def gpus(self) -> int:
        """The number of GPUs of all nodes that are not down."""
        return sum(self.capacity)

    @property
    def nodes(self) -> int:
        """Returns the number of nodes, whatever their state."""
        return len(self.node_group)

    def group_of(self, node: int) -> NodeGroup:
        """Returns the group of one node."""
        return self.groups[self.node_group[node]]

    def is_open(self, node: int) -> bool:
        """True if new work may start on a node: it is neither draining nor down."""
        return node not in self.state_of

    def with_nodes(self, changes: Sequence[tuple[int, str]]) -> Cluster:
        """Returns the cluster with nodes put into new states (up, draining, down)."""
        states = dict(self.states)
        for node, state in changes:
            if not 0 <= node < self.nodes:
                raise InputError("capacity", f"node {node} does not exist (0..{self.nodes - 1})")
            if state == UP:
                states.pop(node, None)
            elif state in (DRAINING, DOWN):
                states[node] = state
            else:
                raise InputError("capacity", f"unknown node state '{state}'")
        return replace(self, states=tuple(sorted(states.items())))

    def with_gpus(self, states: Sequence[tuple[int, int, str]]) -> Cluster:
        """Returns the cluster in which exactly these GPUs are draining or down."""
        for node, gpu, state in states:
            if not (0 <= node < self.nodes and 0 <= gpu < self.installed[node]):
                raise InputError("capacity", f"there is no GPU {gpu} on node {node}")
            if state not in (DRAINING, DOWN):
                raise InputError("capacity", f"unknown state of a GPU '{state}'")
        return replace(self, gpu_states=tuple(sorted(states)))


@lru_cache(maxsize=64)
def _node_group(groups: tuple[NodeGroup, ...]) -> tuple[int, ...]:
    return tuple(i for i, g in enumerate(groups) for _ in range(g.nodes))


@lru_cache(maxsize=64)
def _installed(groups: tuple[NodeGroup, ...]) -> tuple[int, ...]:
    return tuple(g.gpus_per_node for g in groups for _ in range(g.nodes))
