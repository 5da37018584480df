"""Stage times of models whose sources timed only whole iterations (ALGORITHMS section 4.1).

GPU and network follow from the fitted parts of equation (7), scaled with it to the measured
curve. Loading is reckoned from what a sample costs to read and to prepare, and is never longer
than the measured iteration: the source's own loader kept up with it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from dovetail.physics.speed.throughput import correction, fewest_steps, iteration_s
from dovetail.physics.zoo.profile import ModelProfile, StageTimes
from dovetail.physics.zoo.provenance import Provenance, Sourced

DISK_BYTES_PER_S = 0.5e9
"""Each GPU's share of its server's disk: an NVMe disk of 2 GB/s for four (assumed)."""
LOADERS = 4
"""Processes that prepare the samples of one GPU, a core each: the default of PyTorch's ImageNet
example (assumed)."""
COUNTS = (*range(1, 25), 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256)
"""GPU counts with a row of their own; in between rows are interpolated."""


@dataclass(frozen=True, slots=True)
class InputCost:
    """What one training sample costs before the GPU sees it."""

    bytes: float
    core_s: float
    load_is: str
    gpu_share: float
    source: str

    def __post_init__(self) -> None:
        if self.load_is not in ("storage", "cpu"):
            raise ValueError(f"loading is storage or cpu, not {self.load_is}")
        if not (self.bytes >= 0 and self.core_s >= 0 and 0 < self.gpu_share <= 1):
            raise ValueError(f"the cost of a sample must not be negative: {self}")

    @property
    def load_s(self) -> float:
        """Returns the seconds of loading a sample adds on one GPU's share of the host."""
        return self.bytes / DISK_BYTES_PER_S + self.core_s / LOADERS


@lru_cache(maxsize=1)
def input_costs() -> Mapping[str, InputCost]:
    """Returns what a sample costs by full model name (`family/name`)."""
    folder = resources.files("dovetail.physics.zoo").joinpath("profiles")
    rows = tomllib.loads(folder.joinpath("inputs.toml").read_text())["input"]
    return {
        model: InputCost(
            float(row["bytes"]),
            float(row["core_s"]),
            row["load_is"],
            float(row.get("gpu_share", 1.0)),
            row["source"],
        )
        for row in rows
        for model in row["models"]
    }


def derived_stages(profile: ModelProfile) -> Sourced[tuple[StageTimes, ...]]:
    """Returns the stages of a model by GPU count; as sure as the cost of its samples."""
    cost = input_costs()[profile.full_name]
    return Sourced(
        tuple(_stages(profile, cost, gpus) for gpus in COUNTS),
        Provenance.ASSUMED,
        f"GPU and network: the fitted computing and exchange; load ({cost.load_is}): "
        f"{cost.source}; {LOADERS} loaders and 0.5 GB/s of disk for a GPU",
    )


def _stages(profile: ModelProfile, cost: InputCost, gpus: int) -> StageTimes:
    each = profile.batch.value.on_each_of(gpus)
    steps = fewest_steps(profile, each)
    to_curve = correction(profile, gpus)
    compute_s = to_curve * steps * profile.compute[0][1].value.time_s(each / steps)
    exchange_s = to_curve * profile.network.value.comm_s(
        profile.well_placed(gpus), profile.gradient_bytes.value
    )
    load_s = min(
        cost.load_s * each + (1 - cost.gpu_share) * compute_s, iteration_s(profile, gpus=gpus)
    )
    return StageTimes(
        gpus=gpus,
        storage_s=load_s if cost.load_is == "storage" else 0.0,
        cpu_s=load_s if cost.load_is == "cpu" else 0.0,
        gpu_s=cost.gpu_share * compute_s,
        network_s=exchange_s,
    )
