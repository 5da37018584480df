"""Which nodes a job may use, as bit sets: a gang lies within one of the sets of its shape.

The nodes that a queue owns, and the types of GPU and the topology of a request decide; the states
of nodes do not.

`a100|v100` asks for GPUs of one of these types, the first is preferred: all GPUs of a gang are of
one type, as Kueue places pods on flavors. Case does not matter.

A job that names several queues (`a,b`, as sbatch --partition) lies within the nodes of one of them.

A topology names a level of the link tree: `rack` demands that all GPUs of a gang meet there,
`rack?` wishes it. A level that joins k nodes joins nodes 0 to k - 1, k to 2k - 1, and so on. By
nodes an `island` is one node; which of its GPUs, `core.islands` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from dovetail.core.cluster import ISLAND, Cluster, NodeGroup
from dovetail.core.errors import InputError, nearest
from dovetail.core.job import Shape

ALL_NODES = -1
"""The bit set of every node."""
ANYWHERE = (ALL_NODES,)


def types_of(wanted: str) -> tuple[str, ...]:
    """Returns the types of GPU of a request in order of preference; none means any."""
    names = [name.strip().casefold() for name in wanted.split("|")]
    return tuple(dict.fromkeys(filter(None, names)))


def is_of_type(gpu_type: str, wanted: str) -> bool:
    """Returns whether GPUs of a type are among those of a request."""
    types = types_of(wanted)
    return not types or gpu_type.casefold() in types


def demands(topology: str) -> bool:
    """Returns whether a topology is a demand, not a wish or nothing."""
    return bool(topology) and not topology.endswith("?")


OR = "|"
"""Stands between the groups of several queues in a list: a gang lies within those of one."""


class QueueGroups(Mapping[str, tuple[str, ...]]):
    """The node groups of each queue, or list of queues, that may not use all nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._owned = _groups_of(cluster)

    def __getitem__(self, queue: str) -> tuple[str, ...]:
        """Returns the groups of a queue; of several (`a,b`) with `OR` between them."""
        if not self._owned or queue in self._owned or "," not in queue:
            return self._owned[queue]
        listed = queues_of(queue)
        if any(name not in self._owned for name in listed):
            raise KeyError(queue)
        each = [self._owned[name] for name in listed]
        return tuple(group for groups in each for group in (OR, *groups))[1:]

    def __iter__(self) -> Iterator[str]:
        """Returns the queues that own nodes."""
        return iter(self._owned)

    def __len__(self) -> int:
        """Returns how many queues own nodes."""
        return len(self._owned)


def queues_of(queue: str) -> tuple[str, ...]:
    """Returns the queues that a job names, in its order."""
    return tuple(dict.fromkeys(filter(None, (name.strip() for name in queue.split(",")))))


