"""A job whose workers go at different speeds: who shares whose GPU, and what a straggler costs.

All workers wait for the slowest (ALGORITHMS section 0). What slows a worker is its limit, its own
neighbour, its device; what it has to do are its samples. A forward pass takes a third of the
computing and the backward pass the rest, in proportion: forward times show all there is to see.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dovetail.core.beliefs import Neighbour, WorkerTime
from dovetail.core.placement import Placement
from dovetail.physics.limits import alone_slowdown, shared_slowdown

FORWARD_SHARE = 1 / 3
"""Of an iteration's computing; the gradients by inputs and by weights are a pass each."""


class Sharer(NamedTuple):
    """What a neighbour means for a job: its utilisation, and the ratio of free competition."""

    utilization: float
    ratio: float


def worker_slowdowns(
    placement: Placement,
    utilization: float,
    neighbours: Sequence[Neighbour],
    sharers: Sequence[Sharer],
) -> list[float]:
    """Returns iteration time over that alone and whole, of each worker in rank order."""
    limits = placement.fractions or (1.0,) * placement.gpus
    slow = [alone_slowdown(utilization, limit) for limit in limits]
    for (_, there), sharer in zip(neighbours, sharers, strict=True):
        for worker, other_limit in _met(placement, there):
            beside = shared_slowdown(utilization, limits[worker], sharer.utilization, other_limit,
                                     sharer.ratio)  # fmt: skip
            slow[worker] = max(slow[worker], beside)
    return slow


def _met(placement: Placement, there: Placement) -> list[tuple[int, float]]:
    """Returns the workers that meet a neighbour, and its limit on that GPU.

    Where one of the two does not name its GPUs, each worker meets the neighbour's largest limit.
    """
    limits = there.fractions or (1.0,) * there.gpus
    if not (placement.gpu_ids and there.gpu_ids):
        return [(worker, max(limits)) for worker in range(placement.gpus)]
    held = dict(zip(there.named(), limits, strict=True))
    return [(worker, held[gpu]) for worker, gpu in enumerate(placement.named()) if gpu in held]


def straggling(slow: Sequence[float], samples: Sequence[int], fixed_share: float) -> float:
    """Returns the slowest worker's computing time over that of an even worker alone and whole.

    `fixed_share` is the part of an even worker's computing that no sample adds to. No `samples`
    means even ones.
    """
    if not samples:
        return max(slow)
    even = sum(samples) / len(samples)
    growing = 1 - fixed_share
    return max(s * (fixed_share + growing * b / even) for s, b in zip(slow, samples, strict=True))


def forward_times(
    slow: Sequence[float], fixed_s: float, per_sample_s: float
) -> tuple[WorkerTime, ...]:
    """Returns the forward times of workers, given the computing of one alone and whole."""
    fixed_s, per_sample_s = FORWARD_SHARE * fixed_s, FORWARD_SHARE * per_sample_s
    return tuple(WorkerTime(s * fixed_s, s * per_sample_s) for s in slow)
