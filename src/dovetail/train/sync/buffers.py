"""Buffers of a model that its forward pass changes, each worker its own.

Running statistics of batch normalization are averaged (see `reduced_extras`). Every other buffer
that changed on any worker is broadcast from the first worker with samples, as in
DistributedDataParallel. All workers stay identical, so any of them may leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress

import torch
from torch import Tensor, nn

from dovetail.train.sync.process_group import Operation, WorkerGroup

COMPARED_BYTES = 1 << 20
"""Buffers up to this size are compared by value; of larger ones only the version is read."""
COMPARED_ITERATIONS = 3


class BufferSlot:
    """The place of a buffer in a module, and the tensor that belongs there."""

    def __init__(self, module: nn.Module, name: str, tensor: Tensor) -> None:
        self._module, self._name, self.tensor = module, name, tensor
        self._version, self._before = tensor._version, torch.empty(0)
        self._compared = 0
        self.changes = False
        self.small = tensor.numel() * tensor.element_size() <= COMPARED_BYTES

    def begin(self) -> None:
        """Records the buffer before an iteration."""
        self._version = self.tensor._version
        if self.small and not self.changes and self._compared < COMPARED_ITERATIONS:
            self._compared += 1
            self._before = self.tensor.clone()

    def changed(self) -> bool:
        """Returns whether the buffer has changed since `begin`.

        The version counter misses writes through `.data`, so values are compared too, in the first
        iterations.
        """
        # First: `put_back` copies a replacement into the buffer, which must count as a change.
        self.put_back()
        if self.tensor._version != self._version:
            return True
        if self._before.numel() and not torch.equal(self._before, self.tensor):
            self.changes = True
        self._before = torch.empty(0)
        return self.changes

    def put_back(self) -> None:
        """Copies a replacement tensor into the original buffer, to which other objects refer."""
        now = self._module._buffers[self._name]
        if now is self.tensor or now is None:
            return
        if now.shape != self.tensor.shape or now.dtype != self.tensor.dtype:
            raise RuntimeError(f"the buffer {self._name!r} must keep its shape and data type")
        self.tensor.copy_(now)
        self._module._buffers[self._name] = self.tensor


def group_by_type(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Groups tensors by data type and device, so that one fused operation can copy each group."""
    groups: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for t in tensors:
        groups.setdefault((t.dtype, t.device), []).append(t)
    return list(groups.values())


class BufferBackup:
    """A copy of buffers from before an iteration that may have to be repeated."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._copy_of: dict[int, Tensor] = {}

    @torch.no_grad()
    def remember(self, tensors: list[Tensor]) -> None:
        """Copies the buffers."""
        self._copy_of |= {id(t): torch.empty_like(t) for t in tensors if id(t) not in self._copy_of}
        self._tensors = tensors
        for group in group_by_type(tensors):
            torch._foreach_copy_(self._copies(group), group)

    @torch.no_grad()
    def restore(self) -> None:
        """Writes the copies back, unless `forget` was called."""
        for group in group_by_type(self._tensors):
            torch._foreach_copy_(group, self._copies(group))
        self.forget()

    def forget(self) -> None:
        """Discards the backup; the memory is reused."""
        self._tensors = []

    def _copies(self, tensors: list[Tensor]) -> list[Tensor]:
        return [self._copy_of[id(t)] for t in tensors]


class ModelBuffers:
    """All buffers of a model except those that are averaged."""

    def __init__(self, model: nn.Module, *, others: Sequence[Tensor]) -> None:
        known = {id(t) for t in others}
        self._slots: list[BufferSlot] = []
        for module in model.modules():
            for name, tensor in module._buffers.items():
                if tensor is not None and id(tensor) not in known:
                    # Modules may share a buffer; it is sent once.
                    known.add(id(tensor))
                    self._slots.append(BufferSlot(module, name, tensor))
        self._ever = [False] * len(self._slots)

    def __len__(self) -> int:
        """Returns the number of buffers."""
        return len(self._slots)

    def begin(self) -> None:
        """Records the buffers before an iteration."""
        for slot in self._slots:
            slot.begin()

    def at_risk(self) -> list[Tensor]:
        """Returns the buffers to back up: those that have ever changed, and all small ones."""
        both = zip(self._slots, self._ever, strict=True)
        return [slot.tensor for slot, ever in both if ever or slot.small]

    def restore_originals(self) -> None:
        """Restores the original tensors of buffers that the script replaced."""
        for slot in self._slots:
            slot.put_back()

    @torch.no_grad()
    def changed(self) -> list[bool]:
        """Returns, for each buffer, whether it changed on this worker since `begin`."""
        return [slot.changed() for slot in self._slots]

    def take_changes(self, group: WorkerGroup, changed: Sequence[bool], first: bool) -> None:
        """Broadcasts from the first worker what changed on any worker. Raises GroupBroken."""
        self._ever = [a or b for a, b in zip(self._ever, changed, strict=True)]
        self._broadcast(group, changed, first)

    def level(self, group: WorkerGroup, first: bool) -> None:
        """Broadcasts from the first worker every buffer that ever changed. Raises GroupBroken.

        Workers that joined lately have not seen the earlier changes, so the flags are summed first.
        """
        if self._slots:
            ever = torch.tensor(self._ever, dtype=torch.float64)
            group.sum_control(ever).wait()
            self._ever = [count > 0 for count in ever.tolist()]
            self._broadcast(group, self._ever, first)

    def _broadcast(self, group: WorkerGroup, which: Sequence[bool], first: bool) -> None:
        tensors = [slot.tensor for slot in compress(self._slots, which)]
        for on_gpu in (False, True):  # a buffer may stay on the CPU beside a model on a GPU
            some = [t for t in tensors if t.is_cuda == on_gpu]
            if some:
                broadcast_tensors(some, group.sum_gradients if on_gpu else group.sum_control, first)


@torch.no_grad()
def broadcast_tensors(
    tensors: Sequence[Tensor], add_up: Callable[[Tensor], Operation], first: bool
) -> None:
    """Broadcasts the tensors of the `first` worker to all. Raises GroupBroken."""
    # A broadcast as a sum to which all others add zeros: exact on bytes, with gloo and NCCL.
    payload = torch.cat([t.reshape(-1).view(torch.uint8) for t in tensors])
    if not first:
        payload.zero_()
    add_up(payload).wait()
    begin = 0
    for t in tensors:
        size = t.numel() * t.element_size()
        t.copy_(payload[begin : begin + size].clone().view(t.dtype).view(t.shape))
        begin += size
