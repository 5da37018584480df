"""The health of the GPUs of a node while it runs, as the driver tells it (NVML).

An XID is the driver's number for an error of a GPU. NVIDIA's catalogue
(docs.nvidia.com/deploy/xid-errors) says of each whether the application or the GPU must be
restarted. The numbers that blame the application alone are those that NVIDIA's device plugin for
Kubernetes leaves out as well (k8s-device-plugin, internal/rm/health.go).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from dovetail.live.engines.nvml_binding import Nvml, NvmlDevice, NvmlEventSet, load_nvml
from dovetail.wire.agent import DEVICE, DRAIN, FATAL, WARNING, NodeFault

OF_PROGRAMS = frozenset((13, 31, 43, 45, 68, 109))
"""XIDs of a program: exception of the graphics engine, page fault, stopped processing, clean-up,
exception of the video processor, timeout of a context switch. The GPU is healthy."""
FATAL_XIDS = {
    48: "double-bit ECC error",
    62: "the microcontroller halted",
    64: "memory rows cannot be remapped any more",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    95: "uncontained memory error",
    119: "the GPU system processor does not answer",
    120: "error of the GPU system processor",
    140: "memory error that was not recovered",
}
"""XIDs after which nothing on the GPU can go on before it is reset, or replaced."""
XIDS = {
    63: "a memory row is remapped at the next reset",
    92: "many single-bit ECC errors",
    94: "contained memory error",
}
"""XIDs after which other programs can finish, and the GPU is to be reset soon: like all others."""
LOOK_S = 5.0
"""How often the driver is asked, in seconds of the machine."""


class GpuHealth:
    """Finds the faults of GPUs, which go by their place on the node.

    What a GPU, or an older binding to the library, does not know is left out.
    """

    def __init__(self, nvml: Nvml, names: Sequence[str]) -> None:
        self._nvml, self._names = nvml, tuple(names)
        # An XID is told once; its fault lasts until the agent, or the machine, starts anew.
        self._told: dict[tuple[int, str], NodeFault] = {}
        self._events: dict[int, NvmlEventSet] = {}
        self.used: dict[int, float] = {}
        """The use of each GPU in percent, where the driver tells it."""

    def look(self) -> tuple[NodeFault, ...]:
        """Returns all faults there are now. It may take seconds with a GPU that does not answer."""
        found = [fault for gpu in range(len(self._names)) for fault in self._look_at(gpu)]
        return (*self._told.values(), *found)

    def _look_at(self, gpu: int) -> Iterator[NodeFault]:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(self._names[gpu].encode())
            nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError_GpuIsLost:
            yield NodeFault(gpu, DEVICE, FATAL, "the driver has lost the GPU")
            return
        except nvml.NVMLError as error:
            yield NodeFault(gpu, DEVICE, WARNING, f"the driver does not answer: {error}")
            return
        self._hear(gpu, handle)
        self.used.pop(gpu, None)
        with suppress(nvml.NVMLError, AttributeError):  # of an instance of a partitioned GPU
            self.used[gpu] = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        with suppress(nvml.NVMLError, AttributeError):  # without ECC
            errors = nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
            if errors:
                what = f"{errors} uncorrectable memory errors since the last reset"
                yield NodeFault(gpu, DEVICE, DRAIN, what)
        with suppress(nvml.NVMLError, AttributeError):  # of a kind before Ampere
            rows = nvml.nvmlDeviceGetRemappedRows(handle)
            if rows[3]:
                yield NodeFault(gpu, DEVICE, DRAIN, "a memory row could not be remapped")
            elif rows[2]:
                yield NodeFault(gpu, DEVICE, DRAIN, "remapped memory rows await a reset")
        with suppress(nvml.NVMLError, AttributeError):
            yield from self._throttled(gpu, nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))

    def _throttled(self, gpu: int, reasons: int) -> Iterator[NodeFault]:
        nvml = self._nvml
        hot = (
            nvml.nvmlClocksThrottleReasonHwThermalSlowdown
            | nvml.nvmlClocksThrottleReasonSwThermalSlowdown
        )
        if reasons & hot:
            yield NodeFault(gpu, DEVICE, WARNING, "slowed down: too hot")
        elif reasons & nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown:
            yield NodeFault(gpu, DEVICE, WARNING, "slowed down: the power supply demands it")
        elif reasons & nvml.nvmlClocksThrottleReasonHwSlowdown:
            yield NodeFault(gpu, DEVICE, WARNING, "slowed down by the hardware")

    def _hear(self, gpu: int, handle: NvmlDevice) -> None:
        """Reads the XIDs of a GPU that came since the last time."""
        nvml = self._nvml
        with suppress(nvml.NVMLError, AttributeError):  # of a kind without events
            if gpu not in self._events:
                events = nvml.nvmlEventSetCreate()
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
                self._events[gpu] = events
            while True:
                event = nvml.nvmlEventSetWait_v2(self._events[gpu], 0)
                if event.eventType == nvml.nvmlEventTypeXidCriticalError:
                    self._note(gpu, int(event.eventData))

    def _note(self, gpu: int, xid: int) -> None:
        if xid in OF_PROGRAMS:
            return
        severity = FATAL if xid in FATAL_XIDS else DRAIN
        meaning = FATAL_XIDS.get(xid) or XIDS.get(xid, "see NVIDIA's catalogue of XIDs")
        what = f"XID {xid}: {meaning}"
        self._told[gpu, what] = NodeFault(gpu, DEVICE, severity, what)


class GpuMonitor:
    """Looks after the GPUs of a node in a thread: the driver may take seconds to answer."""

    def __init__(self, health: GpuHealth, every_s: float = LOOK_S) -> None:
        self._health, self._every_s = health, every_s
        self._over = threading.Event()
        self.faults: tuple[NodeFault, ...] | None = None
        """All faults of the last look; None before the first."""
        self._thread = threading.Thread(target=self._run, name="gpu health", daemon=True)
        self._thread.start()

    @property
    def used(self) -> dict[int, float]:
        """The use of each GPU in percent at the last look, where the driver tells it."""
        return dict(self._health.used)

    @staticmethod
    def open(names: Sequence[str], load: Callable[[], Nvml] = load_nvml) -> GpuMonitor | None:
        """Returns what watches these GPUs, None where the driver does not answer."""
        try:
            nvml = load()
            nvml.nvmlInit()
        except ImportError:
            return None
        except nvml.NVMLError:
            return None
        return GpuMonitor(GpuHealth(nvml, names))

    def _run(self) -> None:
        while not self._over.is_set():
            self.faults = self._health.look()
            self._over.wait(self._every_s)

    def close(self) -> None:
        """Ends the thread at its next look."""
        self._over.set()
