"""Waits until the driver has freed the GPU memory of a worker that has ended.

The driver frees the memory of a process some time after the process is gone, above all after
SIGKILL. A successor that starts before that can run out of memory on a GPU that is its own.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dovetail.live.engines.nvml import IN_USE_BYTES
from dovetail.live.engines.nvml_binding import Nvml, NvmlDevice, load_nvml

LOG = logging.getLogger(__name__)
RELEASE_WITHIN_S = 30.0
"""So long after a worker has ended its successor waits at most."""
SETTLED_S = 2.0
"""Memory in use that has not fallen for so long does not belong to the worker that has ended."""
HOST_PID_NAMESPACE = 0xEFFFFFFC
"""Inode of the first process namespace of a machine, fixed by Linux (PROC_PID_INIT_INO)."""

Key = tuple[int, int]
"""A worker: (job, number)."""


@dataclass(slots=True)
class _Earlier:
    """The last worker of a GPU that has ended.

    `before_bytes` were in use on the GPU when it started. `used_bytes` were in use when that was
    last looked up, and have not fallen since `fell_s`.
    """

    ended_s: float
    before_bytes: float
    used_bytes: float
    fell_s: float
    has_delayed: bool = False


class GpuRelease:
    """Knows for each GPU of a node, by its place, whether the memory of ended workers is free.

    Where NVML names processes by the numbers that they have here, a process on the GPU that does
    not exist any more still holds memory. Elsewhere (in a container NVML may give numbers of the
    host, or none) the memory in use must fall to what it was, or stop falling.
    """

    def __init__(
        self,
        nvml: Nvml,
        names: Sequence[str],
        *,
        has_host_pids: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._nvml, self._names = nvml, tuple(names)
        self._has_host_pids, self._clock = has_host_pids, clock
        self._before: dict[Key, dict[int, float]] = {}
        # What ended just before this agent came is not known: it may have been on any GPU.
        self._earlier = {gpu: self._end(gpu, IN_USE_BYTES) for gpu in range(len(self._names))}

    @staticmethod
    def open(
        names: Sequence[str], load: Callable[[], Nvml] = load_nvml, proc: Path = Path("/proc")
    ) -> GpuRelease | None:
        """Returns what watches these GPUs, None where the driver does not answer.

        NVML stays open: to open it each time would hold the agent up, for seconds on some machines.
        """
        try:
            nvml = load()
            nvml.nvmlInit()
        except ImportError:
            return None
        except nvml.NVMLError:
            return None
        return GpuRelease(nvml, names, has_host_pids=_is_host_pid_namespace(proc))

    def started(self, key: Key, gpus: Sequence[int]) -> None:
        """Records the memory in use on the GPUs of a worker that is about to start."""
        self._before[key] = {gpu: self._used_bytes(gpu) for gpu in gpus}

    def adopted(self, key: Key, gpus: Sequence[int]) -> None:
        """Registers a worker that was running already, unless its start was seen."""
        self._before.setdefault(key, dict.fromkeys(gpus, float(IN_USE_BYTES)))

    def ended(self, key: Key) -> None:
        """Records that a worker has ended; its memory may not be free yet."""
        for gpu, before_bytes in self._before.pop(key, {}).items():
            self._earlier[gpu] = self._end(gpu, before_bytes)

    def held(self, gpus: Sequence[int]) -> tuple[int, ...]:
        """Returns on which of these GPUs a new worker must wait. Never for longer than the limit.

        Call it again while it waits: each call looks whether the memory in use still falls.
        """
        return tuple(gpu for gpu in gpus if gpu in self._earlier and self._must_wait(gpu))

    def _end(self, gpu: int, before_bytes: float) -> _Earlier:
        now = self._clock()
        return _Earlier(now, before_bytes, self._used_bytes(gpu), now)

    def _must_wait(self, gpu: int) -> bool:
        earlier = self._earlier[gpu]
        if not self._is_held(gpu, earlier):
            del self._earlier[gpu]
            return False
        if self._clock() < earlier.ended_s + RELEASE_WITHIN_S:
            earlier.has_delayed = True
            return True
        del self._earlier[gpu]
        if earlier.has_delayed:
            LOG.warning(
                "%s: the memory of a worker that ended %.0f s ago is still not free; "
                "the next worker starts all the same",
                self._names[gpu],
                self._clock() - earlier.ended_s,
            )
        return False

    def _is_held(self, gpu: int, earlier: _Earlier) -> bool:
        if self._has_host_pids:
            try:
                handle = self._handle(gpu)
                listed = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
                return any(not _exists(int(process.pid)) for process in listed)
            except self._nvml.NVMLError:  # this kind of GPU, or this container, has no list
                pass
        used_bytes, now = self._used_bytes(gpu), self._clock()
        # The driver frees in steps. What has stopped falling belongs to another program.
        if used_bytes < earlier.used_bytes:
            earlier.fell_s = now
        earlier.used_bytes = used_bytes
        return used_bytes > earlier.before_bytes and now < earlier.fell_s + SETTLED_S

    def _used_bytes(self, gpu: int) -> float:
        """Returns the memory in use, 0 where it is not known: then no worker waits for it."""
        try:
            return float(self._nvml.nvmlDeviceGetMemoryInfo(self._handle(gpu)).used)
        except self._nvml.NVMLError:
            return 0.0

    def _handle(self, gpu: int) -> NvmlDevice:
        return self._nvml.nvmlDeviceGetHandleByUUID(self._names[gpu].encode())


def _is_host_pid_namespace(proc: Path) -> bool:
    try:
        return (proc / "self" / "ns" / "pid").stat().st_ino == HOST_PID_NAMESPACE
    except OSError:
        return False


def _exists(pid: int) -> bool:
    """True if there is such a process. `/proc` may hide those of other users."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True
