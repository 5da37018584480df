"""Heavy-Edge: a greedy cut of a pipelined job's graph over servers (A-SRPT section IV.B).

Servers are filled one after another, each from the heaviest edge outwards. A replica of several
slices is one vertex and stays whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.algorithms.job_graph import GraphStage, JobGraph, job_graph


def heavy_edge(stages: tuple[GraphStage, ...], capacities: Sequence[int]) -> tuple[int, ...] | None:
    """Returns the server of each rank, as a position in `capacities`; None if they cannot fit.

    `capacities` are the GPUs to take of each server, in the order in which ties are broken. Ranks
    run through stages, replicas and slices. Servers are filled by GPUs descending; only where
    slices leave gaps may GPUs stay unused. Raises ValueError for an invalid graph.
    """
    return cut(job_graph(stages), capacities)


def cut(graph: JobGraph, capacities: Sequence[int]) -> tuple[int, ...] | None:
    """Returns the server of each rank of a graph, as `heavy_edge` does."""
    server_of = [-1] * len(graph.width)
    left = set(range(len(graph.width)))
    for server in sorted(range(len(capacities)), key=lambda m: (-capacities[m], m)):
        if not left:
            break
        for vertex in _chosen(graph, left, capacities[server]):
            server_of[vertex] = server
            left.discard(vertex)
    if left:
        return None
    return tuple(m for m, width in zip(server_of, graph.width, strict=True) for _ in range(width))


def _chosen(graph: JobGraph, left: set[int], room: int) -> list[int]:
    """Returns the vertices of `left` for a server with `room` free GPUs."""
    width = graph.width
    if sum(width[v] for v in left) <= room:
        return sorted(left)
    if room == 1:
        return _lightest(graph, left)
    return _grown(graph, left, room)


def _lightest(graph: JobGraph, left: set[int]) -> list[int]:
    """Returns the vertex of width 1 that exchanges least with the other vertices left."""
    single = [v for v in left if graph.width[v] == 1]
    if not single:
        return []
    return [min(single, key=lambda v: (sum(w for u, w in graph.near[v] if u in left), v))]


def _grown(graph: JobGraph, left: set[int], room: int) -> list[int]:
    """Returns the set grown along the heaviest edges until the room is used up."""
    width = graph.width
    taken: list[int] = []
    outside = set(left)
    best: dict[int, tuple[float, int, int]] = {}

    def take(vertex: int) -> None:
        taken.append(vertex)
        outside.discard(vertex)
        best.pop(vertex, None)
        for other, weight in graph.near[vertex]:
            if other in outside:
                # The heaviest edge first; ties by the pair, smaller vertex first.
                key = (-weight, min(vertex, other), max(vertex, other))
                if other not in best or key < best[other]:
                    best[other] = key

    for a, b, _ in graph.heaviest:
        if a in outside and b in outside and width[a] + width[b] <= room:
            take(a)
            take(b)
            room -= width[a] + width[b]
            break
    while room:
        fits = [v for v in outside if width[v] <= room]
        if not fits:
            break
        joined = [v for v in fits if v in best]
        chosen = min(joined, key=best.__getitem__) if joined else min(fits)
        take(chosen)
        room -= width[chosen]
    return taken
