"""A job whose workers differ in speed: their limits and neighbours, and the cost of stragglers.

All workers wait for the slowest (ALGORITHMS section 0). What slows a worker is its limit, its own
neighbour, its device; what it has to do are its samples. A forward pass takes a third of the
computing and the backward pass the rest, in proportion: forward times show all there is to see.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dovetail.core.beliefs import Neighbour, WorkerTime
from dovetail.core.placement import Placement
from dovetail.physics.sharing.limits import alone_slowdown, shared_slowdown
from dovetail.physics.speed.throughput import correction, fewest_steps, stretched
from dovetail.physics.zoo.profile import ModelProfile

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


def split_slowdown(
    profile: ModelProfile,
    placement: Placement,
    slow: Sequence[float],
    *,
    batch: float,
    nodes: int,
) -> float:
    """Returns the iteration with its samples over that of an even job alone and whole.

    `batch` is that of the job as requested. The exchange is as slow as the slowest worker makes
    it, whatever the samples.
    """
    compute, steps = profile.compute[0][1].value, _steps(profile, placement, batch)
    per_gpu = (placement.batch_size or batch) / placement.gpus
    fixed_s = steps * compute.a_s
    fixed_share = fixed_s / (fixed_s + compute.b_s_per_sample * per_gpu)
    slowest = max(slow)
    return slowest * stretched(
        profile,
        gpus=placement.gpus,
        nodes_used=nodes,
        batch_per_gpu=per_gpu,
        accumulation_steps=steps,
        factor=straggling(slow, placement.samples, fixed_share) / slowest,
    )


def forward_times(
    profile: ModelProfile, placement: Placement, slow: Sequence[float], batch: float
) -> tuple[WorkerTime, ...]:
    """Returns the forward times of workers that are so many times slower than alone and whole."""
    compute, steps = profile.compute[0][1].value, _steps(profile, placement, batch)
    scale = FORWARD_SHARE * correction(profile, placement.gpus)
    fixed_s, per_sample_s = scale * steps * compute.a_s, scale * compute.b_s_per_sample
    return tuple(WorkerTime(s * fixed_s, s * per_sample_s) for s in slow)


def _steps(profile: ModelProfile, placement: Placement, batch: float) -> int:
    per_gpu = (placement.batch_size or batch) / placement.gpus
    return max(placement.accumulation_steps, fewest_steps(profile, per_gpu))
