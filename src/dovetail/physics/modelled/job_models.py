"""Tables by job and by kind: profile, batch, pipeline and stages.

Jobs of one model, requested GPUs, batch and graph are of one kind. The tables of a
kind are computed once, when its first job appears.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from dovetail.core.cluster import Cluster
from dovetail.core.islands import Islands
from dovetail.core.job import Ints, JobTable, PipelineStage
from dovetail.core.kinds import Kinds
from dovetail.core.placement import Placement
from dovetail.physics.batches import goodput
from dovetail.physics.linear import LinearStructure
from dovetail.physics.pipelines.pipeline import Pipelines
from dovetail.physics.sharing.service_demand import (
    UNKNOWN_DEMAND,
    ServiceDemand,
    Size,
    service_demand,
)
from dovetail.physics.sharing.turns import GrowingStages, InterleaveRule
from dovetail.physics.speed.throughput import across_islands, fewest_steps, speed_relative, spread
from dovetail.physics.zoo.models import Catalogue
from dovetail.physics.zoo.profile import ModelProfile


class JobModels:
    """The tables that the five parts share.

    By job: `gpus` (requested), `profile` (None without a model), `kind`. By kind: `batch` (global,
    0 without a model), `goodput`, `stages`, and in `pipelines` the graph.
    """

    def __init__(
        self,
        jobs: JobTable,
        cluster: Cluster,
        catalogue: Catalogue,
        interleaving: InterleaveRule,
        *,
        by_count: bool,
    ) -> None:
        self.jobs, self.by_count = jobs, by_count
        self._find = catalogue.find
        self.gpus_per_node = max(g.gpus_per_node for g in cluster.groups)
        self.gpus: list[int] = []
        self.profile: list[ModelProfile | None] = []
        self._islands = Islands.of(cluster)
        self._island_speedup = cluster.island_speedup
        self._mixed = len({g.gpu_type for g in cluster.groups}) > 1
        self.kinds = Kinds(self._keys(jobs, 0))
        self.kind = self.kinds.numbers
        self.batch: list[float] = []
        self._demands: dict[tuple[int, int, int, int, int], ServiceDemand] = {}
        self.goodput: list[goodput.BatchKind | None] = []
        self.pipelines = Pipelines(cluster)
        self.stages = GrowingStages(interleaving)
        self._take(jobs)
        self._add_kinds(jobs, range(len(self.kinds)))

    def admit(self, jobs: JobTable) -> None:
        """Adds the rows appended to the job table."""
        keys = self._keys(jobs, len(self.gpus))
        self._take(jobs)
        self._add_kinds(jobs, self.kinds.admit(keys))

    def is_pipeline(self, job: int) -> bool:
        """True if the job has a pipeline graph."""
        return bool(self.pipelines.graphs[self.kind[job]])

    def demand(
        self, job: int, gpus: int, steps: int = 1, *, nodes: int = 0, batch: int = 0
    ) -> ServiceDemand:
        """Returns the service demands of the job on so many GPUs, in so many steps.

        By default it is well placed, and its global batch is as requested.
        """
        key = (self.kind[job], gpus, steps, nodes, batch)
        demand = self._demands.get(key)
        if demand is None:
            demand, profile = UNKNOWN_DEMAND, self.profile[job]
            if profile is not None:
                spans = spread(gpus, nodes or self.well_placed_nodes(job, gpus))
                per_gpu = (batch or self.batch[self.kind[job]]) / gpus
                demand = service_demand(profile, Size(spans, per_gpu, steps))
            self._demands[key] = demand
        return demand

    def placed_demand(self, job: int, placement: Placement) -> ServiceDemand:
        """Returns the service demands of the job as placed."""
        nodes = 0 if self.by_count else placement.nodes
        return self.demand(
            job,
            placement.gpus,
            placement.accumulation_steps,
            nodes=nodes,
            batch=placement.batch_size,
        )

    def well_placed_nodes(self, job: int, gpus: int) -> int:
        """Returns the fewest nodes that have so many GPUs."""
        return ceil(gpus / self._node_size(self.profile[job]))

    def relative_to(self, job: int, gpus: int, nodes: int, steps: int = 1) -> float:
        """Returns the speed of a job with a model on so many GPUs of so many nodes."""
        profile = self.profile[job]
        assert profile is not None
        batch = self.batch[self.kind[job]]
        return speed_relative(
            profile,
            gpus=gpus,
            nodes_used=nodes,
            requested_gpus=self.gpus[job],
            gpus_per_node=self._node_size(profile),
            global_batch=batch,
            # With one step the fewest steps of the profile apply.
            accumulation_steps=max(steps, fewest_steps(profile, batch / gpus)) if steps > 1 else 0,
        )

    def relative(self, job: int, placement: Placement, done_s: float) -> float:
        """Returns the speed of a job with a model as placed, each worker on a GPU to itself."""
        speed = self._on_nodes(job, placement, done_s)
        if (
            self._islands is None
            or self.by_count
            or not self._islands.crossed_needlessly(placement)
        ):
            return speed
        profile, gpus = self.profile[job], placement.gpus
        assert profile is not None
        per_gpu = (placement.batch_size or self.batch[self.kind[job]]) / gpus
        return speed / across_islands(
            profile,
            gpus=gpus,
            batch_per_gpu=per_gpu,
            accumulation_steps=max(placement.accumulation_steps, fewest_steps(profile, per_gpu)),
            speedup=self._island_speedup,
        )

    def _on_nodes(self, job: int, placement: Placement, done_s: float) -> float:
        """Returns the speed of a job on its nodes, each an island."""
        gpus, steps = placement.gpus, placement.accumulation_steps
        nodes = self.well_placed_nodes(job, gpus) if self.by_count else placement.nodes
        if placement.batch_size:
            kind = self.goodput[self.kind[job]]
            assert kind is not None
            return goodput.relative_speed(
                kind, done_s, gpus=gpus, nodes=nodes, batch=placement.batch_size, steps=steps
            )
        if (
            not self.by_count
            and steps == 1
            and gpus == self.gpus[job]
            and nodes == ceil(gpus / self.gpus_per_node)
        ):
            return 1.0
        return self.relative_to(job, gpus, nodes, steps)

    def _keys(self, jobs: JobTable, first: int) -> Ints:
        """Returns the keys of kinds, from one job on: model, GPUs, batch, graph, type of GPU.

        The type tells where a run time was measured, which matters only where types differ.
        """
        rows = slice(first, None)
        labels = [jobs.model.codes[rows], jobs.graph_code[rows]]
        labels += [jobs.gpu_type.codes[rows]] if self._mixed else []
        model, *others = (codes.astype(np.int64) for codes in labels)
        return np.stack([model, jobs.gpus[rows], jobs.batch_size[rows], *others])

    def _node_size(self, profile: ModelProfile | None) -> int:
        if self.by_count:
            assert profile is not None
            return profile.gpus_per_node.value
        return self.gpus_per_node

    def _take(self, jobs: JobTable) -> None:
        """Reads the request and finds the profile of each new job."""
        known = len(self.gpus)
        self.gpus.extend(jobs.gpus[known:].tolist())
        names, codes = jobs.model.names, jobs.model.codes[known:].tolist()
        profiles = {c: self._find(names[c]) if c >= 0 else None for c in dict.fromkeys(codes)}
        self.profile.extend(profiles[c] for c in codes)

    def _add_kinds(self, jobs: JobTable, kinds: range) -> None:
        if not kinds:
            return
        examples = [self.kinds.example[kind] for kind in kinds]
        profiles = [self.profile[job] for job in examples]
        self.batch.extend(self._global_batch(j, int(jobs.batch_size[j])) for j in examples)
        self.goodput.extend(self._goodput_of(kind) for kind in kinds)
        self.stages.admit([self.demand(job, self.gpus[job]) for job in examples])
        self.pipelines.admit(jobs, examples, profiles)

    def _global_batch(self, job: int, requested_batch: int) -> float:
        """Returns the samples of one iteration as requested; 0 without a profile."""
        profile = self.profile[job]
        if profile is None:
            return 0.0
        requested, batch = self.gpus[job], profile.batch.value
        if requested_batch:
            return float(requested_batch * (requested if batch.per_gpu else 1))
        return batch.on_each_of(requested) * requested

    def _goodput_of(self, kind: int) -> goodput.BatchKind | None:
        job = self.kinds.example[kind]
        profile = self.profile[job]
        if profile is None:
            return None
        size = self._node_size(profile)
        return goodput.BatchKind(profile, self.gpus[job], self.batch[kind], size, self.by_count)


class ModelStructure:
    """The structure of jobs by their models; jobs without one scale linearly."""

    def __init__(self, models: JobModels, linear: LinearStructure) -> None:
        self._models, self._linear = models, linear

    def admit(self, jobs: JobTable) -> None:
        """Adds the rows appended to the job table."""
        self._linear.admit(jobs)
        self._models.admit(jobs)

    @property
    def kind_of(self) -> Ints:
        """Returns the kind of each job: model, requested GPUs, batch and graph decide."""
        return self._models.kinds.of

    def graph(self, job: int) -> tuple[PipelineStage, ...]:
        """Returns the graph of the trace, or of the planner if it knows the model; else ()."""
        return self._models.pipelines.graphs[self._models.kind[job]]

    def scale(self, job: int) -> float:
        """Returns the throughput on the requested GPUs over that on one."""
        models = self._models
        if models.is_pipeline(job):
            return 1.0 / models.pipelines.rate(models.kind[job], 1)
        if models.profile[job] is None:
            return self._linear.scale(job)
        return 1.0 / models.relative_to(job, 1, 1)
