"""The provenance of numbers: every field of a profile needs one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from typing import Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)


def sourced_number(row: Mapping[str, object], key: str) -> Sourced[float]:
    """Returns a number of a row of the zoo, with the provenance and source beside it."""
    provenance = Provenance(str(row[f"{key}_provenance"]))
    return Sourced(float(str(row[key])), provenance, str(row[f"{key}_source"]))


def aliases_of(row: Mapping[str, object]) -> tuple[str, ...]:
    """Returns the other names in a row of the zoo."""
    aliases = row.get("aliases", [])
    assert isinstance(aliases, list)
    return tuple(str(alias) for alias in aliases)


def shipped_text(name: str) -> str:
    """Returns a file of numbers that the package ships, such as `devices.toml`."""
    return resources.files("dovetail.physics.zoo").joinpath("profiles", name).read_text()


class Provenance(StrEnum):
    """How a value was obtained, from the strongest to the weakest."""

    MEASURED = "measured"
    FITTED = "fitted"
    DERIVED = "derived"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Sourced(Generic[T_co]):
    """A value with its provenance and one sentence on its source."""

    value: T_co
    provenance: Provenance
    source: str

    def __post_init__(self) -> None:
        if not self.source:
            raise ValueError("a value needs a source")
