"""Broadcasts plain values that the script's loop may change, such as learning rates.

A worker that is catching up, or has no samples in an iteration, does not run the body of the loop
and would miss what the loop sets there.
"""

from __future__ import annotations

import torch

from dovetail.train.state.state import TrainingState
from dovetail.train.sync.process_group import WorkerGroup


def broadcast_settings(
    group: WorkerGroup, parts: TrainingState, *, source: int, takes: bool, whole: bool
) -> None:
    """Broadcasts settings from `source`; workers with `takes` apply them. Raises GroupBroken.

    A collective: all workers of the group must call it.
    """
    mine = group.rank == source
    settings = parts.settings(whole=whole) if mine else b""
    # Two sums with zeros from the other workers: first the length, then the bytes.
    length = torch.tensor([float(len(settings))], dtype=torch.float64)
    group.sum_control(length).wait()
    body = torch.zeros(int(length.item()), dtype=torch.uint8)
    if mine:
        body.copy_(torch.frombuffer(bytearray(settings), dtype=torch.uint8))
    group.sum_control(body).wait()
    if takes and not mine:
        parts.take_settings(body.numpy().tobytes())
