"""Public facts about the models of the zoo: parameters and memory."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from dovetail.physics.memory import MemoryLaw
from dovetail.physics.zoo.provenance import (
    Provenance,
    Sourced,
    aliases_of,
    shipped_text,
    sourced_number,
)

CONTEXT_BYTES = 0.8e9
"""The memory of a framework with its device libraries before the first tensor (assumed)."""

BYTES_PER_GRADIENT = 4
"""All sources of the zoo train in FP32."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """What a model is, apart from how fast it runs."""

    title: str
    aliases: tuple[str, ...]
    parameters: Sourced[float]
    gradient_bytes: Sourced[float]
    memory: Sourced[MemoryLaw]


@lru_cache(maxsize=1)
def architectures() -> Mapping[str, Architecture]:
    """Returns the facts by full model name (`family/name`)."""
    rows = tomllib.loads(shipped_text("architectures.toml"))["architecture"]
    return {row["model"]: _architecture(row) for row in rows}


def _architecture(row: Mapping[str, object]) -> Architecture:
    def number(key: str) -> float:
        return float(str(row[key]))

    parameters = sourced_number(row, "parameters")
    fixed_bytes = CONTEXT_BYTES + number("state_bytes") * parameters.value
    return Architecture(
        title=str(row["title"]),
        aliases=aliases_of(row),
        parameters=parameters,
        gradient_bytes=Sourced(
            BYTES_PER_GRADIENT * parameters.value,
            parameters.provenance,
            "parameters x 4 bytes (FP32)",
        ),
        memory=Sourced(
            MemoryLaw(fixed_bytes, number("sample_bytes")),
            Provenance(str(row["sample_provenance"])),
            f"fixed: {row['state_source']} and 0.8 GB of context; "
            f"per sample: {row['sample_source']}",
        ),
    )
