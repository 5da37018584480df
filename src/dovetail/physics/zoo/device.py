"""The known GPU types: memory, and speed for scaling times from one type to another."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from dovetail.core.errors import InputError, nearest
from dovetail.physics.zoo.provenance import Sourced, aliases_of, shipped_text, sourced_number


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
    """Returns a GPU type by name or alias, whatever the case. Raises InputError."""
    known = _by_any_name().get(name.lower())
    if known is None:
        raise InputError(f"GPU type '{name}'", "its speed is unknown", nearest(name, devices()))
    return known


def device_memory_bytes(name: str) -> float | None:
    """Returns the memory of a GPU type by name or alias; None where the type is not known."""
    known = _by_any_name().get(name.lower())
    return None if known is None else known.memory_bytes.value


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
