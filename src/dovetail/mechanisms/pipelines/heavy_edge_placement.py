"""Placement of pipelined jobs: servers by free GPUs, replicas by Heavy-Edge (A-SRPT).

Servers are filled one after another, those with the most or the least free GPUs first; Heavy-Edge
assigns ranks to them. Jobs without a graph take the same GPUs in any order. Under `strict`
placement the rule of the run limits the servers, and only the choice among equals is ours. Refined
placement then moves replicas between these servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from dovetail.algorithms.heavy_edge import heavy_edge
from dovetail.algorithms.pipeline_time import Links
from dovetail.algorithms.refined_replicas import refined_replicas
from dovetail.core.cluster import Cluster
from dovetail.core.job import PipelineStage, Shape
from dovetail.core.node_sets import ALL_NODES
from dovetail.core.occupancy import Occupancy
from dovetail.core.passes import NO_ROOM, Because, behind
from dovetail.core.placement import Spans
from dovetail.core.placing import Placing
from dovetail.core.plan import Draft
from dovetail.core.view import View

Graph = tuple[PipelineStage, ...]

_ANYWHERE = {"most-free": Placing("none", "most-free"), "best-fit": Placing("none", "best-fit")}
_STRICT = {"most-free": Placing("strict", "most-free"), "best-fit": Placing("strict", "best-fit")}


class GraphSeats:
    """Finds GPUs for jobs in a draft; `fullest` servers have the least free GPUs."""

    def __init__(self, view: View, occupancy: Occupancy, *, refined: bool = False) -> None:
        self._view = view
        # Only refinement needs the links of the cluster.
        self._links = _links(view.cluster) if refined else ()
        self._occupancy = occupancy
        self._strict = view.placing.consolidate == "strict"
        self._rules = _STRICT if self._strict else _ANYWHERE
        self._refused: set[tuple[Shape, frozenset[int]]] = set()

    def on_emptiest(self, job: int) -> Spans | None:
        """Returns spans in rank order on the servers with most free GPUs, None if it must wait."""
        return self._find(job, self._rules["most-free"])

    def on_fullest(self, job: int) -> Spans | None:
        """Returns spans in rank order on the servers with least free GPUs, None if it must wait."""
        return self._find(job, self._rules["best-fit"])

    def has_room(self, job: int) -> bool:
        """Returns whether enough GPUs are free, whatever the slices of its replicas."""
        shape = self._view.shape(job)
        return self._rules["most-free"].find(self._occupancy, shape) is not None

    def _find(self, job: int, rule: Placing) -> Spans | None:
        shape = self._view.shape(job)
        spans = rule.find(self._occupancy, shape)
        if spans is None or len(spans) == 1:
            return spans
        graph = self._view.physics.structure.graph(job)
        if not graph:
            return spans
        if self._strict or all(stage.slices == 1 for stage in graph):
            # Whole nodes may not divide into replicas; then ranks keep their own order.
            return self._ranked(graph, spans) or spans
        return self._sliced(graph, shape, spans, rule)

    def _sliced(self, graph: Graph, shape: Shape, spans: Spans, rule: Placing) -> Spans | None:
        """Returns spans with each replica on one server, None if the job must wait for them.

        If even the empty cluster has no such spans, ranks keep their order on `spans`.
        """
        widths = frozenset(stage.slices for stage in graph)
        if (shape, widths) in self._refused:
            return None
        if len(widths) > 1 or self._occupancy.limits_host:
            ranked = self._searched(graph, shape, rule)
        else:
            servers = self._with_room(shape, max(widths), rule)
            ranked = None if servers is None else self._ranked(graph, servers)
        if ranked is not None or not self._fits(graph, shape):
            return ranked or spans
        if len(widths) == 1:
            # NOTE: within a decision jobs only start, so equal jobs find no room either.
            self._refused.add((shape, widths))
        return None

    def _searched(self, graph: Graph, shape: Shape, rule: Placing) -> Spans | None:
        """Returns spans with each replica on one server, for several widths, on few servers."""
        # Limits were checked for the job's own GPUs; larger trial sizes must not count.
        free = replace(shape, queue="", account="", qos="", user="", reservation="", length_s=0.0)
        allowed = self._open_to(shape)
        for gpus in range(shape.gpus, self._occupancy.free_gpus + 1):
            spans = rule.find(self._occupancy, free, gpus, among=allowed)
            if spans is None:
                return None
            ranked = self._ranked(graph, spans)
            if ranked is not None:
                return ranked
        return None

    def _ranked(self, graph: Graph, spans: Spans) -> Spans | None:
        """Returns the same GPUs in rank order; None if a replica would be split."""
        servers = sorted(spans, key=_most_first)
        pattern = tuple([gpus for _, gpus in servers])
        links = tuple([self._links[node] for node, _ in servers]) if self._links else ()
        runs = _runs(graph, pattern, links)
        return None if runs is None else tuple([(servers[at][0], gpus) for at, gpus in runs])

    def _with_room(self, shape: Shape, slices: int, rule: Placing) -> Spans | None:
        """Returns servers in the order of a rule, with GPUs for whole replicas on each."""
        found = (
            self._among(allowed & self._open_to(shape), shape.gpus, slices, rule)
            for allowed in self._occupancy.node_sets.near(shape)
        )
        return next((spans for spans in found if spans is not None), None)

    def _among(self, allowed: int, need: int, slices: int, rule: Placing) -> Spans | None:
        spans = list[tuple[int, int]]()
        levels = range(slices, len(self._occupancy.levels))
        for level in levels if rule.node_choice == "best-fit" else reversed(levels):
            nodes = self._occupancy.levels[level] & allowed
            while nodes:
                low = nodes & -nodes
                nodes ^= low
                take = min(need, level // slices * slices)
                spans.append((low.bit_length() - 1, take))
                need -= take
                if not need:
                    return tuple(spans)
        return None

    def _fits(self, graph: Graph, shape: Shape) -> bool:
        """Returns whether the empty cluster has room for all replicas, each on one server."""
        sets = self._occupancy.node_sets.near(shape)
        return any(self._fits_among(graph, shape, allowed) for allowed in sets)

    def _open_to(self, shape: Shape) -> int:
        """Returns the nodes that limits and reservations leave to jobs of a shape."""
        tenants = self._occupancy.tenants
        return ALL_NODES if tenants is None else tenants.nodes(shape, shape.gpus)

    def _fits_among(self, graph: Graph, shape: Shape, allowed: int) -> bool:
        cluster = self._view.cluster
        servers = [gpus for node, gpus in enumerate(cluster.capacity) if allowed >> node & 1]
        slices = {stage.slices for stage in graph}
        if len(slices) == 1:
            width = max(slices)
            return sum(gpus // width for gpus in servers) * width >= shape.gpus
        return heavy_edge(graph, sorted(servers, reverse=True)) is not None


def _most_first(span: tuple[int, int]) -> tuple[int, int]:
    return -span[1], span[0]


@lru_cache(maxsize=64)
def _links(cluster: Cluster) -> tuple[Links, ...]:
    """Returns, per node, the slowest links of a job on several nodes."""
    across = min(link.bandwidth_bytes_per_s for link in cluster.tree)
    inside = [link.bandwidth_bytes_per_s for link in cluster.tree if link.nodes == 1]
    within = min(inside, default=across)
    return tuple(Links(within, across, gpus) for gpus in cluster.installed)


# NOTE: graphs and patterns of free GPUs recur; Heavy-Edge takes up to a millisecond, refining two.
@lru_cache(maxsize=1 << 16)
def _runs(graph: Graph, pattern: tuple[int, ...], links: tuple[Links, ...]) -> Spans | None:
    """Returns (position in the pattern, ranks) in rank order; refined where links are given."""
    if links:
        server_of = refined_replicas(graph, pattern, links)
    else:
        server_of = heavy_edge(graph, pattern)
    if server_of is None:
        return None
    runs: list[tuple[int, int]] = []
    for server in server_of:
        if runs and runs[-1][0] == server:
            runs[-1] = (server, runs[-1][1] + 1)
        else:
            runs.append((server, 1))
    return tuple(runs)


def workloads(view: View, jobs: Sequence[int]) -> list[float]:
    """Returns the predicted lengths of jobs times their GPUs."""
    lengths = view.progress.length_s(jobs)
    return [s * view.shape(job).gpus for s, job in zip(lengths, jobs, strict=True)]


def start_in_order(view: View, bypass: str) -> tuple[Draft | None, Because]:
    """Starts waiting jobs in order on the servers with most free GPUs, like `core.passes.fill`."""
    if not view.waiting:
        return None, ()
    head = view.waiting.first()
    assert head is not None
    if not view.plan.free_gpus:
        return None, behind(head) if bypass == "strict" else NO_ROOM
    draft = view.plan.draft()
    seats = GraphSeats(view, draft.occupancy)
    scan = view.waiting.scan(None if bypass == "strict" else draft.free_gpus)
    started = 0
    while (job := scan.next()) is not None:
        spans = seats.on_emptiest(job)
        if spans is not None:
            draft.place(job, spans)
            started += 1
            if bypass != "strict" and not draft.free_gpus:
                break
        elif bypass == "strict":
            return draft, behind(job)
        elif not seats.has_room(job):
            scan.drop()
    return draft if started else None, NO_ROOM if started < len(view.waiting) else ()
