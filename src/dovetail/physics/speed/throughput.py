"""How fast a model of the zoo trains under a placement: single times, and dense tables.

Equation (7) with the profile's parameters gives the shape over batch, placement and device.
Where the profile has a measured curve, the times of equation (7) are scaled to pass through it, so
that a well placed job at its default batch is exactly as measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from dovetail.core.job import Floats
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.physics.speed import compute
from dovetail.physics.zoo.device import time_factor
from dovetail.physics.zoo.profile import ModelProfile


def iteration_s(
    profile: ModelProfile,
    *,
    gpus: int,
    spans: Sequence[int] = (),
    batch_per_gpu: float = 0.0,
    accumulation_steps: int = 0,
    gpu_type: str = "",
) -> float:
    """Returns the seconds of one iteration of a job alone on its GPUs.

    `spans` is GPUs per node (default: well placed), `batch_per_gpu` the samples each GPU adds
    to an iteration (default: the profile's), `accumulation_steps` the micro-batches it is cut
    into (default: the fewest whose size the source ran), `gpu_type` the slowest device in use
    (default: the reference). The network is that of the source.
    """
    placed = tuple(spans) or profile.well_placed(gpus)
    if gpus < 1 or sum(placed) != gpus or min(placed) < 1:
        raise ValueError(f"{gpus} GPUs cannot lie as {placed} GPUs per node")
    batch = batch_per_gpu or profile.batch.value.on_each_of(gpus)
    steps = accumulation_steps or fewest_steps(profile, batch)
    modelled_s = _modelled_s(profile, placed, batch, steps, gpu_type)
    return modelled_s * correction(profile, gpus)


def fewest_steps(profile: ModelProfile, batch_per_gpu: float) -> int:
    """Returns the fewest accumulation steps that keep micro-batches at sizes the source ran."""
    return max(1, math.ceil(batch_per_gpu / profile.batch.value.max_per_gpu - RELATIVE_TOLERANCE))


@lru_cache(maxsize=1024)
def throughput_table(
    profile: ModelProfile, max_gpus: int, *, gpus_per_node: int = 0, gpu_type: str = ""
) -> Floats:
    """Returns work per second by GPU count, 0 at 0, well placed, flat beyond the useful most.

    The unit of work is one iteration at the default batch; under weak scaling an iteration on
    n GPUs is n such units. The array is shared and cannot be written.
    """
    batch, per_node = profile.batch.value, gpus_per_node or profile.gpus_per_node.value
    useful = min(max_gpus, profile.max_gpus.value)
    rates = [
        batch.work(n)
        / iteration_s(profile, gpus=n, spans=spread(n, math.ceil(n / per_node)), gpu_type=gpu_type)
        for n in range(1, useful + 1)
    ]
    table = np.array([0.0, *rates, *rates[-1:] * (max_gpus - useful)])
    table.setflags(write=False)
    return table


def speed_relative(
    profile: ModelProfile,
    *,
    gpus: int,
    nodes_used: int,
    requested_gpus: int,
    gpus_per_node: int,
    global_batch: float = 0.0,
    accumulation_steps: int = 0,
) -> float:
    """Returns `t_iter(requested, well placed) / t_iter(actual)` for the same global batch.

    1 when a job has the GPUs it requested, on as few nodes as possible. `accumulation_steps` are
    those of the actual placement; 0 stands for the fewest, as in `iteration_s`.
    """
    batch = global_batch or profile.batch.value.on_each_of(requested_gpus) * requested_gpus
    return _relative(
        profile, gpus, nodes_used, requested_gpus, gpus_per_node, batch, accumulation_steps
    )


def stretched(
    profile: ModelProfile,
    *,
    gpus: int,
    nodes_used: int,
    batch_per_gpu: float,
    accumulation_steps: int,
    factor: float,
) -> float:
    """Returns an iteration whose computing takes `factor` times as long over the plain one."""
    spans = spread(gpus, nodes_used)
    comm_s = profile.network.value.comm_s(spans, profile.gradient_bytes.value)
    computing = profile.compute[0][1].value
    before_s, after_s = (
        compute.iteration_s(
            computing.scaled(scale),
            batch=batch_per_gpu,
            steps=accumulation_steps,
            comm_s=comm_s,
            overlap=profile.overlap.value,
        )
        for scale in (1.0, factor)
    )
    return after_s / before_s


@lru_cache(maxsize=4096)
def across_islands(
    profile: ModelProfile,
    *,
    gpus: int,
    batch_per_gpu: float,
    accumulation_steps: int,
    speedup: float,
) -> float:
    """Returns an iteration across the islands of a node over one inside an island.

    The ring inside a node, as the profile has it, counts as that of an island; across islands it
    has the bandwidth over `speedup`.
    """
    gradient_bytes, ring = profile.gradient_bytes.value, profile.network.value.within
    slower = replace(ring, bandwidth_bytes_per_s=ring.bandwidth_bytes_per_s / speedup)
    inside_s, across_s = (
        compute.iteration_s(
            profile.compute[0][1].value,
            batch=batch_per_gpu,
            steps=accumulation_steps,
            comm_s=one.all_reduce_s(gpus, gradient_bytes),
            overlap=profile.overlap.value,
        )
        for one in (ring, slower)
    )
    return across_s / inside_s


def footprint_bytes(
    profile: ModelProfile, *, gpus: int, batch_per_gpu: float = 0.0, accumulation_steps: int = 0
) -> float:
    """Returns the bytes of a job on each of its GPUs, with the defaults of `iteration_s`."""
    batch = batch_per_gpu or profile.batch.value.on_each_of(gpus)
    steps = accumulation_steps or fewest_steps(profile, batch)
    return profile.memory.value.used_bytes(math.ceil(batch / steps))


@lru_cache(maxsize=65536)
def _relative(
    profile: ModelProfile,
    gpus: int,
    nodes: int,
    requested: int,
    per_node: int,
    batch: float,
    steps: int,
) -> float:
    wanted_s = iteration_s(
        profile,
        gpus=requested,
        spans=spread(requested, math.ceil(requested / per_node)),
        batch_per_gpu=batch / requested,
    )
    actual_s = iteration_s(
        profile,
        gpus=gpus,
        spans=spread(gpus, nodes),
        batch_per_gpu=batch / gpus,
        accumulation_steps=steps,
    )
    return wanted_s / actual_s


def spread(gpus: int, nodes: int) -> tuple[int, ...]:
    """Returns GPUs per node of `gpus` spread as evenly as can be over `nodes`."""
    if not 1 <= nodes <= gpus:
        raise ValueError(f"{gpus} GPUs cannot lie on {nodes} nodes")
    least, more = divmod(gpus, nodes)
    return (least + 1,) * more + (least,) * (nodes - more)


def _modelled_s(
    profile: ModelProfile, spans: Sequence[int], batch: float, steps: int, gpu_type: str = ""
) -> float:
    return compute.iteration_s(
        _compute_on(profile, gpu_type),
        batch=batch,
        steps=steps,
        comm_s=profile.network.value.comm_s(spans, profile.gradient_bytes.value),
        overlap=profile.overlap.value,
    )


def _compute_on(profile: ModelProfile, gpu_type: str) -> compute.Compute:
    reference = profile.compute[0][1].value
    if not gpu_type or gpu_type == profile.gpu_type.value:
        return reference
    for known, parameters in profile.compute:
        if known == gpu_type:
            return parameters.value
    return reference.scaled(time_factor(profile.gpu_type.value, gpu_type))


@lru_cache(maxsize=65536)
def correction(profile: ModelProfile, gpus: int) -> float:
    """Returns measured / modelled seconds at a GPU count, 1 where nothing was measured."""
    if profile.curve is None:
        return 1.0
    curve, batch = profile.curve.value, profile.batch.value
    count = min(gpus, curve.gpus[-1])
    rates = [batch.work(n) / t for n, t in zip(curve.gpus, curve.iteration_s, strict=True)]
    measured_s = batch.work(count) / float(np.interp(count, curve.gpus, rates))
    per_gpu = batch.on_each_of(count)
    steps = fewest_steps(profile, per_gpu)
    return measured_s / _modelled_s(profile, profile.well_placed(count), per_gpu, steps)
