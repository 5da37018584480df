"""The models of A-SRPT (Table I) as a planner sees them: blocks, batch, device and memory.

A block is the smallest part of a network that a pipeline stage may hold. The mini-batch is of the
whole job and is split among the replicas of a stage. `tools/zoo/networks.py` counts the blocks.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from dovetail.physics.zoo.provenance import shipped_text

LAUNCH_S = 40e-6
"""To launch the kernels of one layer, forward (assumed: about ten kernels of 4 us)."""
RECOMPUTED_BACKWARD, PLAIN_BACKWARD = 3.0, 2.0
"""A backward pass over a forward pass, with the forward pass again or without."""


class Block(NamedTuple):
    """Per sample: `flops` of a forward pass, values handed on, and values kept for the way back.

    `layers` is how many layers of kernels it launches one after another.
    """

    parameters: float
    flops: float
    out_values: float
    kept_values: float
    layers: int


@dataclass(frozen=True, slots=True)
class Pipelined:
    """A model that may be cut into stages. `state_bytes` is held on the GPU per parameter."""

    name: str
    blocks: tuple[Block, ...]
    batch: int
    flops_per_s: float
    number_bytes: int
    state_bytes: int
    slices: int = 1
    recomputed: bool = False

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def backward_factor(self) -> float:
        """Returns the seconds of a backward pass over those of a forward pass."""
        return RECOMPUTED_BACKWARD if self.recomputed else PLAIN_BACKWARD

    @property
    def exchanges_backward(self) -> int:
        """Returns how often slices exchange going back, for each time going forward."""
        return 2 if self.recomputed else 1


@lru_cache(maxsize=1)
def pipelined() -> Mapping[str, Pipelined]:
    """Returns the models by name, batches as in Table I."""
    rows = tomllib.loads(shipped_text("networks.toml"))["network"]
    models = (
        Pipelined(
            **{
                **row,
                "blocks": tuple(
                    Block(*block) for count, *block in row["blocks"] for _ in range(count)
                ),
            }
        )
        for row in rows
    )
    return MappingProxyType({model.name: model for model in models})
