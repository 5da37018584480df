"""Whether all workers have the same model, looked at where they might not.

All make the same steps, so they do. But a script may change its model in the body of the loop too
(clamp parameters after each step, say), and who learned the state, or had no samples, did not run
that. Nothing else would tell: all go on, each from where it is.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
from torch import Tensor

from dovetail.train.sync.buffers import give
from dovetail.train.sync.process_group import Group
from dovetail.train.sync.state_transfer import SLICE_BYTES

LOOKED_AT = 64
"""Elements of each tensor that are compared, at most."""


def alike(group: Group, tensors: Sequence[Tensor]) -> tuple[bool, bool]:
    """Returns whether all members have the same flat tensors, and whether as large ones.

    The same as far as some elements tell. Raises Broken.
    """
    number = 0
    for on_gpu in (False, True):
        parts = [_some_of(t) for t in tensors if t.is_cuda == on_gpu and t.numel()]
        if parts:
            number = zlib.crc32(torch.cat(parts).cpu().numpy().data, number)
    length = sum(t.numel() * t.element_size() for t in tensors)
    rows = group.gather(torch.tensor([number, length]))
    as_large = bool((rows[:, 1] == length).all())
    return as_large and bool((rows[:, 0] == number).all()), as_large


def make_alike(group: Group, tensors: Sequence[Tensor], *, first: bool) -> None:
    """Gives all members the flat tensors of one, the `first`. Raises Broken."""
    for t in tensors:
        add_up = group.sum_gradients if t.is_cuda else group.sum_control
        step = max(1, SLICE_BYTES // t.element_size())
        for begin in range(0, t.numel(), step):
            give([t[begin : begin + step]], add_up, first)


def _some_of(t: Tensor) -> Tensor:
    return t[:: -(-t.numel() // LOOKED_AT)].contiguous().view(torch.uint8)
