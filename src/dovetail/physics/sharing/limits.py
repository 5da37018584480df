"""What limits of a GPU's share do to two workers on it (GIMBAL section 4.1; ALGORITHMS 3.5).

A worker alone keeps its GPU busy for a share `u` of the time, its utilisation. A limit `l` leaves
it `cap = min(u, l)`; two caps contest what they exceed one GPU by. With both limits whole a worker
runs at 1 over the ratio of the run's `Interference`; where the caps do not meet it runs at cap / u.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from dovetail.physics.sharing.contention import load, shipped_contention
from dovetail.physics.zoo.profile import ModelProfile
from dovetail.physics.zoo.provenance import Provenance, Sourced, shipped_text


@dataclass(frozen=True, slots=True)
class Demand:
    """`u = g * load^power / (half + load^power)`: the utilisation of a job alone.

    `g` is the share of an iteration in which the GPU works for the job, `load` that of
    `contention.load`. Loads above `heaviest`, the most that was measured, count as that.
    """

    half: float
    power: float
    heaviest: float

    def __post_init__(self) -> None:
        if not (self.half > 0 and self.power >= 0 and self.heaviest > 0):
            raise ValueError(f"the law of utilisation has positive constants: {self}")

    def utilization(self, load: float, share: float) -> float:
        """Returns the utilisation, in (0, 1); it grows with the load."""
        grown = min(load, self.heaviest) ** self.power
        return share * float(grown / (self.half + grown))


@dataclass(frozen=True, slots=True)
class KnownDemand:
    """The law of utilisations, the median for a job without a model, and shares by model."""

    law: Sourced[Demand]
    median: float
    shares: Mapping[str, Sourced[float]]

    def utilization(self, profile: ModelProfile | None, micro_batch: float) -> float:
        """Returns the utilisation of a model alone; the median of the measured for no model."""
        if profile is None:
            return self.median
        sourced = self.shares.get(profile.full_name)
        share = sourced.value if sourced else shipped_contention().gpu_share(profile)
        # A load of nothing at all (no sample, no work on the GPU) would divide by 0 below.
        return max(LEAST, self.law.value.utilization(load(profile, micro_batch), share))


LEAST = 1e-3
"""The least utilisation: a job that never used the GPU could not be limited by it."""


def alone_slowdown(utilization: float, limit: float) -> float:
    """Returns iteration time over that alone and whole: `1 / min(1, l / u)`."""
    return max(1.0, utilization / limit)


def shared_slowdown(
    utilization: float, limit: float, other: float, other_limit: float, ratio: float
) -> float:
    """Returns iteration time over that alone and whole, of a worker beside another on its GPU.

    `ratio` is that of free competition, both limits whole; `other` the neighbour's utilisation.
    The loss, 1 - 1 / ratio, goes with the part of the GPU that is contested as long as it is no
    more than that part can cost; the rest (caches, memory, launching) with what the neighbour may
    use. So a squeeze slows the squeezed and speeds up its neighbour, never beyond alone, and the
    GPU never gives more than in free competition or one whole GPU.
    """
    if limit >= utilization and other_limit >= other:
        return ratio
    cap, beside = min(utilization, limit), min(other, other_limit)
    contested, most = max(0.0, cap + beside - 1), max(0.0, utilization + other - 1)
    lost = min(1 - 1 / ratio, most / utilization)
    rest = 1 - 1 / (ratio * (1 - lost))
    speed = cap / utilization - (lost * contested / most if most else 0.0)
    return 1 / (speed * (1 - rest * beside / other))


@lru_cache(maxsize=1)
def shipped_demand() -> KnownDemand:
    """Returns the shipped law and shares, fitted to Gavel's pairs (`tools/zoo/limits.py`)."""
    return parse_demand(shipped_text("limits.toml"))


def parse_demand(text: str) -> KnownDemand:
    """Returns the law and the shares in the text of `limits.toml`."""
    root = tomllib.loads(text)
    law = root["law"]
    constants = Demand(*(law[key] for key in ("half", "power", "heaviest")))
    return KnownDemand(
        Sourced(constants, Provenance(law["provenance"]), law["source"]),
        law["median"],
        {
            row["model"]: Sourced(row["value"], Provenance(row["provenance"]), row["source"])
            for row in root["share"]
        },
    )
