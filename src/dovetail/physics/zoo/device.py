"""The known GPU types: memory, and speed for scaling times from one type to another."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from dovetail.core.errors import InputError, nearest
from dovetail.physics.zoo.provenance import (
    Provenance,
    Sourced,
    aliases_of,
    shipped_text,
    sourced_number,
)

COMPUTE_SLICES: Mapping[str, int] = MappingProxyType(
    dict.fromkeys(("a100", "a100-80gb", "h100", "h200"), 7)
)
"""Compute slices of the types that MIG divides (NVIDIA MIG User Guide, supported profiles)."""
_MIG = re.compile(r"(?P<type>.*)[-_](?P<slices>\d)g\.(?P<gb>\d{1,3})gb", re.ASCII)


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU type. `speed` is training speed relative to a V100."""

    name: str
    aliases: tuple[str, ...]
    speed: Sourced[float]
    memory_bytes: Sourced[float]


@lru_cache(maxsize=1)
def devices() -> Mapping[str, Device]:
    """Returns the GPU types by name."""
    rows = tomllib.loads(shipped_text("devices.toml"))["device"]
    known = (
        Device(
            name=str(row["name"]),
            aliases=aliases_of(row),
            speed=sourced_number(row, "speed"),
            memory_bytes=sourced_number(row, "memory_bytes"),
        )
        for row in rows
    )
    return MappingProxyType({device.name: device for device in known})


def device(name: str) -> Device:
    """Returns a GPU type by name or alias, whatever the case. Raises InputError.

    `a100-1g.5gb` is a MIG instance of a known type.
    """
    known = _known(name)
    if known is None:
        raise InputError(f"GPU type '{name}'", "its speed is unknown", nearest(name, devices()))
    return known


def device_memory_bytes(name: str) -> float | None:
    """Returns the memory of a GPU type by name or alias; None where the type is not known.

    A MIG profile says its memory itself, with a type before it or without: `1g.10gb`.
    """
    known = _known(name)
    if known is not None:
        return known.memory_bytes.value
    profile = _MIG.fullmatch(f"-{name.lower()}")
    return int(profile["gb"]) * 2.0**30 if profile else None


@lru_cache(maxsize=1024)
def _known(name: str) -> Device | None:
    return _by_any_name().get(name.lower()) or _mig_instance(name.lower())


def _mig_instance(name: str) -> Device | None:
    """Returns the MIG instance of a known type that `TYPE-Gg.MEMORYgb` names, else None.

    Computing is in proportion to the slices, which is how the guide sizes the profiles; what a
    model keeps of its speed on fewer multiprocessors was not measured.
    """
    match = _MIG.fullmatch(name)
    whole = _by_any_name().get(match["type"]) if match else None
    if match is None or whole is None:
        return None
    slices, of = int(match["slices"]), COMPUTE_SLICES.get(whole.name, 0)
    memory_bytes = int(match["gb"]) * 2.0**30
    if not 1 <= slices <= of or memory_bytes > whole.memory_bytes.value:
        return None
    speed = whole.speed.value * slices / of
    why = f"{slices} of {of} compute slices of {whole.name}: NVIDIA MIG User Guide, profiles"
    return Device(
        name,
        (),
        Sourced(speed, Provenance.ASSUMED, why),
        Sourced(memory_bytes, Provenance.DERIVED, "the name of the MIG profile"),
    )


@lru_cache(maxsize=1)
def _by_any_name() -> Mapping[str, Device]:
    return {
        key.lower(): known for known in devices().values() for key in (known.name, *known.aliases)
    }


@lru_cache(maxsize=1024)
def time_factor(measured_on: str, wanted: str) -> float:
    """Returns the computing time on the wanted GPU type over that on `measured_on`."""
    if measured_on.lower() == wanted.lower():
        return 1.0
    return device(measured_on).speed.value / device(wanted).speed.value
