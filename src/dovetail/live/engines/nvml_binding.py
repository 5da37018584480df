"""The part of the NVML binding that is used, as types: the package itself has none.

It is optional (extra `gpu`) and imported only here, when asked.
"""

# ruff: noqa: N815 (the names are those of the library)

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NewType, Protocol, cast

NvmlDevice = NewType("NvmlDevice", object)
"""The library's handle of a GPU, or of an instance of one."""


NvmlEventSet = NewType("NvmlEventSet", object)
"""The library's handle of a set of events."""


class MemoryInfo(Protocol):
    """Memory of a GPU, in bytes."""

    total: int
    used: int


class ProcessInfo(Protocol):
    """A process on a GPU."""

    pid: int


class UsageRates(Protocol):
    """The part of the time in which a GPU computed, in percent of the last second or less."""

    gpu: int


class MemoryRows(Protocol):
    """Rows of memory that were replaced: by cause, whether a reset is awaited, or it failed."""

    def __getitem__(self, index: int) -> int:
        """Returns: after correctable errors, after uncorrectable ones, pending, failed."""


class NvmlEvent(Protocol):
    """An event of a GPU; `eventData` is the number of an XID."""

    eventType: int
    eventData: int


class Nvml(Protocol):
    """The part of the binding that is used. Its calls raise `NVMLError`."""

    NVMLError: type[Exception]
    NVMLError_NotSupported: type[Exception]
    NVML_COMPUTEMODE_DEFAULT: int
    NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: int
    NVML_COMPUTEMODE_PROHIBITED: int
    NVML_DEVICE_MIG_ENABLE: int

    nvmlInit: Callable[[], None]
    nvmlShutdown: Callable[[], None]
    nvmlDeviceGetCount: Callable[[], int]
    nvmlDeviceGetHandleByIndex: Callable[[int], NvmlDevice]
    nvmlDeviceGetHandleByUUID: Callable[[bytes], NvmlDevice]
    nvmlDeviceGetUUID: Callable[[NvmlDevice], str | bytes]
    nvmlDeviceGetName: Callable[[NvmlDevice], str | bytes]
    nvmlDeviceGetComputeMode: Callable[[NvmlDevice], int]
    nvmlDeviceGetMemoryInfo: Callable[[NvmlDevice], MemoryInfo]
    nvmlDeviceGetMigMode: Callable[[NvmlDevice], Sequence[int]]
    """Whether a GPU is partitioned: now, and after a reset."""
    nvmlDeviceGetMaxMigDeviceCount: Callable[[NvmlDevice], int]
    nvmlDeviceGetMigDeviceHandleByIndex: Callable[[NvmlDevice, int], NvmlDevice]
    NVMLError_GpuIsLost: type[Exception]
    NVMLError_Timeout: type[Exception]
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED: int
    NVML_VOLATILE_ECC: int
    nvmlEventTypeXidCriticalError: int
    nvmlClocksThrottleReasonHwSlowdown: int
    nvmlClocksThrottleReasonHwThermalSlowdown: int
    nvmlClocksThrottleReasonSwThermalSlowdown: int
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown: int
    nvmlEventSetCreate: Callable[[], NvmlEventSet]
    nvmlDeviceRegisterEvents: Callable[[NvmlDevice, int, NvmlEventSet], None]
    nvmlEventSetWait_v2: Callable[[NvmlEventSet, int], NvmlEvent]
    """Returns the next event. Raises `NVMLError_Timeout` after some milliseconds."""
    nvmlDeviceGetTotalEccErrors: Callable[[NvmlDevice, int, int], int]
    nvmlDeviceGetUtilizationRates: Callable[[NvmlDevice], UsageRates]
    nvmlDeviceGetRemappedRows: Callable[[NvmlDevice], MemoryRows]
    nvmlDeviceGetCurrentClocksThrottleReasons: Callable[[NvmlDevice], int]
    nvmlDeviceGetComputeRunningProcesses: Callable[[NvmlDevice], Sequence[ProcessInfo]]


def load_nvml() -> Nvml:
    """Returns the binding to the library. Raises ImportError where it is not installed."""
    import pynvml

    return cast(Nvml, pynvml)
