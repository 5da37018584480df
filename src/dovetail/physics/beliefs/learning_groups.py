"""Groups of jobs that learn from each other: those of one model and batch."""

from __future__ import annotations

import numpy as np

from dovetail.core.beliefs import Structure
from dovetail.core.job import Ints, JobTable
from dovetail.core.kinds import Kinds
from dovetail.physics.beliefs.measurements import MeasurementKey


class LearningGroups:
    """The group of each job, and its kind: one kind in the prior, and one group."""

    def __init__(self, prior: Structure, jobs: JobTable, paced: bool = False) -> None:
        self._prior, self._paced = prior, paced
        self.key_of: list[MeasurementKey] = []
        self.of_key: dict[MeasurementKey, list[int]] = {}
        self._number: dict[MeasurementKey, int] = {}
        self._kinds = Kinds(np.empty((2, 0), np.int64))
        self.admit(jobs)

    @property
    def kind_of(self) -> Ints:
        """Returns the kind of each job."""
        return self._kinds.of

    @property
    def example(self) -> list[int]:
        """Returns the first job of each kind."""
        return self._kinds.example

    def admit(self, jobs: JobTable) -> None:
        """Numbers the rows that were appended."""
        first = len(self.key_of)
        keys = [_key(jobs, job, self._paced) for job in range(first, len(jobs))]
        self.key_of.extend(keys)
        numbers = [self._number.setdefault(key, len(self._number)) for key in keys]
        of_prior = self._prior.kind_of[first : len(jobs)]
        for kind in self._kinds.admit(np.array([of_prior, numbers], np.int64)):
            self.of_key.setdefault(self.key_of[self.example[kind]], []).append(kind)


def _key(jobs: JobTable, job: int, paced: bool) -> MeasurementKey:
    """Returns the group of a job: by its model, else its recurrence, else of its own."""
    batch = int(jobs.batch_size[job])
    model, recurrence = jobs.model[job], jobs.recurrence[job]
    name = model or (f"~{recurrence}" if recurrence else "")
    if not name:
        return MeasurementKey(jobs.job_id[job], batch, own=True)
    return MeasurementKey(f"{name}@{int(jobs.gpus[job])}" if paced else name, batch)
