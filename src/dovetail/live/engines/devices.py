"""What this machine has to run workers on: GPUs as the driver names them, or slots of CPU cores.

GPUs are known by their UUIDs, which no reboot and no other process changes.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dovetail.files.whole_file import PRIVATE, write_whole

SLOT_TYPE = "cpu"


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of one node, all alike. `cores` are those of each slot, none for a GPU."""

    names: tuple[str, ...]
    gpu_type: str
    memory_bytes: float
    cores: tuple[tuple[int, ...], ...] = ()

    @property
    def are_gpus(self) -> bool:
        """True if these are GPUs, not CPU slots."""
        return not self.cores


def slots(count: int, *, first: int = 0, of: int = 0) -> Devices:
    """Returns CPU slots `first` to `first + count` of all `of` slots, each with cores of its own.

    With more slots than cores several slots share one core.
    """
    usable = sorted(os.sched_getaffinity(0))
    total = of or count
    cores = tuple(_cores(slot, total, usable) for slot in range(first, first + count))
    names = tuple(f"slot-{slot}" for slot in range(count))
    return Devices(names, SLOT_TYPE, machine_memory_bytes() / total, cores)


def stored_names(folder: Path) -> tuple[str, ...] | None:
    """Returns the devices that a node's agent last had, in the order workers go by."""
    try:
        return tuple(json.loads((folder / "devices.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def store_names(folder: Path, names: tuple[str, ...]) -> None:
    """Stores the devices of a node's agent; on a full disk it does nothing."""
    with suppress(OSError):
        write_whole(folder / "devices.json", json.dumps(names), mode=PRIVATE, synced=False)


def usable_cores() -> int:
    """Returns how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def machine_memory_bytes() -> float:
    """Returns the memory of this machine."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _cores(slot: int, total: int, usable: list[int]) -> tuple[int, ...]:
    if total > len(usable):
        return (usable[slot % len(usable)],)
    begin, end = slot * len(usable) // total, (slot + 1) * len(usable) // total
    return tuple(usable[begin:end])


def slug(text: str) -> str:
    """Returns a name in lower case, digits and hyphens: `nvidia-h100-80gb` of what a driver says.

    Clusters and profiles name a device by this, so that they agree.
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
