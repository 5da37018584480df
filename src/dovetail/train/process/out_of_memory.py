"""An exit code of its own for a worker that runs out of GPU memory, anywhere in its script.

The model may be moved to the GPU long before there is a `Job`, so this applies from the import of
`dovetail.train` on.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from dovetail.train.process.background import exit_on_error
from dovetail.wire.out_of_memory import tells_of_no_room

OUT_OF_MEMORY_EXIT = 5
"""The exit code of a worker that ran out of GPU memory."""

_is_watching = False


def watch() -> None:
    """Makes this process exit with that code if its script runs out of GPU memory; idempotent."""
    global _is_watching
    if not _is_watching:
        _is_watching = True
        exit_on_error(OUT_OF_MEMORY_EXIT, is_out_of_memory)


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error, or one of its causes, reports that the GPU is out of memory."""
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
