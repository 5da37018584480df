"""The part of the NVML binding that is used, as types: the package itself has none.

It is optional (extra `gpu`) and imported only here, when asked.
"""
# ruff: noqa: N802 (the names are those of the library)

from __future__ import annotations

from collections.abc import Sequence
from typing import NewType, Protocol, cast

NvmlDevice = NewType("NvmlDevice", object)
"""What the library calls a GPU, or an instance of one, by."""


class MemoryInfo(Protocol):
    """Memory of a GPU, in bytes."""

    total: int
    used: int


class ProcessInfo(Protocol):
    """A process on a GPU."""

    pid: int


class Nvml(Protocol):
    """The part of the binding that is used. Its calls raise `NVMLError`."""

    NVMLError: type[Exception]
    NVMLError_NotSupported: type[Exception]
    NVML_COMPUTEMODE_DEFAULT: int
    NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: int
    NVML_COMPUTEMODE_PROHIBITED: int
    NVML_DEVICE_MIG_ENABLE: int

    def nvmlInit(self) -> None:
        """Opens the library."""

    def nvmlShutdown(self) -> None:
        """Closes it."""

    def nvmlDeviceGetCount(self) -> int:
        """Returns how many GPUs there are."""
        ...

    def nvmlDeviceGetHandleByIndex(self, index: int) -> NvmlDevice:
        """Returns a GPU by its place."""
        ...

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> NvmlDevice:
        """Returns a GPU by its name."""
        ...

    def nvmlDeviceGetUUID(self, device: NvmlDevice) -> str | bytes:
        """Returns the name that no reboot changes."""
        ...

    def nvmlDeviceGetName(self, device: NvmlDevice) -> str | bytes:
        """Returns the name of the product."""
        ...

    def nvmlDeviceGetComputeMode(self, device: NvmlDevice) -> int:
        """Returns which programs it takes."""
        ...

    def nvmlDeviceGetMemoryInfo(self, device: NvmlDevice) -> MemoryInfo:
        """Returns its memory."""
        ...

    def nvmlDeviceGetMigMode(self, device: NvmlDevice) -> Sequence[int]:
        """True if it is partitioned: now, and after a reset."""
        ...

    def nvmlDeviceGetMaxMigDeviceCount(self, device: NvmlDevice) -> int:
        """Returns how many instances it can have."""
        ...

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: NvmlDevice, index: int) -> NvmlDevice:
        """Returns an instance by its place."""
        ...

    def nvmlDeviceGetComputeRunningProcesses(self, device: NvmlDevice) -> Sequence[ProcessInfo]:
        """Returns the processes that compute on it."""
        ...


def load_nvml() -> Nvml:
    """Returns the binding to the library. Raises ImportError where it is not installed."""
    import pynvml

    return cast(Nvml, pynvml)
