"""Jobs whose speed by GPU count is written down in a test."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dovetail.core.beliefs import Physics
from dovetail.core.job import Floats, Ints, JobTable
from dovetail.core.placement import Placement
from dovetail.physics.linear import LinearSpeed, LinearStructure, linear_physics
from dovetail.physics.sharing.interference import Interference


class CurvedSpeed(LinearSpeed):
    """Job i runs at `curves[i][n - 1]` on n GPUs, flat beyond; relative to its request."""

    def __init__(self, structure: LinearStructure, curves: Sequence[Sequence[float]]) -> None:
        super().__init__(structure)
        self.jobs = structure.jobs
        self._curves = [list(curve) for curve in curves]

    def relative(self, job: int, gpus: int) -> float:
        """Returns the speed on so many GPUs."""
        curve = self._curves[job]
        asked = curve[min(int(self.jobs.gpus[job]), len(curve)) - 1]
        return curve[min(gpus, len(curve)) - 1] / asked

    def whole(self, job: int, placement: Placement, done_s: float = 0.0) -> float:
        return self.relative(job, placement.gpus)

    def rates(self, max_gpus: int) -> Floats:
        rows = [
            [0.0, *(self.relative(job, n) for n in range(1, max_gpus + 1))]
            for job in range(len(self.jobs))
        ]
        return np.array(rows)


class CurvedStructure(LinearStructure):
    """No two jobs are alike, and the scale follows from the speeds."""

    speed: CurvedSpeed

    @property
    def kind_of(self) -> Ints:
        return np.arange(len(self.jobs), dtype=np.int64)

    def scale(self, job: int) -> float:
        return 1.0 / self.speed.relative(job, 1)


def with_speed(jobs: JobTable, speed: CurvedSpeed, structure: CurvedStructure,
               interference: Interference | None = None) -> Physics:  # fmt: skip
    """Returns linear physics with curves for speeds."""
    structure.speed = speed
    return replace(linear_physics(jobs, interference), speed=speed, structure=structure)


def curved_physics(
    jobs: JobTable,
    curves: Sequence[Sequence[float]],
    interference_of: Interference | None = None,
) -> Physics:
    """Returns the physics of jobs with those curves."""
    structure = CurvedStructure(jobs)
    return with_speed(jobs, CurvedSpeed(structure, curves), structure, interference_of)
