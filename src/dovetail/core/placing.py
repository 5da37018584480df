"""Where a gang goes: the three independent choices of ALGORITHMS section 0.

`consolidate`: may a gang be spread. `node_choice`: which of the fitting nodes it gets. `running`:
do running jobs keep their GPUs, or are they packed anew at each decision (queue policies then
repack and do not draft).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dovetail.core.errors import InputError, nearest
from dovetail.core.gpu_parts import exact_sum, thousandths
from dovetail.core.islands import is_island
from dovetail.core.job import Shape
from dovetail.core.node_sets import ALL_NODES, demands
from dovetail.core.occupancy import Occupancy
from dovetail.core.placement import Spans
from dovetail.core.units import RELATIVE_TOLERANCE

CHOICES = {
    "consolidate": (("strict", "prefer", "none"), "consolidation"),
    "node_choice": (("best-fit", "first-fit", "most-free"), "node choice"),
    "running": (("keep", "repack"), "treatment of running jobs"),
}
"""The words of each choice of `--placement`, and its name in messages."""


@dataclass(frozen=True, slots=True)
class Placing:
    """The placement rule of a run, printed in its manifest.

    strict: a gang that fits one node gets one, a larger one gets whole empty nodes and one
    node for the rest. prefer: the same if possible, else the fullest spread. none: any GPUs.
    """

    consolidate: str = "prefer"
    node_choice: str = "best-fit"
    running: str = "keep"

    def __post_init__(self) -> None:
        for name, (known, what) in CHOICES.items():
            value = getattr(self, name)
            if value not in known:
                raise InputError("--placement", f"unknown {what} '{value}'", nearest(value, known))

    @staticmethod
    def parse(text: str) -> Placing:
        """Returns the rule of a form like `strict,first-fit,repack`; what is left out is default.

        Raises InputError.
        """
        chosen: dict[str, str] = {}
        name_of = {word: name for name, (words, _) in CHOICES.items() for word in words}
        for word in filter(None, text.split(",")):
            if word not in name_of:
                raise InputError("--placement", f"unknown word '{word}'", nearest(word, name_of))
            other = chosen.setdefault(name_of[word], word)
            if other != word:
                raise InputError("--placement", f"'{other}' and '{word}' exclude each other")
        return Placing(**chosen)

    def __str__(self) -> str:
        return f"{self.consolidate},{self.node_choice},{self.running}"

    def find(
        self, occupancy: Occupancy, shape: Shape, gpus: int = 0, *, among: int = -1
    ) -> Spans | None:
        """Returns spans for a gang of `gpus` (default: as requested), or None if it must wait.

        `among` is the bit set of the nodes to choose from, -1 for all.
        """
        need = gpus or shape.gpus
        if need > occupancy.free_gpus and shape.whole_gpus:
            return None
        if occupancy.tenants is not None:
            more = exact_sum(need * shape.gpu_part) if shape.gpu_part < 1.0 else need
            if not occupancy.tenants.room(shape, more):
                return None
            among &= occupancy.tenants.nodes(shape, more)
        if not (shape.gpu_type or shape.groups or shape.topology or shape.avoided):
            return self._find_among(occupancy, shape, among, need)
        if shape.topology:
            spans = self._find_near(occupancy, shape, need, among)
            if spans is not None or demands(shape.topology):
                return spans
        for allowed in occupancy.node_sets.of(shape):
            spans = self._find_among(occupancy, shape, allowed & among, need)
            if spans is not None:
                return spans
        return None

    def _find_near(self, occupancy: Occupancy, shape: Shape, need: int, among: int) -> Spans | None:
        """Returns spans under one link of the level that a shape names."""
        sets = occupancy.node_sets
        width = sets.width(shape.topology)
        if is_island(shape.topology) and shape.gpu_part:
            among &= occupancy.island_nodes(need, shape.gpu_part)
        rule = self if width != 1 else replace(self, consolidate="strict")
        for allowed in (nodes & among for nodes in sets.of(shape)):
            least = need if shape.whole_gpus else 0
            blocks = (allowed,) if width < 2 else self._blocks(occupancy, allowed, width, least)
            for nodes in blocks:
                spans = rule._find_among(occupancy, shape, nodes, need)
                if spans is not None and (width != 1 or len(spans) == 1):
                    return spans
        return None

    def _blocks(self, occupancy: Occupancy, allowed: int, width: int, need: int) -> list[int]:
        """Returns the blocks of a level with enough free GPUs, in the order of the node choice."""
        free, closed = occupancy.free, occupancy.closed
        room: list[tuple[int, int]] = []
        for block in occupancy.node_sets.blocks(width):
            first = (block & -block).bit_length() - 1
            nodes = range(first, min(first + width, len(free)))
            gpus = sum(free[n] for n in nodes if allowed >> n & 1 and n not in closed)
            if gpus >= need:
                room.append((gpus, block & allowed))
        if self.node_choice != "first-fit":
            room.sort(key=lambda one: one[0], reverse=self.node_choice == "most-free")
        return [block for _, block in room]

    def _find_among(
        self, occupancy: Occupancy, shape: Shape, allowed: int, need: int
    ) -> Spans | None:
        """Returns spans on the nodes of one set."""
        if not shape.whole_gpus:
            return self._find_parts(occupancy, shape, allowed, need)
        if occupancy.limits_host and (shape.cpus or shape.memory_bytes):
            return self._find_on_hosts(occupancy, shape, allowed, need)
        if self.consolidate == "none":
            return self._spread(occupancy, allowed, need, whole=False)
        node = self._one_node(occupancy, allowed, need)
        if node >= 0:
            return ((node, need),)
        spans = self._whole_nodes(occupancy, allowed, need)
        if spans is None and self.consolidate == "prefer":
            return self._spread(occupancy, allowed, need, whole=True)
        return spans

    def _find_on_hosts(
        self, occupancy: Occupancy, shape: Shape, allowed: int, need: int
    ) -> Spans | None:
        """Returns spans where CPUs and memory limit what a node can take beside its GPUs."""
        nodes = list(_nodes_by(occupancy, allowed, self.node_choice))
        room = {node: _room(occupancy, shape, node) for node in nodes}
        return self._with_room(occupancy, nodes, room, need)

    def _find_parts(
        self, occupancy: Occupancy, shape: Shape, allowed: int, need: int
    ) -> Spans | None:
        """Returns spans for parts of GPUs, or for a job without GPU: where others leave room first.

        One part goes to the fullest GPU that takes it; a gang to as few nodes as a gang of whole
        GPUs, those with GPUs that are held in parts first.
        """
        if not shape.gpu_part:
            hosts = _hosts_by(occupancy, allowed, self.node_choice)
            node = next((n for n in hosts if _fits_host(occupancy, shape, n, need)), -1)
            return ((node, need),) if node >= 0 else None
        seats: dict[int, int] = {}
        for node, _ in occupancy.open_gpus.with_room(thousandths(shape.gpu_part)):
            if _open(occupancy, node, allowed):
                if need == 1 and _fits_host(occupancy, shape, node, 1):
                    return ((node, 1),)
                seats[node] = seats.get(node, 0) + 1
        nodes = list(dict.fromkeys([*seats, *_nodes_by(occupancy, allowed, self.node_choice)]))
        room = {n: _room(occupancy, shape, n, seats.get(n, 0)) for n in nodes}
        return self._with_room(occupancy, nodes, room, need)

    def _with_room(
        self, occupancy: Occupancy, nodes: list[int], room: dict[int, int], need: int
    ) -> Spans | None:
        """Returns spans on nodes, in order of choice, with room for so many GPUs of a job."""
        if self.consolidate != "none":
            for node in nodes:
                if room[node] >= need:
                    return ((node, need),)
            if self.consolidate == "strict":
                installed = occupancy.cluster.installed
                whole = sum(1 << n for n in nodes if room[n] == installed[n] == occupancy.free[n])
                return self._whole_nodes(occupancy, whole, need)
            nodes = sorted(nodes, key=lambda n: (-room[n], n))
        spans: list[tuple[int, int]] = []
        for node in nodes:
            take = min(need, room[node])
            if take:
                spans.append((node, take))
                need -= take
            if not need:
                return tuple(spans)
        return None

    def _one_node(self, occupancy: Occupancy, allowed: int, need: int) -> int:
        """Returns the node of choice with `need` free GPUs among `allowed`, or -1."""
        levels = occupancy.levels
        mask = occupancy.level_mask >> need << need
        if not mask:
            return -1
        if self.node_choice == "first-fit":
            fitting = 0
            while mask:
                low = mask & -mask
                fitting |= levels[low.bit_length() - 1]
                mask ^= low
            fitting &= allowed
            return (fitting & -fitting).bit_length() - 1
        while mask:
            level = (
                (mask & -mask).bit_length() - 1
                if self.node_choice == "best-fit"
                else mask.bit_length() - 1
            )
            nodes = levels[level] & allowed
            if nodes:
                return (nodes & -nodes).bit_length() - 1
            mask ^= 1 << level
        return -1

    def _spread(
        self, occupancy: Occupancy, allowed: int, need: int, *, whole: bool
    ) -> Spans | None:
        """Returns a spread over nodes: the fullest spread if `whole`, else in node choice."""
        spans: list[tuple[int, int]] = []
        for node in _nodes_by(occupancy, allowed, "most-free" if whole else self.node_choice):
            if whole and spans:
                rest = self._one_node(occupancy, allowed & ~_bits(spans), need)
                if rest >= 0:
                    spans.append((rest, need))
                    return tuple(spans)
            take = min(need, occupancy.free[node])
            spans.append((node, take))
            need -= take
            if not need:
                return tuple(spans)
        return None

    def _whole_nodes(self, occupancy: Occupancy, allowed: int, need: int) -> Spans | None:
        """Returns whole empty nodes, largest first, and one node for the rest."""
        installed = occupancy.cluster.installed
        if need <= _largest(occupancy, allowed):
            return None
        spans: list[tuple[int, int]] = []
        for node in _nodes_by(occupancy, allowed, "most-free"):
            if occupancy.free[node] < installed[node]:
                continue
            if installed[node] > need:
                break
            spans.append((node, installed[node]))
            need -= installed[node]
            if not need:
                return tuple(spans)
        rest = self._one_node(occupancy, allowed & ~_bits(spans), need) if spans else -1
        return (*spans, (rest, need)) if rest >= 0 else None


def _largest(occupancy: Occupancy, allowed: int) -> int:
    """Returns the most GPUs that one of the allowed nodes has installed."""
    if allowed == ALL_NODES:
        return len(occupancy.levels) - 1
    installed = occupancy.cluster.installed
    return max((g for n, g in enumerate(installed) if allowed >> n & 1), default=0)


def _bits(spans: list[tuple[int, int]]) -> int:
    bits = 0
    for node, _ in spans:
        bits |= 1 << node
    return bits


def _fits_host(occupancy: Occupancy, shape: Shape, node: int, workers: int) -> bool:
    """Returns whether the CPUs and memory of a node suffice for so many workers of a shape."""
    if not occupancy.limits_host:
        return True
    cpus, memory = occupancy.host_free[node]
    share = workers / shape.gpus * (1 - RELATIVE_TOLERANCE)
    return shape.cpus * share <= cpus and shape.memory_bytes * share <= memory


def _hosts_by(occupancy: Occupancy, allowed: int, choice: str) -> Iterator[int]:
    """Yields the open nodes for a job without GPU: those without GPUs, then in the node choice."""
    bare, levels = occupancy.bare_nodes, occupancy.levels
    rest = [nodes & ~bare for nodes in levels]
    if choice == "first-fit":
        rest = [sum(rest)]
    for nodes in (levels[0] & bare, *(reversed(rest) if choice == "most-free" else rest)):
        nodes &= allowed
        while nodes:
            low = nodes & -nodes
            yield low.bit_length() - 1
            nodes ^= low


def _room(occupancy: Occupancy, shape: Shape, node: int, seats: int = 0) -> int:
    """Returns how many GPUs of a shape a node can take, by its GPUs, CPUs and memory.

    `seats` are GPUs that are held in parts, with room for one of the shape.
    """
    room = float(occupancy.free[node] + seats)
    if not occupancy.limits_host:
        return int(room)
    cpus, memory = occupancy.host_free[node]
    if shape.cpus:
        room = min(room, cpus * shape.gpus / shape.cpus + RELATIVE_TOLERANCE)
    if shape.memory_bytes:
        room = min(room, memory * shape.gpus / shape.memory_bytes + RELATIVE_TOLERANCE)
    return int(room)


def _nodes_by(occupancy: Occupancy, allowed: int, choice: str) -> Iterator[int]:
    """Yields the nodes with any free GPU in the order of a node choice, ties by id.

    Most callers are content with the first few of hundreds.
    """
    if choice == "first-fit":
        for node, free in enumerate(occupancy.free):
            if free and _open(occupancy, node, allowed):
                yield node
        return
    levels = range(1, len(occupancy.levels))
    for level in levels if choice == "best-fit" else reversed(levels):
        nodes = occupancy.levels[level] & allowed
        while nodes:
            low = nodes & -nodes
            yield low.bit_length() - 1
            nodes ^= low


def _open(occupancy: Occupancy, node: int, allowed: int) -> bool:
    return bool(allowed >> node & 1) and node not in occupancy.closed
