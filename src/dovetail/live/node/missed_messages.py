"""What an agent repeats to a worker that connects (again)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dovetail.wire.worker import Abandon, Checkpoint, Meet, Regroup, ToWorker

RESENT = (Abandon, Regroup, Meet, Checkpoint)
"""Messages repeated to a worker that connects, in this order: it first leaves what is broken."""


def missed(last: Iterable[ToWorker], generation: int, limited: int) -> Iterator[ToWorker]:
    """Yields those of the last messages of each class that a worker may have missed.

    It is in `generation`, and runs under the limits of generation `limited`.
    """
    by_class = {type(message): message for message in last}
    for kind in RESENT:
        message = by_class.get(kind)
        if message is None:
            continue
        # Neither a generation it has entered already, nor one from before its limits: the worker
        # reads its limits together with the generation they belong to.
        if isinstance(message, Regroup | Meet) and not (
            max(generation + 1, limited) <= message.generation
        ):
            continue
        if isinstance(message, Abandon) and message.generation < generation:
            continue
        yield message
