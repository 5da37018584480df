"""A small profile with round numbers, for scenes."""

from dataclasses import replace
from typing import Any, TypeVar

from dovetail.physics.memory import MemoryLaw
from dovetail.physics.speed.compute import Compute
from dovetail.physics.speed.network import Network, RingLink
from dovetail.physics.zoo.profile import Batch, Curve, ModelProfile, StageTimes
from dovetail.physics.zoo.provenance import Provenance, Sourced

T = TypeVar("T")


def assumed(value: T) -> Sourced[T]:
    return Sourced(value, Provenance.ASSUMED, "made up")


def a_model(**changes: Any) -> ModelProfile:
    """Computes 10 ms and 1 ms a sample; 100 MB of gradients at 10 GB/s in a node, 1 outside."""
    plain = ModelProfile(
        name="plain",
        family="scene",
        title="A plain model",
        aliases=("Plain64",),
        gpu_type=assumed("v100"),
        gpus_per_node=assumed(4),
        batch=assumed(Batch(64, per_gpu=False, max_per_gpu=64)),
        max_gpus=assumed(16),
        parameters=assumed(25e6),
        gradient_bytes=assumed(1e8),
        compute=(("v100", assumed(Compute(0.01, 0.001))),),
        overlap=assumed(1.0),
        network=assumed(Network(RingLink(0.0, 1e10), RingLink(0.0, 1e9))),
        memory=assumed(MemoryLaw(1e9, 1e7)),
    )
    return replace(plain, **changes)


def stages() -> Sourced[tuple[StageTimes, ...]]:
    rows = (StageTimes(1, 0.5, 0.0, 0.1, 0.0), StageTimes(4, 0.6, 0.0, 0.1, 0.2))
    return assumed(rows)


def curve(*times: float) -> Sourced[Curve]:
    """A curve at 1, 2, 4 ... GPUs."""
    return assumed(Curve(tuple(1 << i for i in range(len(times))), times))
