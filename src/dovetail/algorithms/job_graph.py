"""The graph of a pipelined job: bytes exchanged between replicas (A-SRPT section IV.B, FIX-15).

Vertices are the replicas of all stages in rank order, stage by stage. The weight of an edge is the
bytes that two replicas exchange in one iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, Protocol

CONSERVED = 1e-6
"""Relative tolerance for the bytes that one stage sends and the next receives."""


class GraphStage(Protocol):
    """One pipeline stage, per replica: seconds, and bytes, of one iteration."""

    @property
    def replicas(self) -> int:
        """Returns the replicas that split each batch."""

    @property
    def forward_s(self) -> float:
        """Returns the seconds of a forward pass."""

    @property
    def backward_s(self) -> float:
        """Returns the seconds of a backward pass."""

    @property
    def activation_in_bytes(self) -> float:
        """Returns the bytes received in a forward pass."""

    @property
    def activation_out_bytes(self) -> float:
        """Returns the bytes sent in a forward pass."""

    @property
    def parameter_bytes(self) -> float:
        """Returns the bytes of the parameters, which an AllReduce exchanges."""

    @property
    def slices(self) -> int:
        """Returns the GPUs of one replica, all on one server."""


class Edge(NamedTuple):
    """Two vertices, the smaller first, and the bytes they exchange in one iteration."""

    first: int
    second: int
    weight_bytes: float


class JobGraph(NamedTuple):
    """Vertices in rank order and their edges.

    `stage` and `width` (GPUs) are per vertex. `heaviest` lists the edges, heaviest first, ties by
    vertices; `near` the neighbours of each vertex and the bytes to each.
    """

    stage: tuple[int, ...]
    width: tuple[int, ...]
    heaviest: tuple[Edge, ...]
    near: tuple[tuple[tuple[int, float], ...], ...]


def trouble_with(stages: Sequence[GraphStage]) -> str:
    """Returns why the stages are no valid job, or "".

    All replicas of a stage together send what all replicas of the next one receive:
    `k[s-1] * d_out[s-1] = k[s] * d_in[s]` (section III).
    """
    for at, stage in enumerate(stages):
        if stage.replicas < 1 or stage.slices < 1:
            return f"stage {at + 1} needs at least one replica of at least one slice"
        seconds = (stage.forward_s, stage.backward_s)
        data = (stage.activation_in_bytes, stage.activation_out_bytes, stage.parameter_bytes)
        if not all(0 <= x < float("inf") for x in (*seconds, *data)):
            return f"stage {at + 1} has times or bytes that are negative or not finite"
        if sum(seconds) <= 0:
            return f"stage {at + 1} computes for no time"
        if at:
            before = stages[at - 1]
            sent = before.replicas * before.activation_out_bytes
            received = stage.replicas * stage.activation_in_bytes
            if abs(sent - received) > CONSERVED * max(sent, received):
                return (
                    f"stage {at} sends {sent:g} bytes in all and stage {at + 1} "
                    f"receives {received:g}"
                )
    return ""


@lru_cache(maxsize=4096)
def job_graph(stages: tuple[GraphStage, ...]) -> JobGraph:
    """Returns the graph of a job whose replicas reduce in rings.

    Raises ValueError where bytes are not conserved.
    """
    trouble = trouble_with(stages)
    if trouble:
        raise ValueError(trouble)
    weights = stage_weights(stages)
    first = 0
    for stage in stages:
        _add_ring(weights, first, stage)
        first += stage.replicas
    return graph_of(stages, weights)


def stage_weights(stages: Sequence[GraphStage]) -> dict[tuple[int, int], float]:
    """Returns `2 d_in / k[s-1]` for each replica of a stage and each of the stage before."""
    weights: dict[tuple[int, int], float] = {}
    first = 0
    for before, stage in pairwise(stages):
        after = first + before.replicas
        for a in range(first, after):
            for b in range(after, after + stage.replicas):
                weights[a, b] = 2 * stage.activation_in_bytes / before.replicas
        first = after
    return weights


def graph_of(stages: Sequence[GraphStage], weights: Mapping[tuple[int, int], float]) -> JobGraph:
    """Returns the graph with these bytes between vertices; edges of no bytes are left out."""
    stage_of = tuple(s for s, stage in enumerate(stages) for _ in range(stage.replicas))
    heaviest = sorted(
        (Edge(a, b, w) for (a, b), w in weights.items() if w > 0),
        key=lambda e: (-e.weight_bytes, e.first, e.second),
    )
    near: list[list[tuple[int, float]]] = [[] for _ in stage_of]
    for a, b, weight in heaviest:
        near[a].append((b, weight))
        near[b].append((a, weight))
    return JobGraph(
        stage_of,
        tuple(stages[s].slices for s in stage_of),
        tuple(heaviest),
        tuple(tuple(sorted(one)) for one in near),
    )


def _add_ring(weights: dict[tuple[int, int], float], first: int, stage: GraphStage) -> None:
    """Adds the AllReduce of a stage as a ring: `2 (k-1)/k` of the parameters per edge."""
    k = stage.replicas
    share = 2 * ((k - 1) / k * stage.parameter_bytes)
    # Two replicas have one edge (the graph is simple): its weight is h.
    for r in range(k if k > 2 else k - 1):
        a, b = sorted((first + r, first + (r + 1) % k))
        weights[a, b] = share
