"""Jobs of which no two fit together into the memory of a GPU."""

from collections.abc import Sequence
from dataclasses import replace

from dovetail.core.beliefs import Neighbour, Physics
from dovetail.core.job import JobTable
from dovetail.physics.linear import UnknownMemory, linear_physics
from dovetail.physics.sharing.interference import Interference


class OneJobPerGpu(UnknownMemory):
    """Only a job alone fits."""

    def fits(self, occupants: Sequence[Neighbour], gpu_memory_bytes: float) -> bool:
        return len(occupants) < 2


def tight_physics(jobs: JobTable, interference: Interference | None = None) -> Physics:
    """Returns linear physics in which no two jobs share a GPU."""
    return replace(linear_physics(jobs, interference), memory=OneJobPerGpu())
