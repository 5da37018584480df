"""How two models slow each other on one GPU, from the times of each alone (SJF-BSBF eq. 5, 6).

The law has the shape of the measured pairs: the slowdown of a job is its own sensitivity
times its neighbour's pressure. Both follow from the *load* of a micro-batch, the time
that grows with the samples over the time that does not: where the fixed part is the launching
of kernels, it is how long a kernel runs over how long it takes to launch. A GPU that two
processes share takes turns between their kernels, so long ones press and short ones wait.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np

from dovetail.core.job import Floats
from dovetail.physics.sharing.pairs import PairRatio
from dovetail.physics.speed.throughput import iteration_s
from dovetail.physics.zoo.profile import ModelProfile
from dovetail.physics.zoo.profile_file import parse_profiles
from dovetail.physics.zoo.provenance import Provenance, Sourced, shipped_text

T = TypeVar("T")


class Sway(NamedTuple):
    """One side of a pair: its share of the GPU, its relief, and its pressure on others."""

    share: float
    relief: float
    pressure: float


NO_SWAY = Sway(0.0, 1.0, 0.0)


@dataclass(frozen=True, slots=True)
class Contention:
    """`xi = 1 + scale * g * G * Load^growth / (1 + relief * load)`, capitals for the neighbour.

    `g` is the share of an iteration in which the GPU works for the job. Loads above `heaviest`,
    the most that was measured, count as that.
    """

    scale: float
    growth: float
    relief: float
    heaviest: float

    def __post_init__(self) -> None:
        if not (min(self.scale, self.growth, self.relief) >= 0 and self.heaviest > 0):
            raise ValueError(f"the law of contention has no negative constants: {self}")

    def sway(self, load: float, share: float) -> Sway:
        """Returns the factors of one side, which do not depend on the other."""
        held = min(load, self.heaviest)
        return Sway(share, 1 + self.relief * held, share * float(held**self.growth))

    def between(self, mine: Sway, other: Sway) -> float:
        """Returns by how much the ratio of `mine` exceeds 1; it grows with the neighbour's load."""
        return self.scale * mine.share * other.pressure / mine.relief

    def between_all(self, mine: Sequence[Sway], others: Sequence[Sway]) -> Floats:
        """Returns `between` of each of `mine` beside each of `others`, to the last bit."""
        share, relief, _ = np.array(mine).reshape(-1, 3).T
        *_, pressure = np.array(others).reshape(-1, 3).T
        every: Floats = (self.scale * share)[:, None] * pressure / relief[:, None]
        return every


def load(profile: ModelProfile, micro_batch: float) -> float:
    """Returns the part of a micro-batch's computing time that grows with it over the rest."""
    compute = profile.compute[0][1].value
    growing_s = compute.b_s_per_sample * micro_batch
    return growing_s / compute.a_s if compute.a_s > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class MeasuredContention:
    """What is known of jobs that share: the law, models by the measured names, and the pairs."""

    law: Sourced[Contention]
    median_ratio: float
    shares: Mapping[str, Sourced[float]]
    measured_as: Mapping[str, Sourced[str]]
    pairs: tuple[PairRatio, ...]

    def gpu_share(self, profile: ModelProfile) -> float:
        """Returns the share of an iteration in which the GPU works, 1 if unknown."""
        return self.sourced_gpu_share(profile).value

    def sourced_gpu_share(self, profile: ModelProfile) -> Sourced[float]:
        """Returns the same share, and where it comes from."""
        share = self.shares.get(profile.full_name)
        if share is not None:
            return share
        stages = profile.stages
        if stages is None or not stages.value[0].gpu_s:
            return Sourced(1.0, Provenance.ASSUMED, "nothing says that the GPU ever waits")
        busy = min(1.0, stages.value[0].gpu_s / iteration_s(profile, gpus=1))
        return Sourced(busy, stages.provenance, f"GPU stage over iteration; {stages.source}")


@lru_cache(maxsize=1)
def shipped_contention() -> MeasuredContention:
    """Returns the shipped law, fitted to Gavel's pairs (`python -m tools.zoo pairs`)."""
    return parse_contention(shipped_text("interference.toml"))


def parse_contention(text: str) -> MeasuredContention:
    """Returns the contents of `interference.toml`: a profile set of pairs, and the law."""
    pairs = parse_profiles(text, where="interference.toml").pairs
    root = tomllib.loads(text)
    law, sources = root["law"], root["sources"]

    def sourced(row: Mapping[str, str], value: T) -> Sourced[T]:
        source = row["source"]
        return Sourced(value, Provenance(row["provenance"]), sources.get(source, source))

    constants = Contention(*(law[key] for key in ("scale", "growth", "relief", "heaviest")))
    return MeasuredContention(
        law=sourced(law, constants),
        median_ratio=law["median_ratio"],
        shares={row["model"]: sourced(row, row["value"]) for row in root["gpu_share"]},
        measured_as={row["model"]: sourced(row, row["name"]) for row in root["measured_as"]},
        pairs=pairs,
    )
