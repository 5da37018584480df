"""The device that a worker trains on: its memory, and the order of copies beside the training."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

OUTSIDE_BYTES_MAX = 1 << 30
"""Upper bound of what a process uses of a GPU beside tensors: the context, kernel code, buffers of
NCCL. With other processes on the GPU, the driver does not show whose memory it is."""


class DeviceMemory:
    """The memory of one device, as used by this process."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._on_gpu = device.type == "cuda"
        self._outside = OUTSIDE_BYTES_MAX
        self._bound = 0

    def held_bytes(self) -> int:
        """Returns the peak use since `renew`, of the GPU, or of the process on a CPU."""
        if self._on_gpu:
            return int(torch.cuda.max_memory_reserved(self._device)) + self._outside_bytes()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

    def renew(self) -> None:
        """Returns unused memory to the GPU and resets the peak.

        NOTE: torch caches what larger micro-batches needed, which other processes would then lack.
        """
        if self._on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._device)

    def bound(self, bytes_max: int) -> None:
        """Limits the GPU memory of this process (0: no limit); on a CPU the agent does that.

        Unused memory above the limit goes back to the GPU.
        """
        if not self._on_gpu or bytes_max == self._bound:
            return
        self._bound = bytes_max
        total = torch.cuda.get_device_properties(self._device).total_memory
        # Torch limits only its tensors. They get at least half of any limit, or nothing would fit.
        tensors = max(bytes_max - self._outside_bytes(), bytes_max / 2) if bytes_max else total
        torch.cuda.set_per_process_memory_fraction(min(1.0, tensors / total), self._device)
        if torch.cuda.memory_reserved(self._device) > tensors:
            torch.cuda.empty_cache()

    def _outside_bytes(self) -> int:
        """Returns what this process uses beside tensors: the smallest value ever seen."""
        free, total = torch.cuda.mem_get_info(self._device)
        others = total - free - torch.cuda.memory_reserved(self._device)
        self._outside = min(self._outside, max(0, int(others)))
        return self._outside


def synchronize(device: torch.device) -> None:
    """Waits until the GPU has executed what the loop has launched so far."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


class CopyStream:
    """A CUDA stream for copies by another thread than the training loop.

    On the loop's stream each copy would wait behind all kernels of the iteration. The copies start
    after what the loop has launched before `begin`, and are complete when `copying` ends.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        on_gpu = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if on_gpu else None  # type: ignore[no-untyped-call]
        self._begun: torch.cuda.Event | None = None

    def begin(self) -> None:
        """Records, on the thread of the loop, the work that copies must wait for."""
        if self._stream is not None:
            self._begun = torch.cuda.current_stream(self._device).record_event()

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Directs the copies of this thread to the stream."""
        if self._stream is None or self._begun is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._begun)
            yield
        self._stream.synchronize()
