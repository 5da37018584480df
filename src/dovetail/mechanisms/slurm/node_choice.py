"""Which nodes Slurm's cons_tres selects for a job, now or with some jobs gone.

The nodes that can hold the job form runs of consecutive nodes. Of the runs that suffice the one
with the fewest nodes is taken, and of that the first nodes. Slurm compares CPUs, but of each node
only as many as a job with GPUs and a number of tasks can use there: the same on all that fit. So
it does not seek the fullest node.

With the placement option `most-free` a job gets the least loaded node (CR_LLN), with `first-fit`
the first. `strict` is a job with `--nodes`: whole nodes and one for the rest; otherwise a job that
finds no such nodes is spread over what is free, as with `--gpus` alone.

Source: `src/plugins/select/cons_tres/job_test.c`, `_eval_nodes` and `_select_cores`;
`cons_common/gres_select_filter.c`, `gres_select_filter_sock_core`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dovetail.core.job import Shape
from dovetail.core.occupancy import Occupancy
from dovetail.core.placement import Spans
from dovetail.core.placing import Placing
from dovetail.core.units import RELATIVE_TOLERANCE


@dataclass(slots=True)
class FreeNodes:
    """The free GPUs, and with hosts that limit the free CPUs and memory, of each open node."""

    levels: list[int]
    free: list[int]
    hosts: list[list[float]] | None
    installed: tuple[int, ...]

    @staticmethod
    def now(occupancy: Occupancy) -> FreeNodes:
        """Returns the nodes of a draft; they change with it."""
        hosts = occupancy.host_free if occupancy.limits_host else None
        return FreeNodes(occupancy.levels, occupancy.free, hosts, occupancy.cluster.installed)

    @staticmethod
    def idle(occupancy: Occupancy) -> FreeNodes:
        """Returns the open nodes of a draft as if nothing ran on them."""
        cluster = occupancy.cluster
        levels = [0] * (max(cluster.installed) + 1)
        for node, gpus in enumerate(cluster.capacity):
            if cluster.is_open(node):
                levels[gpus] |= 1 << node
        hosts: list[list[float]] | None = None
        if occupancy.limits_host:
            groups = [cluster.group_of(node) for node in range(cluster.nodes)]
            hosts = [[g.cpus or float("inf"), g.memory_bytes or float("inf")] for g in groups]
        return FreeNodes(levels, list(cluster.capacity), hosts, cluster.installed)

    def copy(self) -> FreeNodes:
        """Returns the nodes to take running jobs from."""
        hosts = None if self.hosts is None else [list(host) for host in self.hosts]
        return FreeNodes(list(self.levels), list(self.free), hosts, self.installed)

    def release(self, spans: Spans, shape: Shape) -> None:
        """Takes a job of a shape off its nodes; those that are closed stay closed."""
        for node, gpus in spans:
            before = self.free[node]
            self.free[node] = after = before + gpus
            bit = 1 << node
            if self.levels[before] & bit:
                self.levels[before] ^= bit
                self.levels[after] |= bit
            if self.hosts is not None:
                self.hosts[node][0] += shape.cpus * gpus / shape.gpus
                self.hosts[node][1] += shape.memory_bytes * gpus / shape.gpus

    def with_room(self, shape: Shape, gpus: int, among: int) -> int:
        """Returns the nodes among some that can hold so many GPUs of a shape."""
        nodes = 0
        for level in self.levels[gpus:]:
            nodes |= level
        nodes &= among
        if self.hosts is None or not (shape.cpus or shape.memory_bytes):
            return nodes
        cpus = shape.cpus * gpus / shape.gpus * (1 - RELATIVE_TOLERANCE)
        memory_bytes = shape.memory_bytes * gpus / shape.gpus * (1 - RELATIVE_TOLERANCE)
        return sum(
            1 << node
            for node in each(nodes)
            if self.hosts[node][0] >= cpus and self.hosts[node][1] >= memory_bytes
        )

    def room(self, shape: Shape, node: int) -> int:
        """Returns how many GPUs of a shape a node can hold."""
        room = float(self.free[node])
        if self.hosts is not None:
            cpus, memory_bytes = self.hosts[node]
            if shape.cpus:
                room = min(room, cpus * shape.gpus / shape.cpus + RELATIVE_TOLERANCE)
            if shape.memory_bytes:
                room = min(
                    room, memory_bytes * shape.gpus / shape.memory_bytes + RELATIVE_TOLERANCE
                )
        return int(room)

    def load_key(self, node: int) -> float:
        """Returns the free CPUs of a node, or its free GPUs where CPUs are not known."""
        if self.hosts is not None and self.hosts[node][0] < float("inf"):
            return self.hosts[node][0]
        return self.free[node]


def each(nodes: int) -> Iterator[int]:
    """Yields the nodes of a set in order."""
    while nodes:
        low = nodes & -nodes
        yield low.bit_length() - 1
        nodes ^= low


def choose(state: FreeNodes, placing: Placing, shape: Shape, among: int) -> Spans | None:
    """Returns the nodes that a job gets among some, or None."""
    need = shape.gpus
    if need < len(state.levels):
        one = state.with_room(shape, need, among)
        if one:
            return ((_best(state, placing, one), need),)
    if placing.consolidate != "none":
        spans = _whole_nodes(state, placing, shape, among)
        if spans is not None or placing.consolidate == "strict":
            return spans
    return _spread(state, shape, among)


def _best(state: FreeNodes, placing: Placing, nodes: int) -> int:
    """Returns the node that is selected among those that fit."""
    if placing.node_choice == "first-fit" or not nodes & (nodes - 1):
        return (nodes & -nodes).bit_length() - 1
    if placing.node_choice == "most-free":
        return max(each(nodes), key=lambda node: (state.load_key(node), -node))
    run = min(_runs(nodes), key=int.bit_count)
    return (run & -run).bit_length() - 1


def _runs(nodes: int) -> Iterator[int]:
    """Yields the runs of consecutive nodes of a set, in order."""
    while nodes:
        rest = nodes & (nodes + (nodes & -nodes))
        yield nodes ^ rest
        nodes = rest


def _whole_nodes(state: FreeNodes, placing: Placing, shape: Shape, among: int) -> Spans | None:
    """Returns whole nodes of the largest size, and one node for the rest."""
    size = max((state.installed[node] for node in each(among)), default=0)
    if not size or shape.gpus <= size:
        return None
    count, rest = divmod(shape.gpus, size)
    alike = sum(1 << node for node in each(among) if state.installed[node] == size)
    empty = state.with_room(shape, size, alike)
    if empty.bit_count() < count:
        return None
    chosen = _of_runs(state, placing, empty, count)
    spans = tuple((node, size) for node in chosen)
    if not rest:
        return spans
    last = state.with_room(shape, rest, among & ~sum(1 << node for node in chosen))
    return (*spans, (_best(state, placing, last), rest)) if last else None


def _of_runs(state: FreeNodes, placing: Placing, nodes: int, count: int) -> list[int]:
    """Returns so many nodes: of the smallest run that suffices, else of the largest, and so on."""
    if placing.node_choice == "most-free":
        ranked = sorted(each(nodes), key=lambda node: (-state.load_key(node), node))
        return sorted(ranked[:count])
    if placing.node_choice == "first-fit":
        return list(each(nodes))[:count]
    runs, chosen = list(_runs(nodes)), list[int]()
    while len(chosen) < count:
        missing = count - len(chosen)
        sizes = [run.bit_count() for run in runs]
        enough = [size for size in sizes if size >= missing]
        best = sizes.index(min(enough) if enough else max(sizes))
        chosen += list(each(runs.pop(best)))[:missing]
    return sorted(chosen)


def _spread(state: FreeNodes, shape: Shape, among: int) -> Spans | None:
    """Returns a spread over the nodes with most room, the first of equals."""
    rooms = [(-state.room(shape, node), node) for node in each(state.with_room(shape, 1, among))]
    need, spans = shape.gpus, list[tuple[int, int]]()
    for room, node in sorted(rooms):
        take = min(need, -room)
        if take:
            spans.append((node, take))
            need -= take
        if not need:
            return tuple(spans)
    return None
