"""What is known of jobs that share a GPU: the constants of the law, and the measured pairs.

The law is `algorithms/processor_sharing.py` on four resources. Of the GPU it needs two numbers of a
job, which both follow from the *load* of a micro-batch: the time that grows with its samples over
the time that does not. Where the fixed part is the launching of kernels, the load is how long a
kernel runs over how long it takes to launch: a GPU that two processes share takes turns between
their kernels, so it is long ones that fill it, and that press.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from dovetail.physics.sharing.pairs import PairRatio
from dovetail.physics.zoo.profile_file import parse_profiles
from dovetail.physics.zoo.provenance import Provenance, Sourced, shipped_text

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Contention:
    """`fill = load / (half + load)` and `weight = load ** weight_power`.

    The fill is the part of a GPU stage in which kernels run. Loads below `lightest` or above
    `heaviest`, the least and the most that were measured, count as these.
    """

    half: float
    weight_power: float
    lightest: float
    heaviest: float

    def __post_init__(self) -> None:
        if not (self.half > 0 and self.weight_power >= 0 and 0 < self.lightest <= self.heaviest):
            raise ValueError(f"the law of contention has positive constants: {self}")

    def fill(self, load: float) -> float:
        """Returns the part of a GPU stage in which kernels run."""
        counted = self._counted(load)
        return counted / (self.half + counted)

    def weight(self, load: float) -> float:
        """Returns the weight of a job on the GPU beside others."""
        return float(self._counted(load) ** self.weight_power)

    def _counted(self, load: float) -> float:
        return min(max(load, self.lightest), self.heaviest)


@dataclass(frozen=True, slots=True)
class KnownContention:
    """The law, models by the measured names, the pairs, and what stands for an unknown model.

    `host_capacity` is how many jobs the GPU's share of the host feeds at full speed.
    """

    law: Sourced[Contention]
    host_capacity: Sourced[float]
    median_ratio: float
    median_utilization: float
    measured_as: Mapping[str, Sourced[str]]
    pairs: tuple[PairRatio, ...]


@lru_cache(maxsize=1)
def shipped_contention() -> KnownContention:
    """Returns the shipped law, fitted to Gavel's pairs (`python -m tools.zoo pairs`)."""
    return parse_contention(shipped_text("interference.toml"))


def parse_contention(text: str) -> KnownContention:
    """Returns the contents of `interference.toml`: a profile set of pairs, and the law."""
    pairs = parse_profiles(text, where="interference.toml").pairs
    root = tomllib.loads(text)
    law, host, sources = root["law"], root["host"], root["sources"]

    def sourced(row: Mapping[str, str], value: T) -> Sourced[T]:
        source = row["source"]
        return Sourced(value, Provenance(row["provenance"]), sources.get(source, source))

    names = ("half", "weight_power", "lightest", "heaviest")
    return KnownContention(
        law=sourced(law, Contention(*(law[name] for name in names))),
        host_capacity=sourced(host, float(host["capacity"])),
        median_ratio=law["median_ratio"],
        median_utilization=law["median_utilization"],
        measured_as={row["model"]: sourced(row, row["name"]) for row in root["measured_as"]},
        pairs=pairs,
    )
