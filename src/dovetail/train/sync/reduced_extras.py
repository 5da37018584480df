"""What is reduced beside the gradients: loss, weight, flags and running statistics.

Running statistics of batch normalization differ between workers. Their weighted mean replaces
them, so that all workers stay identical and any of them may leave. The count of batches comes
from the first worker with samples. A deep network has hundreds of these small tensors: they are
copied together, by data type, because each copy of its own would launch a kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from dovetail.train.sync.buffers import group_by_type

HEAD = 6
"""The numbers of `IterationSums` before the flags of the parameters."""


@dataclass(frozen=True, slots=True)
class IterationSums:
    """Sums of loss and weight over all workers, and flags that any worker raised.

    `weighted`: the script passed a weight; `by_weight`: a weight other than 0; `by_samples`: no
    weight for some batch; `ended`: training ends without this step. `touched` marks the
    parameters that got a gradient.
    """

    loss: Tensor | float
    weight: float
    weighted: bool
    by_weight: bool
    by_samples: bool
    ended: bool
    touched: Sequence[bool]


@dataclass(frozen=True, slots=True)
class _BufferGroup:
    """Flattened buffers of one data type and device, and their place in the reduced vector."""

    rows: list[Tensor]
    sizes: list[int]
    begin: int
    end: int
    are_means: bool

    def write(self, flat: Tensor, share: float) -> None:
        """Writes this worker's share of the buffers."""
        place = flat[self.begin : self.end]
        place.copy_(torch.cat(self.rows)).mul_(share)

    def read(self, flat: Tensor) -> None:
        """Copies the reduced values back into the buffers."""
        first = self.rows[0]
        values = flat[self.begin : self.end].to(first.device, first.dtype)
        torch._foreach_copy_(self.rows, values.split_with_sizes(self.sizes))


class ReducedExtras:
    """The extra values of an iteration as one flat vector, with room for `flags` flags."""

    def __init__(self, model: nn.Module, flags: int, device: torch.device) -> None:
        self._flags = HEAD + flags
        self.buffers = list(running_statistics(model))
        length, self._groups = self._flags, list[_BufferGroup]()
        for same in group_by_type(self.buffers):
            rows = [b.detach().view(-1) for b in same]
            sizes = [row.numel() for row in rows]
            begin, length = length, length + sum(sizes)
            self._groups.append(
                _BufferGroup(rows, sizes, begin, length, same[0].is_floating_point())
            )
        # float64 keeps sums of statistics as precise as the float32 buffers they come from.
        self.flat = torch.zeros(length, dtype=torch.float64, device=device)

    def renew(self) -> None:
        """Allocates a new vector."""
        self.flat = torch.zeros_like(self.flat)

    @torch.no_grad()
    def fill(
        self,
        loss: Tensor | None,
        weight: float,
        flags: Sequence[bool],
        *,
        part: float,
        first: bool,
    ) -> None:
        """Writes the values of this worker; `part` is its part of the iteration's samples."""
        head = torch.tensor([0.0, weight, *flags], dtype=torch.float64)
        self.flat[: self._flags] = head
        if loss is not None:
            self.flat[0] = loss
        for group in self._groups:
            group.write(self.flat, part if group.are_means else float(first))

    @torch.no_grad()
    def restore(self) -> None:
        """Copies the reduced statistics into the buffers of this worker."""
        for group in self._groups:
            group.read(self.flat)

    def sums(self, parameters: int) -> tuple[IterationSums, list[bool]]:
        """Returns the sums of all workers, and the remaining flags."""
        # One copy to the host for all numbers; each `item()` would synchronize the device.
        loss, weight, *counts = self.flat[: self._flags].tolist()
        raised = [count > 0 for count in counts]
        weighted, by_weight, by_samples, ended, *rest = raised
        head = (loss, weight, weighted, by_weight, by_samples, ended)
        return IterationSums(*head, rest[:parameters]), rest[parameters:]


def running_statistics(model: nn.Module) -> Iterable[Tensor]:
    """Yields the buffers of layers that normalize over a batch."""
    norms = [m for m in model.modules() if isinstance(m, _NormBase)]
    yield from (b for m in norms if (b := m.num_batches_tracked) is not None)
    yield from (b for m in norms for b in (m.running_mean, m.running_var) if b is not None)
