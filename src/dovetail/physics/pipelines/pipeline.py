"""Jobs that are pipelines: their graphs, and how fast they run where their ranks are (A-SRPT).

The graph is the trace's own, or the planner's for the models it knows. A speed is the estimated
shortest iteration (servers full, Heavy-Edge) over the iteration as placed, both on this cluster's
links; ranks run through stages, replicas and slices, in the order of the spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dovetail.algorithms.job_graph import trouble_with
from dovetail.algorithms.least_iteration import least_iteration_s
from dovetail.algorithms.pipeline_time import (
    Links,
    packed_s,
    replicas_held,
    server_s,
    spread_s,
    stage_parts,
)
from dovetail.core.beliefs import BestBatches
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.job import JobTable, PipelineStage
from dovetail.core.placement import Spans
from dovetail.physics.batches.goodput import NODES_DISTINGUISHED
from dovetail.physics.pipelines.pipelined import Pipelined, pipelined
from dovetail.physics.pipelines.planner import held_bytes, plan
from dovetail.physics.speed.network import Network
from dovetail.physics.speed.throughput import spread
from dovetail.physics.zoo.profile import ModelProfile

FAMILY = "asrpt"
"""The set of the zoo whose models have plans."""
Graph = tuple[PipelineStage, ...]


class Pipelines:
    """Graphs and speeds by kind of job. A kind without a graph is no pipeline."""

    def __init__(self, cluster: Cluster) -> None:
        self._gpus: list[int] = []
        self._own: list[Graph] = []
        self._model: list[Pipelined | None] = []
        self.graphs: list[Graph] = []
        self._cluster = cluster
        rings = Network.of(cluster.tree)
        self._intra = rings.within.bandwidth_bytes_per_s
        self._nic = rings.across.bandwidth_bytes_per_s
        self._packed = self._links(max(g.gpus_per_node for g in cluster.groups))
        self._sizes = cluster.installed
        self._alone_s: dict[Graph, float] = {}
        self._speed: dict[tuple[int, Spans, tuple[int, ...]], float] = {}
        self._reduced: dict[tuple[int, int], tuple[Graph, int]] = {}
        self._spread: dict[int, float] = {}

    def admit(
        self, jobs: JobTable, examples: Sequence[int], profiles: Sequence[ModelProfile | None]
    ) -> None:
        """Adds kinds, each by an example job and its profile. Raises InputError for a bad graph."""
        for job, profile in zip(examples, profiles, strict=True):
            own, gpus = _own_graph(jobs, job), int(jobs.gpus[job])
            model = _model_of(profile, int(jobs.batch_size[job]))
            self._gpus.append(gpus)
            self._own.append(own)
            self._model.append(model)
            self.graphs.append(own or (plan(model, gpus) if model else ()))

    def speed(self, kind: int, spans: Spans) -> float:
        """Returns the speed of a kind alone where its ranks are."""
        # Only the sizes of the nodes matter, not which they are: a cluster has few shapes and many
        # placements, so speeds are cached by shape.
        return self._shaped(kind, *_shape(spans, self._sizes))

    def _shaped(self, kind: int, shape: Spans, sizes: tuple[int, ...]) -> float:
        """Returns the speed on nodes numbered from 0 that have so many GPUs each."""
        key = kind, shape, sizes
        speed = self._speed.get(key)
        if speed is None:
            gpus = sum(here for _, here in shape)
            graph, used = self._graph_on(kind, gpus)
            if used:
                placed_s = self._as_placed_s(graph, _first(shape, used), sizes)
                speed = self._requested_s(kind) / placed_s
            else:
                speed = self.rate(kind, gpus)
            self._speed[key] = speed
        return speed

    def rate(self, kind: int, gpus: int) -> float:
        """Returns the speed of a kind alone and well placed on a number of GPUs.

        Where there is no plan for so many, the largest smaller one runs and the other GPUs idle;
        below the smallest plan the speed is in proportion to the GPUs.
        """
        graph, used = self._graph_on(kind, gpus)
        if used:
            return self._requested_s(kind) / self._packed_s(graph)
        needed = sum(stage.gpus for stage in graph)
        return gpus / needed * self._requested_s(kind) / self._packed_s(graph)

    def spread_speed(self, kind: int) -> float:
        """Returns alpha_min over alpha_max: every replica on a server of its own."""
        if kind not in self._spread:
            alone_s = spread_s(self.graphs[kind], self._packed)
            self._spread[kind] = self._requested_s(kind) / alone_s
        return self._spread[kind]

    def top_speed(self, kind: int, gpus: int) -> float:
        """Returns a speed that no placement of the ranks on so many GPUs exceeds.

        It may exceed 1: a trace counts Heavy-Edge's packing as well placed, and others may beat it.
        """
        graph, used = self._graph_on(kind, gpus)
        sizes = sorted({size for size in self._sizes if size}, reverse=True)
        least_s = least_iteration_s(graph, tuple(map(self._links, sizes)))
        part = 1.0 if used else gpus / sum(stage.gpus for stage in graph)
        return part * self._requested_s(kind) / least_s

    def best_batches(self, kind: int, max_gpus: int) -> BestBatches:
        """Returns the speed by nodes and GPUs, the batch as requested, ranks spread evenly."""
        speed = np.zeros((NODES_DISTINGUISHED + 1, max_gpus + 1))
        size = self._packed.gpus
        for nodes in range(1, NODES_DISTINGUISHED + 1):
            for gpus in range(nodes, max_gpus + 1):
                if nodes * size < gpus:
                    speed[nodes, gpus] = self.rate(kind, gpus)
                else:
                    even = enumerate(spread(gpus, nodes))
                    speed[nodes, gpus] = self._shaped(kind, tuple(even), (size,) * nodes)
        return BestBatches.of(speed)

    def held_bytes(self, kind: int, gpus: int, steps: int) -> tuple[float, float] | None:
        """Returns the bytes on the fullest GPU, without activations and in all; None if unknown."""
        model = self._model[kind]
        if self._own[kind] or model is None or not self.graphs[kind]:
            return None
        used = sum(stage.gpus for stage in self._graph_on(kind, gpus)[0])
        return held_bytes(model, used, steps)

    def _links(self, gpus: int) -> Links:
        return Links(self._intra, self._nic, gpus)

    def _requested_s(self, kind: int) -> float:
        return self._packed_s(self.graphs[kind])

    def _packed_s(self, graph: Graph) -> float:
        if graph not in self._alone_s:
            self._alone_s[graph] = packed_s(graph, self._packed)
        return self._alone_s[graph]

    def _graph_on(self, kind: int, gpus: int) -> tuple[Graph, int]:
        """Returns the graph on a number of GPUs and how many it uses; 0 if it needs more."""
        if gpus == self._gpus[kind]:
            return self.graphs[kind], gpus
        key = kind, gpus
        if key not in self._reduced:
            self._reduced[key] = self._resized(kind, gpus)
        return self._reduced[key]

    def _resized(self, kind: int, gpus: int) -> tuple[Graph, int]:
        model, requested = self._model[kind], self._gpus[kind]
        if self._own[kind] or model is None:
            return self.graphs[kind], requested if gpus > requested else 0
        for fewer in range(gpus, 0, -1):
            graph = plan(model, fewer)
            if graph:
                return graph, fewer
        # The graph as requested exists, so there is a plan for more GPUs.
        more = next(n for n in range(gpus + 1, requested + 1) if plan(model, n))
        return plan(model, more), 0

    def _as_placed_s(self, graph: Graph, shape: Spans, sizes: tuple[int, ...]) -> float:
        """Returns the longest stage on any server, equation (7), broken replicas included."""
        server_of = [m for m, gpus in shape for _ in range(gpus)]
        held = replicas_held(graph, server_of)
        links = [self._links(size) for size in sizes[: len(held)]]
        longest_s = max(server_s(graph, row, one) for row, one in zip(held, links, strict=True))
        rank = 0
        for s, stage in enumerate(graph):
            for _ in range(stage.replicas):
                ranks = server_of[rank : rank + stage.slices]
                rank += stage.slices
                if len(set(ranks)) > 1:
                    there = dict.fromkeys(ranks)
                    longest_s = max(
                        longest_s,
                        *(
                            sum(stage_parts(graph, s, held[m], links[m]))
                            + _broken_s(stage, ranks.count(m), links[m])
                            for m in there
                        ),
                    )
        return longest_s


def _broken_s(stage: PipelineStage, here: int, links: Links) -> float:
    """Returns the seconds that a replica loses on a server with only some of its slices.

    Its tensors, at least twice each way for a single layer, pass the NIC's share of the slices
    here. The graph does not have the number of layers of a stage, so this is a lower bound.
    """
    widest = max(stage.activation_in_bytes, stage.activation_out_bytes)
    exchanged = 4 * 2 * (stage.slices - 1) / stage.slices * widest
    return exchanged / (here / links.gpus * links.nic_bytes_per_s)


def _own_graph(jobs: JobTable, job: int) -> Graph:
    """Returns the graph that the trace gives a job. Raises InputError where it is none."""
    code = int(jobs.graph_code[job])
    if code < 0:
        return ()
    graph, where = jobs.graphs[code], f"job {jobs.job_id[job]}, its graph"
    trouble = trouble_with(graph)
    if trouble:
        raise InputError(where, trouble, "what a stage sends, the next one receives")
    gpus, needed = int(jobs.gpus[job]), sum(stage.gpus for stage in graph)
    if graph and gpus != needed:
        raise InputError(where, f"has {needed} GPUs, the job {gpus}", "make them equal")
    return graph


def _model_of(profile: ModelProfile | None, batch: int) -> Pipelined | None:
    """Returns the planner's model of a profile, with the batch of the job if it has one."""
    if profile is None or profile.family != FAMILY:
        return None
    model = pipelined().get(profile.name)
    return replace(model, batch=batch) if model and batch else model


def _first(spans: Spans, gpus: int) -> Spans:
    """Returns the first GPUs of the spans."""
    first, remaining = [], gpus
    for node, here in spans:
        if remaining <= 0:
            break
        first.append((node, min(here, remaining)))
        remaining -= here
    return tuple(first)


def _shape(spans: Spans, sizes: Sequence[int]) -> tuple[Spans, tuple[int, ...]]:
    """Returns the spans with nodes numbered as they appear, and the GPUs of those nodes."""
    number: dict[int, int] = {}
    shape = tuple((number.setdefault(node, len(number)), gpus) for node, gpus in spans)
    return shape, tuple(sizes[node] for node in number)
