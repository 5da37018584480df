"""Jobs whose speed by GPU count is written down in a test."""

from collections.abc import Sequence

import numpy as np

from dovetail.core.beliefs import Neighbour
from dovetail.core.job import Floats, Ints, JobTable
from dovetail.core.placement import Placement
from dovetail.physics.linear import LinearPhysics


class CurvedPhysics(LinearPhysics):
    """Job i runs at `curves[i][n - 1]` on n GPUs, flat beyond; relative to its request."""

    def __init__(self, jobs: JobTable, curves: Sequence[Sequence[float]], **more: object) -> None:
        super().__init__(jobs, **more)  # type: ignore[arg-type]
        object.__setattr__(self, "_curves", [list(curve) for curve in curves])

    @property
    def kind_of(self) -> Ints:
        return np.arange(len(self.jobs), dtype=np.int64)

    def _relative(self, job: int, gpus: int) -> float:
        curve: list[float] = self._curves[job]  # type: ignore[attr-defined]
        asked = curve[min(int(self.jobs.gpus[job]), len(curve)) - 1]
        return curve[min(gpus, len(curve)) - 1] / asked

    def scale(self, job: int) -> float:
        return 1.0 / self._relative(job, 1)

    def speed(
        self,
        job: int,
        placement: Placement,
        neighbours: Sequence[Neighbour],
        done_s: float = 0.0,
    ) -> float:
        alone = self._relative(job, placement.gpus)
        shared = super().speed(job, placement, neighbours)
        return alone * shared / super().speed(job, placement, ())

    def rates(self, max_gpus: int) -> Floats:
        rows = [
            [0.0, *(self._relative(job, n) for n in range(1, max_gpus + 1))]
            for job in range(len(self.jobs))
        ]
        return np.array(rows)
