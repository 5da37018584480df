"""What a job asks of storage, CPU, GPU and network at the size it has now.

The *service demand* on a resource is the time that an iteration alone keeps it busy. All four ways
of using a GPU together start from it: free competition, turns, limits and moved samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from dovetail.physics.speed.throughput import correction, fewest_steps, iteration_s
from dovetail.physics.zoo.profile import ModelProfile, StageTimes

RESOURCES = 4
GPU = 2
"""The place of the GPU among storage, CPU, GPU and network."""
Shares = tuple[float, float, float, float]


class Size(NamedTuple):
    """How large a job is: GPUs per node, samples of an iteration on each GPU, micro-batches."""

    spans: tuple[int, ...]
    batch_per_gpu: float
    steps: int

    @property
    def gpus(self) -> int:
        """Returns the GPUs of all nodes."""
        return sum(self.spans)


@dataclass(frozen=True, slots=True, eq=False)
class ServiceDemand:
    """The demands of a model, None where it is not known, at a size.

    `stage_s` has the seconds of an iteration by resource, `iteration_s` those of the whole one
    alone; both are 0 where they are not known. `load` is the part of a micro-batch's computing
    that grows with its samples over the part that does not.

    NOTE: each is equal to itself alone, so that tables by demand are read without hashing a
    profile.
    """

    model: ModelProfile | None
    micro_batch: float
    load: float
    stage_s: Shares
    iteration_s: float

    @property
    def shares(self) -> Shares:
        """Returns the stages as shares of the iteration; a prefetched one is at most all of it."""
        storage, cpu, gpu, network = (min(1.0, s / self.iteration_s) for s in self.stage_s)
        return storage, cpu, gpu, network


UNKNOWN_DEMAND = ServiceDemand(None, 1.0, 1.0, (0.0, 0.0, 0.0, 0.0), 0.0)


@lru_cache(maxsize=65536)
def service_demand(profile: ModelProfile, size: Size) -> ServiceDemand:
    """Returns the demands of a model at a size; of the GPU alone where no stages are known."""
    steps = max(size.steps, fewest_steps(profile, size.batch_per_gpu))
    whole_s = iteration_s(
        profile,
        gpus=size.gpus,
        spans=size.spans,
        batch_per_gpu=size.batch_per_gpu,
        accumulation_steps=steps,
    )
    micro_batch = size.batch_per_gpu / steps
    stage_s = _stage_s(profile, size._replace(steps=steps))
    return ServiceDemand(profile, micro_batch, load(profile, micro_batch), stage_s, whole_s)


def on_one_gpu(profile: ModelProfile | None, micro_batch: float) -> ServiceDemand:
    """Returns the demands of a model on one GPU, at a batch that is its micro-batch."""
    if profile is None:
        return UNKNOWN_DEMAND
    return service_demand(profile, Size((1,), float(micro_batch), 1))


def well_placed_demand(profile: ModelProfile, gpus: int) -> ServiceDemand:
    """Returns the demands of a model at its own batch, on nodes as large as its source's."""
    batch = profile.batch.value.on_each_of(gpus)
    return service_demand(profile, Size(profile.well_placed(gpus), batch, 1))


def load(profile: ModelProfile, micro_batch: float) -> float:
    """Returns the part of a micro-batch's computing time that grows with it over the rest."""
    compute = profile.compute[0][1].value
    growing_s = compute.b_s_per_sample * micro_batch
    return growing_s / compute.a_s if compute.a_s > 0 else float("inf")


def _stage_s(profile: ModelProfile, size: Size) -> Shares:
    """Returns the seconds by resource: those of the profile at these GPUs, scaled to the size.

    Loading grows with the samples, computing as equation (3), the exchange as equation (4).
    """
    gpus, usual = size.gpus, profile.batch.value.on_each_of(size.gpus)
    computing_s = _computing_s(profile, size.batch_per_gpu, size.steps)
    comm_s = _comm_s(profile, size.spans)
    known = profile.stage_times(gpus)
    if known is None:
        scale = correction(profile, gpus)
        return 0.0, 0.0, scale * computing_s, scale * comm_s
    samples = size.batch_per_gpu / usual
    computing = computing_s / _computing_s(profile, usual, fewest_steps(profile, usual))
    return _scaled(known, samples, computing, _over_well_placed(profile, size, comm_s))


def _scaled(known: StageTimes, samples: float, computing: float, comm: float) -> Shares:
    return (
        known.storage_s * samples,
        known.cpu_s * samples,
        known.gpu_s * computing,
        known.network_s * comm,
    )


def _over_well_placed(profile: ModelProfile, size: Size, comm_s: float) -> float:
    well_s = _comm_s(profile, profile.well_placed(size.gpus))
    return comm_s / well_s if well_s > 0 else 1.0


def _comm_s(profile: ModelProfile, spans: Sequence[int]) -> float:
    return profile.network.value.comm_s(spans, profile.gradient_bytes.value)


def _computing_s(profile: ModelProfile, batch: float, steps: int) -> float:
    return steps * profile.compute[0][1].value.time_s(batch / steps)
