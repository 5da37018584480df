"""Buffers of a model that its forward pass changes: each worker changes its own.

Running statistics of batch normalization are averaged (see `tail`). Of all other buffers that
changed on any worker, those of the first worker with samples become everybody's, as in torch's own
data-parallel training: so all workers stay alike, and any may leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress

import torch
from torch import Tensor, nn

from dovetail.train.sync.process_group import Group, Waiting

COMPARED_BYTES = 1 << 20
"""Buffers up to this size are compared; of larger ones only the version is looked at."""
COMPARED_ITERATIONS = 3


class Slot:
    """A place in a module where a buffer lies, and the tensor that is meant to lie there."""

    def __init__(self, module: nn.Module, name: str, tensor: Tensor) -> None:
        self._module, self._name, self.tensor = module, name, tensor
        self._version, self._before = tensor._version, torch.empty(0)
        self._compared = 0
        self.changes = False
        self.small = tensor.numel() * tensor.element_size() <= COMPARED_BYTES

    def begin(self) -> None:
        """Remembers the buffer as it is."""
        self._version = self.tensor._version
        if self.small and not self.changes and self._compared < COMPARED_ITERATIONS:
            self._compared += 1
            self._before = self.tensor.clone()

    def changed(self) -> bool:
        """Returns whether the buffer is not what it was at the beginning.

        A version says so, but not of what was written by way of `.data`: for that the buffer is
        compared, in the first iterations.
        """
        self.put_back()
        if self.tensor._version != self._version:
            return True
        if self._before.numel() and not torch.equal(self._before, self.tensor):
            self.changes = True
        self._before = torch.empty(0)
        return self.changes

    def put_back(self) -> None:
        """Has a buffer that was replaced by another tensor lie where it lay: others refer to it."""
        now = self._module._buffers[self._name]
        if now is self.tensor or now is None:
            return
        if now.shape != self.tensor.shape or now.dtype != self.tensor.dtype:
            raise RuntimeError(f"the buffer {self._name!r} must keep its shape and type")
        self.tensor.copy_(now)
        self._module._buffers[self._name] = self.tensor


def by_kind(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Returns the tensors by type and device: those alike can be copied by one operation."""
    found: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for t in tensors:
        found.setdefault((t.dtype, t.device), []).append(t)
    return list(found.values())


class Before:
    """Buffers as they were before an iteration that may have to be done again."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._room: dict[int, Tensor] = {}

    @torch.no_grad()
    def remember(self, tensors: list[Tensor]) -> None:
        """Copies them."""
        self._room |= {id(t): torch.empty_like(t) for t in tensors if id(t) not in self._room}
        self._tensors = tensors
        for alike in by_kind(tensors):
            torch._foreach_copy_(self._copies(alike), alike)

    @torch.no_grad()
    def restore(self) -> None:
        """Makes them what they were, unless that was forgotten."""
        for alike in by_kind(self._tensors):
            torch._foreach_copy_(alike, self._copies(alike))
        self.forget()

    def forget(self) -> None:
        """Needs what was before no more."""
        self._tensors = []

    def _copies(self, tensors: list[Tensor]) -> list[Tensor]:
        return [self._room[id(t)] for t in tensors]


class Buffers:
    """All buffers of a model but those that are averaged."""

    def __init__(self, model: nn.Module, *, others: Sequence[Tensor]) -> None:
        known = {id(t) for t in others}
        self._slots: list[Slot] = []
        for module in model.modules():
            for name, tensor in module._buffers.items():
                if tensor is not None and id(tensor) not in known:
                    known.add(id(tensor))
                    self._slots.append(Slot(module, name, tensor))
        self._ever = [False] * len(self._slots)

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self._slots)

    def begin(self) -> None:
        """Remembers them as they are."""
        for slot in self._slots:
            slot.begin()

    def at_risk(self) -> list[Tensor]:
        """Returns those that an iteration may change, and that are copied in no time or must be."""
        both = zip(self._slots, self._ever, strict=True)
        return [slot.tensor for slot, ever in both if ever or slot.small]

    def lie_where_they_lay(self) -> None:
        """Puts back those that were replaced by other tensors."""
        for slot in self._slots:
            slot.put_back()

    @torch.no_grad()
    def changed(self) -> list[bool]:
        """Returns which have changed here since `begin`."""
        return [slot.changed() for slot in self._slots]

    def take_changes(self, group: Group, changed: Sequence[bool], first: bool) -> None:
        """Gives all workers those of the first that any has changed. Raises Broken."""
        self._ever = [a or b for a, b in zip(self._ever, changed, strict=True)]
        self._give(group, changed, first)

    def level(self, group: Group, first: bool) -> None:
        """Gives all workers those of the first that ever changed. Raises Broken.

        Which did, whoever joined lately has not seen.
        """
        if self._slots:
            ever = torch.tensor(self._ever, dtype=torch.float64)
            group.sum_control(ever).wait()
            self._ever = [count > 0 for count in ever.tolist()]
            self._give(group, self._ever, first)

    def _give(self, group: Group, which: Sequence[bool], first: bool) -> None:
        tensors = [slot.tensor for slot in compress(self._slots, which)]
        for on_gpu in (False, True):  # a buffer may stay on the CPU beside a model on a GPU
            some = [t for t in tensors if t.is_cuda == on_gpu]
            if some:
                give(some, group.sum_gradients if on_gpu else group.sum_control, first)


@torch.no_grad()
def give(tensors: Sequence[Tensor], add_up: Callable[[Tensor], Waiting], first: bool) -> None:
    """Gives all members the tensors of the first. Raises Broken."""
    said = torch.cat([t.reshape(-1).view(torch.uint8) for t in tensors])
    if not first:
        said.zero_()
    add_up(said).wait()
    begin = 0
    for t in tensors:
        size = t.numel() * t.element_size()
        t.copy_(said[begin : begin + size].clone().view(t.dtype).view(t.shape))
        begin += size
