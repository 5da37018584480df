"""What travels beside the gradients of an iteration: loss, weight, flags, running statistics.

Statistics of batch normalization differ between workers; their weighted mean replaces them, so
that all workers stay alike and any may leave. How many batches they are of, the first worker with
samples says. A deep network has hundreds of these small tensors: they are copied all at once, by
data type, since each operation of its own would be a kernel to launch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from dovetail.train.sync.buffers import by_kind

HEAD = 6
"""The numbers of `Sums` before those of the parameters."""


@dataclass(frozen=True, slots=True)
class Sums:
    """What workers say of an iteration: sums of loss and weight, and what any of them said.

    It is `weighted` if a weight of the user's was given, `by_weight` if one was not 0,
    `by_samples` if none was given for some batch; it is `ended` if training ends without this
    step. `touched` are the parameters that got a gradient.
    """

    loss: Tensor | float
    weight: float
    weighted: bool
    by_weight: bool
    by_samples: bool
    ended: bool
    touched: Sequence[bool]


@dataclass(frozen=True, slots=True)
class _Alike:
    """Buffers of one type and device, each as a row of elements, and their place in the tail."""

    rows: list[Tensor]
    sizes: list[int]
    begin: int
    end: int
    are_means: bool

    def write(self, flat: Tensor, share: float) -> None:
        """Writes the share that this worker adds."""
        place = flat[self.begin : self.end]
        place.copy_(torch.cat(self.rows)).mul_(share)

    def read(self, flat: Tensor) -> None:
        """Takes the values of all workers."""
        first = self.rows[0]
        values = flat[self.begin : self.end].to(first.device, first.dtype)
        torch._foreach_copy_(self.rows, values.split_with_sizes(self.sizes))


class Tail:
    """The tail of an iteration of one model, for so many `flags`."""

    def __init__(self, model: nn.Module, flags: int, device: torch.device) -> None:
        self._flags = HEAD + flags
        self.buffers = list(running_statistics(model))
        length, self._alike = self._flags, list[_Alike]()
        for same in by_kind(self.buffers):
            rows = [b.detach().view(-1) for b in same]
            sizes = [row.numel() for row in rows]
            begin, length = length, length + sum(sizes)
            self._alike.append(_Alike(rows, sizes, begin, length, same[0].is_floating_point()))
        self.flat = torch.zeros(length, dtype=torch.float64, device=device)

    def renew(self) -> None:
        """Takes another buffer."""
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
        """Writes what this worker adds; `part` is its part of the iteration's samples."""
        head = torch.tensor([0.0, weight, *flags], dtype=torch.float64)
        self.flat[: self._flags] = head
        if loss is not None:
            self.flat[0] = loss
        for alike in self._alike:
            alike.write(self.flat, part if alike.are_means else float(first))

    @torch.no_grad()
    def restore(self) -> None:
        """Gives the statistics of all workers to this one."""
        for alike in self._alike:
            alike.read(self.flat)

    def sums(self, parameters: int) -> tuple[Sums, list[bool]]:
        """Returns the sums of all workers, and which other flags any has raised."""
        loss, weight, *counts = self.flat[: self._flags].tolist()
        said = [count > 0 for count in counts]
        weighted, by_weight, by_samples, ended, *rest = said
        head = (loss, weight, weighted, by_weight, by_samples, ended)
        return Sums(*head, rest[:parameters]), rest[parameters:]


def running_statistics(model: nn.Module) -> Iterable[Tensor]:
    """Yields the buffers of layers that normalize over a batch."""
    norms = [m for m in model.modules() if isinstance(m, _NormBase)]
    yield from (b for m in norms if (b := m.num_batches_tracked) is not None)
    yield from (b for m in norms for b in (m.running_mean, m.running_var) if b is not None)
