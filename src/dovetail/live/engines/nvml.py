"""GPUs as the driver's library (NVML) shows them, and which of them are ours to use.

A GPU that is partitioned (MIG) counts as its instances. What cannot be used is left out, and the
notes say why: a machine with GPUs must not turn into one of CPU slots without a word. The binding
to the library is optional (extra `gpu`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dovetail.live.engines.devices import Devices, machine_memory_bytes, slug
from dovetail.live.engines.nvml_binding import Nvml, NvmlDevice, load_nvml

VISIBLE = "CUDA_VISIBLE_DEVICES"
DRIVER = Path("/proc/driver/nvidia")
NO_BINDING = "there is an NVIDIA driver here, but no binding to it: pip install 'dovetail[gpu]'"
IN_USE_BYTES = 1 << 30
"""The driver itself holds less of a GPU on which no program runs."""
GIB = 1 << 30


class GpuDevice(NamedTuple):
    """One GPU, or one instance of a partitioned one; `whole` is the GPU and its place by PCI."""

    uuid: str
    whole: str
    place: int
    kind: str
    memory_bytes: float


class GpuInventory(NamedTuple):
    """The GPUs that can be used (None: there are none), and what their user should know."""

    devices: Devices | None
    notes: tuple[str, ...] = ()


def gpus(
    load: Callable[[], Nvml] | None = None,
    environ: Mapping[str, str] = os.environ,
    driver: Path = DRIVER,
) -> GpuInventory:
    """Returns the GPUs of one kind that the driver shows and `CUDA_VISIBLE_DEVICES` leaves."""
    try:
        nvml = (load or load_nvml)()
    except ImportError:
        return GpuInventory(None, (NO_BINDING,) if driver.exists() else ())
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        note = f"no GPU can be used, the driver says: {error}"
        return GpuInventory(None, (note,) if driver.exists() else ())
    notes: list[str] = []
    try:
        seen = list(_usable(nvml, notes))
    except nvml.NVMLError as error:
        return GpuInventory(None, (f"no GPU can be used, the driver says: {error}",))
    finally:
        nvml.nvmlShutdown()
    wanted = environ.get(VISIBLE)
    usable = visible(seen, wanted)
    if seen and wanted and not usable:
        notes.append(f"{VISIBLE}={wanted} leaves none of {len(seen)} GPUs")
    return GpuInventory(_alike(usable, notes), tuple(notes))


def visible(seen: Sequence[GpuDevice], wanted: str | None) -> list[GpuDevice]:
    """Returns the GPUs that a value of `CUDA_VISIBLE_DEVICES` leaves, as CUDA reads it.

    Numbers, or UUIDs or their beginnings; what follows the first that is unknown does not count.
    """
    if wanted is None:
        return list(seen)
    chosen: list[GpuDevice] = []
    for word in (w.strip() for w in wanted.split(",")):
        named = [g for g in seen if word and _is_meant(g, word)]
        if not named:
            break
        chosen += [g for g in named if g not in chosen]
    return chosen


def _is_meant(gpu: GpuDevice, word: str) -> bool:
    if word.isdecimal():
        return gpu.place == int(word)
    return gpu.uuid.startswith(word) or gpu.whole.startswith(word)


def _alike(seen: Sequence[GpuDevice], notes: list[str]) -> Devices | None:
    """Returns the devices of that kind which has the most memory in all: a node has one kind."""
    if not seen:
        return None
    kinds = dict.fromkeys(g.kind for g in seen)
    kind = max(kinds, key=lambda k: sum(g.memory_bytes for g in seen if g.kind == k))
    ours = [g for g in seen if g.kind == kind]
    notes += [
        f"{g.uuid} is left out: a {g.kind}, and a node has one kind of GPU ({kind})"
        for g in seen
        if g.kind != kind
    ]
    memory = min(g.memory_bytes for g in ours) or machine_memory_bytes() / len(ours)
    return Devices(tuple(g.uuid for g in ours), kind, memory)


def _usable(nvml: Nvml, notes: list[str]) -> Iterator[GpuDevice]:
    """Yields what can be used, in the order of PCI; notes down what cannot."""
    place = 0
    for index in range(nvml.nvmlDeviceGetCount()):
        # The count includes GPUs that are lost, and those of others in a container or a cgroup.
        try:
            parts = list(_parts_of(nvml, nvml.nvmlDeviceGetHandleByIndex(index), place, notes))
        except nvml.NVMLError as error:
            notes.append(f"GPU {index} is left out: {error}")
            continue
        yield from parts
        place += 1


def _parts_of(nvml: Nvml, gpu: NvmlDevice, place: int, notes: list[str]) -> Iterator[GpuDevice]:
    """Yields a GPU, or its instances. Raises the library's error for one that is out of order."""
    whole = _text(nvml.nvmlDeviceGetUUID(gpu))
    mode = _mode(nvml, gpu)
    if mode == nvml.NVML_COMPUTEMODE_PROHIBITED:
        notes.append(f"{whole} is left out: its compute mode forbids all programs")
        return
    if mode == nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS:
        notes.append(f"{whole} takes one program at a time: jobs cannot share it without MPS")
    if not _is_partitioned(nvml, gpu):
        total, used = _memory(nvml, gpu)
        if used > IN_USE_BYTES:
            notes.append(f"{whole}: {used / GIB:.0f} of {total / GIB:.0f} GiB are in use already")
        yield GpuDevice(whole, whole, place, slug(_text(nvml.nvmlDeviceGetName(gpu))), total)
        return
    instances = [g for i in _instances(nvml, gpu) if (g := _instance(nvml, i, whole, place))]
    if not instances:
        notes.append(f"{whole} is left out: it is partitioned (MIG) and has no instance for us")
    yield from instances


def _is_partitioned(nvml: Nvml, gpu: NvmlDevice) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(gpu)[0] == nvml.NVML_DEVICE_MIG_ENABLE)
    except nvml.NVMLError:  # of a kind that cannot be
        return False


def _instances(nvml: Nvml, gpu: NvmlDevice) -> Iterator[NvmlDevice]:
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        with suppress(nvml.NVMLError):  # a place that is empty
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)


def _instance(nvml: Nvml, instance: NvmlDevice, whole: str, place: int) -> GpuDevice | None:
    try:
        uuid, name = nvml.nvmlDeviceGetUUID(instance), _text(nvml.nvmlDeviceGetName(instance))
        total, _ = _memory(nvml, instance)
    except nvml.NVMLError:  # somebody else's
        return None
    # Some drivers give an instance the name of its GPU; instances of several sizes are not alike.
    kind = name if "MIG" in name else f"{name} MIG {total / GIB:.0f}gb"
    return GpuDevice(_text(uuid), whole, place, slug(kind), total)


def _mode(nvml: Nvml, gpu: NvmlDevice) -> int:
    try:
        return int(nvml.nvmlDeviceGetComputeMode(gpu))
    except nvml.NVMLError:  # not known of this kind
        return int(nvml.NVML_COMPUTEMODE_DEFAULT)


def _memory(nvml: Nvml, handle: NvmlDevice) -> tuple[float, float]:
    """Returns memory in all and in use; 0 where a GPU has none of its own."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError_NotSupported:
        return 0.0, 0.0
    return float(memory.total), float(memory.used)


def _text(value: str | bytes) -> str:
    """Returns text; old bindings give bytes."""
    return value.decode() if isinstance(value, bytes) else value
