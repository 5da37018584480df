"""What the workers of synthetic jobs do, as their nodes see it."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.wire.worker import FromWorker


@dataclass(frozen=True, slots=True)
class SyntheticEvent:
    """A worker sent a message, or (`message` None) ended with an exit code."""

    node: int
    job: int
    worker: int
    message: FromWorker | None
    exit_code: int = 0
