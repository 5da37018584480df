"""The batches of jobs with a model, and the cost of cutting or splitting them."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.core.beliefs import Neighbour, WorkerTime
from dovetail.core.placement import Placement
from dovetail.core.units import NEVER_S
from dovetail.physics.batches import goodput
from dovetail.physics.linear import LinearBatches
from dovetail.physics.modelled.job_models import JobModels
from dovetail.physics.modelled.sharing import WorkerSlowdowns
from dovetail.physics.sharing.worker_slowdowns import forward_times


class ModelBatches:
    """The batches of jobs by their models."""

    def __init__(
        self, models: JobModels, linear: LinearBatches, slowdowns: WorkerSlowdowns
    ) -> None:
        self._models, self._linear, self._slowdowns = models, linear, slowdowns
        self._accumulated: dict[tuple[int, int, int], float] = {}

    def samples(self, job: int) -> int:
        """Returns the samples of an iteration as requested; 0 if unknown, or for a pipeline."""
        models = self._models
        if models.is_pipeline(job):
            return 0
        if models.profile[job] is None:
            return self._linear.samples(job)
        return round(models.batch[models.kind[job]])

    def most_steps(self, job: int) -> int:
        """Returns the most accumulation steps of the job on its requested GPUs."""
        models = self._models
        if models.profile[job] is None:
            return 1
        return max(1, int(models.batch[models.kind[job]] / models.gpus[job]))

    def accumulated(self, job: int, steps: int, gpus: int = 0) -> float:
        """Returns the speed alone with so many accumulation steps, over that in one."""
        models = self._models
        gpus = gpus or models.gpus[job]
        key = (models.kind[job], steps, gpus)
        speed = self._accumulated.get(key)
        if speed is None:
            speed = 1.0
            if models.profile[job] is not None and steps > 1:
                nodes = models.well_placed_nodes(job, gpus)
                cut, whole = (models.relative_to(job, gpus, nodes, s) for s in (steps, 1))
                speed = cut if gpus == models.gpus[job] else cut / whole
            self._accumulated[key] = speed
        return speed

    def phase_end_s(self, job: int, done_s: float) -> float:
        """Returns the progress at which the model's noise scale changes next, or inf."""
        kind = self._models.goodput[self._models.kind[job]]
        return NEVER_S if kind is None else goodput.phase_end_s(kind, done_s)

    def workers(
        self, job: int, placement: Placement, neighbours: Sequence[Neighbour]
    ) -> tuple[WorkerTime, ...]:
        """Returns the forward times of the workers as placed."""
        models, slow = self._models, self._slowdowns.of_workers(job, placement, neighbours)
        profile = models.profile[job]
        if models.is_pipeline(job):
            return tuple(WorkerTime(one, 0.0) for one in slow)
        if profile is None:
            return self._linear.workers_at(job, placement, slow)
        return forward_times(profile, placement, slow, models.batch[models.kind[job]])
