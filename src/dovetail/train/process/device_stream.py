"""Orders the training loop and background copies on a GPU; on a CPU there is nothing to order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
