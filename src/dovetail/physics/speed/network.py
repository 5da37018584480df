"""How long the workers of one job take to exchange gradients (ALGORITHMS section 1.1, eq. 4).

A ring all-reduce of `M` bytes over N workers takes `2(N-1)*latency + 2(N-1)/N * M/bandwidth`
on its slowest link. Which link that is follows from where the workers are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.core.cluster import Link
from dovetail.core.errors import InputError


@dataclass(frozen=True, slots=True)
class RingLink:
    """The slowest link of a ring: latency of a hop and bandwidth."""

    latency_s: float
    bandwidth_bytes_per_s: float

    def __post_init__(self) -> None:
        if not (self.latency_s >= 0 and self.bandwidth_bytes_per_s > 0):
            raise ValueError(f"a link needs a latency >= 0 and a bandwidth > 0: {self}")

    def all_reduce_s(self, workers: int, gradient_bytes: float) -> float:
        """Returns `a_comm + b_comm * M` for a ring of N workers; 0 when there is one."""
        hops = 2 * (workers - 1)
        return hops * self.latency_s + hops / workers * gradient_bytes / self.bandwidth_bytes_per_s


@dataclass(frozen=True, slots=True)
class Network:
    """The rings a job meets: inside one node, and across nodes.

    `pair` is the ring over exactly two nodes, where it was measured apart: on the T4 nodes of
    the Pollux authors two nodes exchange more slowly than three or four (docs/concepts/physics.md).
    """

    within: RingLink
    across: RingLink
    pair: RingLink | None = None

    def ring(self, spans: Sequence[int]) -> RingLink:
        """Returns the ring of a placement, in GPUs per node."""
        if len(spans) == 1:
            return self.within
        return self.pair if self.pair and len(spans) == 2 else self.across

    def comm_s(self, spans: Sequence[int], gradient_bytes: float) -> float:
        """Returns the all-reduce seconds of a placement, in GPUs per node."""
        workers = sum(spans)
        if workers <= 1:
            return 0.0
        return self.ring(spans).all_reduce_s(workers, gradient_bytes)

    @staticmethod
    def of(links: Sequence[Link]) -> Network:
        """Returns the rings of a cluster's link tree, for jobs that may lie anywhere in it."""
        inside = [link for link in links if link.nodes == 1]
        if not inside or len(inside) == len(links):
            raise InputError(
                "links",
                "a tree needs a level inside a node and one between nodes",
                "give one link with nodes = 1 and one with nodes = 0",
            )
        return Network(_slowest(inside), _slowest(links))


def _slowest(links: Sequence[Link]) -> RingLink:
    return RingLink(
        max(link.latency_s for link in links),
        min(link.bandwidth_bytes_per_s for link in links),
    )
