"""A worker that finds no room on its GPU ends with a code of its own, wherever its script is.

The model may be moved to the GPU long before there is a `Job`, so this is watched from the import
of `dovetail.train` on.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from dovetail.train.process.background import ends_with
from dovetail.wire.out_of_memory import tells_of_no_room

NO_ROOM_EXIT = 5
"""The exit code of a worker that found no room on its GPU, beside another perhaps."""

_is_watching = False


def watch() -> None:
    """Has this process end with that code if its script fails for want of memory; once only."""
    global _is_watching
    if not _is_watching:
        _is_watching = True
        ends_with(NO_ROOM_EXIT, is_for_want_of_room)


def is_for_want_of_room(error: BaseException) -> bool:
    """Returns whether an error, or one that led to it, says that the GPU has no room."""
    return any(
        isinstance(one, torch.OutOfMemoryError) or tells_of_no_room(str(one))
        for one in _with_causes(error)
    )


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    known: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in known:
        known.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
