"""Checks whether all workers have the same model, where they might differ.

All workers make the same steps, so models stay identical. But a script may also change its model
in the body of the loop (clamp parameters after each step, for example). Workers that are catching
up, or have no samples, do not run that, and would silently train a different model.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
from torch import Tensor

from dovetail.train.sync.buffers import broadcast_tensors
from dovetail.train.sync.process_group import WorkerGroup
from dovetail.train.sync.state_transfer import SLICE_BYTES

COMPARED_ELEMENTS = 64
"""Compared elements of each tensor, at most."""


def compare_replicas(group: WorkerGroup, tensors: Sequence[Tensor]) -> tuple[bool, bool]:
    """Returns whether all workers have equal flat tensors, and whether of equal total size.

    Compares a checksum of sampled elements. Raises GroupBroken.
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


def broadcast_replica(group: WorkerGroup, tensors: Sequence[Tensor], *, first: bool) -> None:
    """Broadcasts the flat tensors of the `first` worker to all. Raises GroupBroken."""
    for t in tensors:
        add_up = group.sum_gradients if t.is_cuda else group.sum_control
        step = max(1, SLICE_BYTES // t.element_size())
        # In slices: a copy of a whole tensor may not fit into GPU memory.
        for begin in range(0, t.numel(), step):
            broadcast_tensors([t[begin : begin + step]], add_up, first)


def _some_of(t: Tensor) -> Tensor:
    return t[:: -(-t.numel() // COMPARED_ELEMENTS)].contiguous().view(torch.uint8)
