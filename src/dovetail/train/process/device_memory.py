"""The memory of the device that a worker trains on: how much it holds, and its bound."""

from __future__ import annotations

import resource
import sys

import torch

OUTSIDE_BYTES_MAX = 1 << 30
"""What a process holds of a GPU beside its tensors (the context, code of kernels, buffers of NCCL)
is taken to be at most this: beside another process it cannot be told from the other's."""


class DeviceMemory:
    """The memory of one device, as this process uses it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._on_gpu = device.type == "cuda"
        self._outside = OUTSIDE_BYTES_MAX
        self._bound = 0

    def held_bytes(self) -> int:
        """Returns the most that was held since it was renewed: on a GPU, or by the process."""
        if self._on_gpu:
            return int(torch.cuda.max_memory_reserved(self._device)) + self._outside_bytes()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

    def renew(self) -> None:
        """Gives back to the GPU what is not in use, and counts anew.

        NOTE: torch keeps what larger micro-batches needed; a neighbour would find no room.
        """
        if self._on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._device)

    def bound(self, bytes_max: int) -> None:
        """Refuses this process more of its GPU (0: no bound); on a CPU the agent sees to it.

        What torch keeps unused goes back to the GPU where it is more than that.
        """
        if not self._on_gpu or bytes_max == self._bound:
            return
        self._bound = bytes_max
        total = torch.cuda.get_device_properties(self._device).total_memory
        # Torch bounds its tensors alone. They get half of any bound, however small.
        tensors = max(bytes_max - self._outside_bytes(), bytes_max / 2) if bytes_max else total
        torch.cuda.set_per_process_memory_fraction(min(1.0, tensors / total), self._device)
        if torch.cuda.memory_reserved(self._device) > tensors:
            torch.cuda.empty_cache()

    def _outside_bytes(self) -> int:
        """Returns what this process holds beside tensors: the least that was ever seen."""
        free, total = torch.cuda.mem_get_info(self._device)
        others = total - free - torch.cuda.memory_reserved(self._device)
        self._outside = min(self._outside, max(0, int(others)))
        return self._outside
