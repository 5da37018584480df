"""How fast jobs with a model run alone, where they are placed.

A job without a model scales linearly; a pipeline runs as its stages meet on the links.
"""

from __future__ import annotations

import numpy as np

from dovetail.core.beliefs import Batches, BestBatches
from dovetail.core.job import Floats
from dovetail.core.placement import Placement
from dovetail.physics.batches import goodput
from dovetail.physics.linear import LinearSpeed
from dovetail.physics.modelled.job_models import JobModels
from dovetail.physics.speed.rate_tables import RateTables


class ModelSpeed:
    """Speeds from model profiles."""

    def __init__(self, models: JobModels, linear: LinearSpeed, batches: Batches) -> None:
        self._models, self._linear, self._batches = models, linear, batches
        self._rates = RateTables(self._row)

    def whole(self, job: int, placement: Placement, done_s: float = 0.0) -> float:
        """Returns the speed as placed, each worker on a GPU to itself."""
        models = self._models
        if models.is_pipeline(job):
            return self._pipelined(job, placement)
        if models.profile[job] is None:
            return self._linear.whole(job, placement)
        return models.relative(job, placement, done_s)

    def rates(self, max_gpus: int) -> Floats:
        """Returns the speed of each kind on 0 to `max_gpus` GPUs, well placed."""
        return self._rates.upto(max_gpus, len(self._models.kinds))

    def best_batches(self, job: int, done_s: float, max_gpus: int) -> BestBatches:
        """Returns the best batches of a job at this progress; a pipeline keeps its own."""
        models = self._models
        number = models.kind[job]
        if models.is_pipeline(job):
            return models.pipelines.best_batches(number, max_gpus)
        kind = models.goodput[number]
        if kind is None:
            return self._linear.best_batches(job, done_s, max_gpus)
        return goodput.best_batches(kind, done_s, max_gpus)

    def top(self, job: int, gpus: int) -> float:
        """Returns the speed well placed; of a pipeline, the most that its slowest stage allows."""
        models = self._models
        if models.is_pipeline(job) and not models.by_count:
            return models.pipelines.top_speed(models.kind[job], gpus)
        return self.whole(job, Placement(((0, gpus),)))

    def spread(self, job: int) -> float:
        """Returns the speed with each worker, or replica of a stage, on a node of its own."""
        models = self._models
        if models.is_pipeline(job) and not models.by_count:
            return models.pipelines.spread_speed(models.kind[job])
        if models.profile[job] is None or models.by_count:
            return 1.0
        return models.relative_to(job, models.gpus[job], models.gpus[job])

    def _row(self, kind: int, max_gpus: int) -> Floats:
        models, counts = self._models, range(1, max_gpus + 1)
        job = models.kinds.example[kind]
        if models.is_pipeline(job):
            return np.array([0.0, *(models.pipelines.rate(kind, n) for n in counts)])
        if models.profile[job] is None:
            return np.arange(max_gpus + 1) / models.gpus[job]
        alone = (models.relative_to(job, n, models.well_placed_nodes(job, n)) for n in counts)
        return np.array([0.0, *alone])

    def _pipelined(self, job: int, placement: Placement) -> float:
        """Returns the speed of a pipeline; accumulation costs as much as well placed."""
        models = self._models
        kind = models.kind[job]
        if models.by_count:
            alone = models.pipelines.rate(kind, placement.gpus)
        else:
            alone = models.pipelines.speed(kind, placement.spans)
        if placement.accumulation_steps == 1:
            return alone
        return alone * self._batches.accumulated(job, placement.accumulation_steps)
