"""The physics of jobs without a model: speed in proportion to GPUs, whatever the placement.

Sharing slows both sides by one injected interference ratio; an interleave set runs at one
injected ratio of cycle time to solo iteration time. Measured ratios belong to models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.core.beliefs import Neighbour
from dovetail.core.job import JobTable
from dovetail.core.placement import Placement


@dataclass(frozen=True)
class LinearPhysics:
    """Linear scaling; `interference` is the shared over alone iteration time, at least 1."""

    jobs: JobTable
    interference: float = 1.0
    cycle_ratio: float = 1.0

    def __post_init__(self) -> None:
        if self.interference < 1 or self.cycle_ratio < 1:
            raise ValueError("interference and cycle ratios are at least 1")
        object.__setattr__(self, "_gpus", self.jobs.gpus.tolist())

    def speed(self, job: int, placement: Placement, neighbours: Sequence[Neighbour]) -> float:
        """Returns solo seconds of progress per second."""
        requested: list[int] = self._gpus  # type: ignore[attr-defined]
        gpus = placement.gpus
        alone = 1.0 if gpus == requested[job] else gpus / requested[job]
        if not neighbours:
            return alone
        if placement.interleave is not None:
            return alone / self.cycle_ratio
        return alone / self.interference

    def scale(self, job: int) -> float:
        """Returns the throughput on the requested GPUs over that on one."""
        requested: list[int] = self._gpus  # type: ignore[attr-defined]
        return float(requested[job])

    def fits_memory(self, occupants: Sequence[Neighbour], gpu_memory_bytes: float) -> bool:
        """Tells that jobs of unknown footprint fit."""
        return True
