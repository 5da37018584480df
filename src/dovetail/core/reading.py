"""What a running job tells of itself that a belief can learn from."""

from __future__ import annotations

from typing import NamedTuple


class SpeedMeasurement(NamedTuple):
    """How a job trained for a while, in one manner, on the same GPUs beside the same neighbours.

    `rate` in samples a second over all its GPUs, `batch` the samples of an iteration and
    `iteration_s` its median length; `memory_bytes` the most a worker held; `stage_s` the seconds
    of an iteration on storage, CPU, GPU and network. 0 or empty where it was not measured.
    """

    rate: float
    batch: int = 0
    iteration_s: float = 0.0
    memory_bytes: int = 0
    stage_s: tuple[float, ...] = ()
