"""The NVLink islands of nodes: GPUs of a node that meet on faster links than its others.

Islands of k GPUs are GPUs 0 to k - 1 of a node, k to 2k - 1, and so on; a node of a group that
states none is one island. On a cluster with islands every placement names its GPUs, so that the
tables know what each island has free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import accumulate

from dovetail.core.cluster import ISLAND, Cluster
from dovetail.core.placement import Placement


def is_island(topology: str) -> bool:
    """Returns whether a topology names the level of islands, as a demand or a wish."""
    return topology.removesuffix("?").strip().casefold() == ISLAND


class Islands:
    """The free GPUs of each island, with an index of nodes by their emptiest island."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        groups = [cluster.group_of(node) for node in range(cluster.nodes)]
        self.sizes = [g.gpus_per_island or max(g.gpus_per_node, 1) for g in groups]
        """The GPUs of one island, by node."""
        self.free = [
            [size] * (gpus // size)
            for size, gpus in zip(self.sizes, cluster.installed, strict=True)
        ]
        for node, gpu in cluster.gpus_down:
            self.free[node][gpu // self.sizes[node]] -= 1
        self._nodes_by_most = [0] * (max(self.sizes) + 1)
        for node, free in enumerate(self.free):
            self._nodes_by_most[max(free, default=0)] |= 1 << node

    @staticmethod
    def of(cluster: Cluster) -> Islands | None:
        """Returns the islands of a cluster with nothing on it; None if it states none."""
        return Islands(cluster) if cluster.has_islands else None

    def emptied(self) -> Islands:
        """Returns the same islands with nothing on them."""
        return Islands(self._cluster)

    def adopt(self, cluster: Cluster) -> None:
        """Adopts a cluster in which GPUs that nobody holds went out of service, or came back."""
        for gone in sorted(cluster.gpus_down - self._cluster.gpus_down):
            self.shift(*gone, -1)
        for back in sorted(self._cluster.gpus_down - cluster.gpus_down):
            self.shift(*back, 1)
        self._cluster = cluster

    def shift(self, node: int, gpu: int, by: int) -> None:
        """Frees one GPU (1) or takes it (-1)."""
        free = self.free[node]
        before = max(free)
        free[gpu // self.sizes[node]] += by
        if before != (after := max(free)):
            self._nodes_by_most[before] ^= 1 << node
            self._nodes_by_most[after] |= 1 << node

    def nodes_with(self, gpus: int) -> int:
        """Returns the nodes, as a bit set, of which one island has so many free GPUs."""
        return list(accumulate(self._nodes_by_most[gpus:], int.__or__, initial=0))[-1]

    def crossed(self, placement: Placement) -> bool:
        """True if a placement on one node lies in several islands."""
        return len({gpu // self.sizes[node] for node, gpu in placement.named()}) > 1

    def crossed_needlessly(self, placement: Placement) -> bool:
        """True if a placement on one node lies in several islands and would fit one."""
        if placement.nodes > 1 or placement.gpus > self.sizes[placement.spans[0][0]]:
            return False
        return self.crossed(placement)

    def together(self, placement: Placement) -> bool:
        """True if all GPUs of a placement are of one island of one node."""
        return placement.nodes == 1 and not self.crossed(placement)

    def chosen(
        self, node: int, count: int, idle: Iterable[int], own: Collection[int], *, near: bool
    ) -> tuple[int, ...]:
        """Returns `count` of the idle GPUs of a node, ascending, in as few islands as can be.

        Of the islands that suffice it is the one with most GPUs of the job's own, then the fullest,
        then the first. A job that runs keeps its own GPUs, unless `near` says that it is to lie in
        one island.
        """
        size = self.sizes[node]
        islands: dict[int, list[int]] = {}
        for gpu in idle:
            islands.setdefault(gpu // size, []).append(gpu)
        kept = {i: sum(gpu in own for gpu in gpus) for i, gpus in islands.items()}
        suffice = [i for i, gpus in islands.items() if len(gpus) >= count]
        most_kept = min(count, sum(kept.values()))
        if not near:
            suffice = [i for i in suffice if min(count, kept[i]) == most_kept]
        if suffice:
            order = [min(suffice, key=lambda i: (-kept[i], len(islands[i]), i))]
        else:
            order = sorted(islands, key=lambda i: (-kept[i], -len(islands[i]), i))
        ranked = [(gpu not in own, at, gpu) for at, i in enumerate(order) for gpu in islands[i]]
        return tuple(sorted(gpu for _, _, gpu in sorted(ranked)[:count]))
