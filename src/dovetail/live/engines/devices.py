"""What this machine has to run workers on: GPUs as the driver names them, or slots of CPU cores.

GPUs are known by their UUIDs, which no reboot and no other process changes. The binding to the
driver's library is optional (extra `gpu`) and imported only here, when asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
        """Tells whether these are GPUs and no slots."""
        return not self.cores


def gpus(load: Callable[[], Any] | None = None) -> Devices | None:
    """Returns the GPUs that the driver shows, None if there are none or nobody can say."""
    try:
        nvml = (load or _nvml)()
        nvml.nvmlInit()
    except Exception:
        # No binding, no driver, no device: whatever the reason, there are no GPUs for us.
        return None
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        if not handles:
            return None
        return Devices(
            names=tuple(_text(nvml.nvmlDeviceGetUUID(h)) for h in handles),
            gpu_type=_kind(_text(nvml.nvmlDeviceGetName(handles[0]))),
            memory_bytes=float(min(nvml.nvmlDeviceGetMemoryInfo(h).total for h in handles)),
        )
    finally:
        nvml.nvmlShutdown()


def slots(count: int, *, first: int = 0, of: int = 0) -> Devices:
    """Returns CPU slots `first` to `first + count` of all `of` slots, each with cores of its own.

    With more slots than cores several slots share one core.
    """
    usable = sorted(os.sched_getaffinity(0))
    total = of or count
    cores = tuple(_cores(slot, total, usable) for slot in range(first, first + count))
    names = tuple(f"slot-{slot}" for slot in range(count))
    return Devices(names, SLOT_TYPE, machine_memory_bytes() / total, cores)


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


def _nvml() -> Any:
    import pynvml

    return pynvml


def _text(value: str | bytes) -> str:
    """Returns text; old bindings give bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _kind(name: str) -> str:
    """Returns a short name of a device, as in a cluster's description: `nvidia-h100-80gb`."""
    return "-".join(name.lower().split())
