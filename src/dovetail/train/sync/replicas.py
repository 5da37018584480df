"""Keeps settings, buffers and models equal on all workers, where a script could change them.

All workers make the same steps, so their models stay identical. But a script may also change
learning rates or parameters in the body of its loop, which workers that are catching up, or have no
samples, do not run. They would silently train a different model.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
from torch import Tensor

from dovetail.train.process.environment import warn
from dovetail.train.state.state import TrainingState
from dovetail.train.sync.buffers import broadcast_tensors
from dovetail.train.sync.gradients import Gradients
from dovetail.train.sync.process_group import WorkerGroup
from dovetail.train.sync.state_transfer import SLICE_BYTES, flatten, is_dense

COMPARED_ELEMENTS = 64
"""Compared elements of each tensor, at most."""


class ModelReplicas:
    """The copies of a job's state on its workers, as seen by one of them.

    All methods are collectives: every worker of the group must call them, and with the same
    `source`, the rank of the first worker with samples. All raise GroupBroken.
    """

    def __init__(self, parts: TrainingState, gradients: Gradients, data: int) -> None:
        """`data` is a checksum of the data."""
        self._parts, self._gradients, self._data = parts, gradients, data
        self._compared_in = -1
        self._warned: set[str] = set()

    def broadcast_settings(
        self, group: WorkerGroup, *, source: int, takes: bool, whole: bool
    ) -> None:
        """Broadcasts settings from `source`; workers with `takes` apply them."""
        mine = group.rank == source
        settings = self._parts.settings(whole=whole) if mine else b""
        # Two sums with zeros from the other workers: first the length, then the bytes.
        length = torch.tensor([float(len(settings))], dtype=torch.float64)
        group.sum_control(length).wait()
        body = torch.zeros(int(length.item()), dtype=torch.uint8)
        if mine:
            body.copy_(torch.frombuffer(bytearray(settings), dtype=torch.uint8))
        group.sum_control(body).wait()
        if takes and not mine:
            self._parts.take_settings(body.numpy().tobytes())

    def synchronize(
        self, group: WorkerGroup, *, source: int, leads: bool, some_idle: bool, pass_ended: bool
    ) -> None:
        """Makes buffers and parameters equal after a step, where they could differ.

        `some_idle`: a worker had no samples; `leads`: this worker prints the warnings.
        """
        if some_idle:
            self._gradients.level_buffers(group, group.rank == source)
        # With samples on all workers every one runs the same code: once a pass is often enough.
        if some_idle or (group.size > 1 and pass_ended):
            self._synchronize_model(group, source, leads)
        if group.size > 1 and self._compared_in != group.generation:
            self._compared_in = group.generation
            checksums = group.gather(torch.tensor([self._data]))
            if leads and not (checksums == self._data).all():
                self._warn_once(
                    "workers do not have the same data: what the script draws without a seed (a"
                    " split, for example) differs between workers, and it may train on its"
                    " validation samples"
                )

    def _synchronize_model(self, group: WorkerGroup, source: int, leads: bool) -> None:
        tensors = flatten([t for t in self._parts.trained() if is_dense(t)])
        same, same_size = compare_replicas(group, tensors)
        if same:
            return
        if leads:
            self._warn_once(
                "workers did not have the same model: if the body of the loop changes parameters,"
                " move that into optimizer.register_step_post_hook(...)"
            )
        if not same_size:
            return  # sums need tensors of one size on all workers
        for t in tensors:
            add_up = group.sum_gradients if t.is_cuda else group.sum_control
            step = max(1, SLICE_BYTES // t.element_size())
            # In slices: a copy of a whole tensor may not fit into GPU memory.
            for begin in range(0, t.numel(), step):
                broadcast_tensors([t[begin : begin + step]], add_up, group.rank == source)

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warn(message)


def compare_replicas(group: WorkerGroup, tensors: Sequence[Tensor]) -> tuple[bool, bool]:
    """Returns whether all workers have equal flat tensors, and whether of equal total size.

    Compares a checksum of sampled elements. Raises GroupBroken.
    """
    checksum = 0
    for on_gpu in (False, True):
        samples = [_sample(t) for t in tensors if t.is_cuda == on_gpu and t.numel()]
        if samples:
            checksum = zlib.crc32(torch.cat(samples).cpu().numpy().data, checksum)
    size = sum(t.numel() * t.element_size() for t in tensors)
    rows = group.gather(torch.tensor([checksum, size]))
    same_size = bool((rows[:, 1] == size).all())
    return same_size and bool((rows[:, 0] == checksum).all()), same_size


def _sample(t: Tensor) -> Tensor:
    return t[:: -(-t.numel() // COMPARED_ELEMENTS)].contiguous().view(torch.uint8)