def _groups_of(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """Returns the node groups of queues that own some, or below whose parents some are owned."""
    queues = {queue.name: queue for queue in cluster.queues}
    owned: dict[str, tuple[str, ...]] = {}
    for name in queues:
        above, groups = name, None
        while above in queues:
            own = queues[above].groups
            if own:
                groups = set(own) if groups is None else groups & set(own)
            above = queues[above].parent
        if groups is not None:
            owned[name] = tuple(sorted(groups)) or ("",)
    return owned


def _alternatives(groups: Sequence[str]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for name in groups:
        if name == OR:
            found.append([])
        else:
            found[-1].append(name)
    return found


class NodeSets:
    """The sets of nodes of every shape on one cluster; each is computed when it is first needed.

    `groups_of` has the node groups of each queue that may not use all of them.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sets: dict[tuple[str, tuple[str, ...], tuple[int, ...]], tuple[int, ...]] = {}
        self._levels = {"node": 1} | {link.name.casefold(): link.nodes for link in cluster.tree}
        if cluster.has_islands:
            self._levels[ISLAND] = 1
        self._blocks: dict[int, tuple[int, ...]] = {}
        self._groups: dict[tuple[int, ...], tuple[frozenset[int], ...]] = {}
        self.groups_of: Mapping[str, tuple[str, ...]] = QueueGroups(cluster)

    def of(self, shape: Shape) -> tuple[int, ...]:
        """Returns the sets of a shape, the preferred one first."""
        if not (shape.gpu_type or shape.groups or shape.avoided):
            return ANYWHERE
        key = shape.gpu_type, shape.groups, shape.avoided
        known = self._sets.get(key)
        if known is None:
            known = self._sets[key] = self._computed(shape)
        return known

    def union(self, shape: Shape) -> int:
        """Returns all nodes that jobs of a shape may use."""
        nodes = 0
        for one in self.of(shape):
            nodes |= one
        return nodes

    def holds(self, shape: Shape, nodes: Iterable[int]) -> bool:
        """Returns whether a job of a shape may run on these nodes together."""
        together = tuple(nodes)
        width = self.width(shape.topology) if demands(shape.topology) else 0
        if width and len({node // width for node in together}) > 1:
            return False
        return any(all(one >> node & 1 for node in together) for one in self.of(shape))

    def width(self, topology: str) -> int:
        """Returns the nodes that one link of a level joins, 0 for all. Raises InputError."""
        level = topology.removesuffix("?").strip().casefold()
        width = self._levels.get(level)
        if width is None:
            where, known = f"topology '{topology}'", sorted(self._levels)
            if level == ISLAND:
                mend = "give its [[group]] gpus_per_island, or --cluster NODESxISLANDSxGPUS"
                raise InputError(where, "no node of the cluster has islands", mend)
            hint = nearest(level, known)
            raise InputError(where, f"no [[link]] of the cluster has the name '{level}'", hint)
        return width

    def blocks(self, width: int) -> tuple[int, ...]:
        """Returns the sets of nodes that one link of a level joins."""
        known = self._blocks.get(width)
        if known is None:
            block, total = (1 << width) - 1, self._cluster.nodes
            known = tuple(block << first for first in range(0, total, width))
            self._blocks[width] = known
        return known

    def near(self, shape: Shape) -> Iterator[int]:
        """Yields the sets of a shape, each cut into the blocks of the level that it demands."""
        width = self.width(shape.topology) if demands(shape.topology) else 0
        for one in self.of(shape):
            cut = (one & block for block in self.blocks(width)) if width else (one,)
            yield from filter(None, cut)

    def groups(self, shape: Shape) -> tuple[frozenset[int], ...]:
        """Returns the sets of a shape as positions of node groups."""
        sets = self.of(shape)
        known = self._groups.get(sets)
        if known is None:
            group_of = self._cluster.node_group
            known = self._groups[sets] = tuple(
                frozenset(group for node, group in enumerate(group_of) if one >> node & 1)
                for one in sets
            )
        return known

    def _computed(self, shape: Shape) -> tuple[int, ...]:
        owned = [self._owned(groups) for groups in _alternatives(shape.groups)]
        if shape.avoided:
            avoided = sum(1 << node for node in shape.avoided)
            owned = [nodes & ~avoided for nodes in owned]
        wanted = types_of(shape.gpu_type)
        if not wanted:
            return tuple(dict.fromkeys(owned))
        sets = [nodes & self._typed(one) for nodes in owned for one in wanted]
        return tuple(filter(None, sets)) or (0,)

    def _owned(self, groups: Sequence[str]) -> int:
        return self._nodes(lambda group: not groups or group.name in groups)

    def _typed(self, wanted: str) -> int:
        return self._nodes(lambda group: is_of_type(group.gpu_type, wanted))

    def _nodes(self, suits: Callable[[NodeGroup], bool]) -> int:
        """Returns the nodes of the groups that suit."""
        fits = [suits(group) for group in self._cluster.groups]
        return sum(1 << node for node, at in enumerate(self._cluster.node_group) if fits[at])
