"""Order between the training loop and what runs beside it on a GPU; a CPU keeps order itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def computed(device: torch.device) -> None:
    """Returns when the GPU has done what the loop gave it: the loop itself is far ahead of it."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


class Beside:
    """Copies on a stream of their own, by another thread than the loop.

    On the loop's stream each would wait behind all kernels of the iteration. They start after what
    the loop has given the GPU so far, and are complete when `copying` ends.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        on_gpu = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if on_gpu else None  # type: ignore[no-untyped-call]
        self._begun: torch.cuda.Event | None = None

    def begin(self) -> None:
        """Notes, on the thread of the loop, what is to be done before."""
        if self._stream is not None:
            self._begun = torch.cuda.current_stream(self._device).record_event()

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Makes the copies of this thread go beside the loop."""
        if self._stream is None or self._begun is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._begun)
            yield
        self._stream.synchronize()
