"""The kinds of jobs, their pipeline graphs, and how much faster they are than on one GPU."""

from __future__ import annotations

from dovetail.core.job import Ints, JobTable, PipelineStage
from dovetail.physics.linear import LinearStructure
from dovetail.physics.modelled.job_models import JobModels


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
