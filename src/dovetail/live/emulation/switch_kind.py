"""What kind of switch leads from one placement of a job to another; each kind has its cost."""

from __future__ import annotations

from dovetail.core.messages import ADJUST, LIMIT, MOVE, RESIZE
from dovetail.core.placement import Placement


def switch_kind(before: Placement, after: Placement) -> str:
    """Returns why a job that trains is placed anew, as `control.state` does."""
    if before.gpus != after.gpus:
        return RESIZE
    if before.moves_to(after):
        return MOVE
    return ADJUST if before.fractions == after.fractions else LIMIT
