"""Plain values that the user's loop may change, given to workers that did not run it.

A worker that learns the state, or has no samples in an iteration, does not get to the body of the
loop; learning rates that are set there would stay behind.
"""

from __future__ import annotations

import torch

from dovetail.train.state.state import Parts
from dovetail.train.sync.process_group import Group


def level(group: Group, parts: Parts, *, source: int, takes: bool, whole: bool) -> None:
    """Gives settings of one member to those that take them; all members call it. Raises Broken."""
    mine = group.rank == source
    said = parts.settings(whole=whole) if mine else b""
    length = torch.tensor([float(len(said))], dtype=torch.float64)
    group.sum_control(length).wait()
    body = torch.zeros(int(length.item()), dtype=torch.uint8)
    if mine:
        body.copy_(torch.frombuffer(bytearray(said), dtype=torch.uint8))
    group.sum_control(body).wait()
    if takes and not mine:
        parts.take_settings(body.numpy().tobytes())
