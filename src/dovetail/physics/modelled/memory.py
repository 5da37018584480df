"""The memory of jobs with a model on each of their GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.core.beliefs import Neighbour
from dovetail.core.placement import Placement
from dovetail.physics.memory import fit_together
from dovetail.physics.modelled.job_models import JobModels
from dovetail.physics.speed.throughput import fewest_steps, footprint_bytes


class ModelMemory:
    """The memory of jobs by their models; a job without a model counts as holding nothing."""

    def __init__(self, models: JobModels) -> None:
        # NOTE: read hundreds of thousands of times in a run with sharing; the lists grow in place.
        self._kind, self._profile, self._batch = models.kind, models.profile, models.batch
        self._gpus, self._staged_bytes = models.gpus, models.pipelines.held_bytes

    def footprint_bytes(self, job: int, steps: int) -> float:
        """Returns the bytes of the job on each of its requested GPUs."""
        return self._used_bytes(job, self._gpus[job], steps)

    def held_bytes(self, job: int, placement: Placement) -> float:
        """Returns the bytes of the worker with the most samples, as placed."""
        most = max(placement.samples, default=0)
        return self._used_bytes(job, placement.gpus, placement.accumulation_steps, most)

    def fixed_bytes(self, job: int) -> float:
        """Returns weights, gradients and optimiser state."""
        staged = self._staged_bytes(self._kind[job], self._gpus[job], 1)
        if staged:
            return staged[0]
        profile = self._profile[job]
        return 0.0 if profile is None else profile.memory.value.fixed_bytes

    def fits(self, occupants: Sequence[Neighbour], gpu_memory_bytes: float) -> bool:
        """True if the jobs whose footprints are known fit together."""
        return fit_together(self, occupants, gpu_memory_bytes)

    def _used_bytes(self, job: int, gpus: int, steps: int, most: int = 0) -> float:
        kind = self._kind[job]
        staged = self._staged_bytes(kind, gpus, steps)
        if staged:
            return staged[1]
        profile = self._profile[job]
        if profile is None:
            return 0.0
        per_gpu = self._batch[kind] / gpus
        steps = max(steps, fewest_steps(profile, per_gpu))
        per_gpu = most or per_gpu
        return footprint_bytes(profile, gpus=gpus, batch_per_gpu=per_gpu, accumulation_steps=steps)
