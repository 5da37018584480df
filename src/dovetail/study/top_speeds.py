"""How fast jobs can be on a number of GPUs, wherever on the cluster these are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dovetail.algorithms.least_iteration import least_iteration_s
from dovetail.algorithms.pipeline_time import Links, packed_s
from dovetail.core.beliefs import Physics
from dovetail.core.job import PipelineStage
from dovetail.core.placement import Placement
from dovetail.core.trace import Trace
from dovetail.physics.speed.network import Network
from dovetail.physics.speed.throughput import spread
from dovetail.study.options import Options
from dovetail.study.run import build_physics

Graph = tuple[PipelineStage, ...]


class TopSpeeds:
    """Speeds of the jobs of a trace that no placement on a number of GPUs exceeds."""

    def __init__(self, trace: Trace, options: Options, physics: Physics) -> None:
        cluster = options.cluster
        self._trace, self._options, self._physics = trace, options, physics
        self._most = sum(cluster.installed)
        self._size, self._nodes = max(cluster.installed), cluster.nodes
        rings = Network.of(cluster.tree)
        speeds = rings.within.bandwidth_bytes_per_s, rings.across.bandwidth_bytes_per_s
        sizes = sorted({size for size in cluster.installed if size}, reverse=True)
        self._servers = tuple(Links(*speeds, size) for size in sizes)
        self._graphs: dict[tuple[int, int], Sequence[Graph]] = {}

    def of(self, job: int, gpus: int) -> float:
        """Returns the top speed of a job on so many GPUs of the first type."""
        top = self._physics.speed.top(job, gpus)
        if self._physics.structure.graph(job):
            return min(top, self._pipelined(job, gpus))
        return min(top, self._plain(job, gpus))

    def _plain(self, job: int, gpus: int) -> float:
        """Returns the highest speed of a plain job, of which only the number of nodes matters.

        It is fastest on the fewest, or on one more: a ring over two nodes may be slower than one
        over three (docs/concepts/physics.md).
        """
        fewest = -(-gpus // self._size)
        if fewest == 1:
            return np.inf
        numbers = [n for n in (fewest, fewest + 1) if n <= min(gpus, self._nodes)]
        placements = (Placement(tuple(enumerate(spread(gpus, n)))) for n in numbers)
        whole = self._physics.speed.whole
        return max((whole(job, placement) for placement in placements), default=np.inf)

    def _pipelined(self, job: int, gpus: int) -> float:
        """Returns the speed of a pipeline with the shortest iteration that is possible."""
        requested = self._physics.structure.graph(job)
        if gpus == int(self._trace.jobs.gpus[job]):
            graph = requested
        elif int(self._trace.jobs.graph_code[job]) >= 0 or gpus > self._most:
            return np.inf
        else:
            graph = self._graph(job, gpus)
        # On fewer GPUs than the smallest plan the speed is in proportion to them.
        part = min(1.0, gpus / sum(stage.gpus for stage in graph))
        as_requested_s = packed_s(requested, self._servers[0])
        return part * as_requested_s / least_iteration_s(graph, self._servers)

    def _graph(self, job: int, gpus: int) -> Graph:
        """Returns the plan of a pipeline on so many GPUs."""
        key = int(self._trace.jobs.model.codes[job]), int(self._trace.jobs.batch_size[job])
        if key not in self._graphs:
            self._graphs[key] = self._planned(job)
        graphs = self._graphs[key]
        # As the physics has it: the largest plan that fits, or the smallest that there is.
        fitting = [graph for graph in graphs[: gpus + 1] if graph]
        return fitting[-1] if fitting else next(graph for graph in graphs if graph)

    def _planned(self, job: int) -> Sequence[Graph]:
        """Returns the plan on 0, 1, ... GPUs, empty where there is none.

        It is the graph of a job that requests so many.
        """
        counts = np.arange(1, self._most + 1)
        alike = self._trace.take(np.full(counts.size, job))
        jobs = replace(alike.jobs, gpus=counts, min_gpus=counts, max_gpus=counts)
        structure = build_physics(replace(alike, jobs=jobs), self._options).structure
        return [(), *(structure.graph(row) for row in range(counts.size))]
