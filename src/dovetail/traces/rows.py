"""The result of a reader: unchecked canonical columns, and counts of rejected rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import polars as pl

SecondsPerIteration = Callable[[str, int], float | None]
"""Returns the seconds per iteration of a model on a number of GPUs, None if unknown."""

JobIterations = Callable[[str, int], float | None]
"""Returns the iterations of a job of a model at a batch size, None if unknown."""

Training = Callable[[str, int, int], tuple[float, float] | None]
"""Returns iterations and seconds of a whole training of a model, by GPUs and batch size."""

TEXTS = (
    "model",
    "user",
    "account",
    "qos",
    "reservation",
    "recurrence",
    "queue",
    "gpu_type",
    "topology",
    "status",
    "nodes",
)
NUMBERS = (
    "iterations",
    "batch_size",
    "priority",
    "deadline_s",
    "time_limit_s",
    "min_gpus",
    "max_gpus",
    "cpus",
    "memory_gb",
    "start_s",
    "end_s",
    "wait_s",
    "restarts",
)
FLAGS = ("elastic", "shareable", "preemptible")
REQUIRED = ("job_id", "submit_s", "gpus", "duration_s")
CLOCK_TIMES = ("submit_s", "start_s", "end_s", "deadline_s")
"""The columns that are moments, which shift with the origin of the clock."""
CANONICAL = (*REQUIRED, *TEXTS[:1], *NUMBERS, *TEXTS[1:], *FLAGS)


@dataclass(frozen=True)
class Rows:
    """The rows of one file as canonical columns; values may be missing, invalid or out of order.

    `counts` has the rows that the reader rejected (`rejected: reason`) or changed (`adjusted:
    reason`), `read` all rows of the source. `epoch_s` is the Unix time of `submit_s` 0 if known,
    `zone_offset_s` the UTC offset there.
    """

    frame: pl.DataFrame
    read: int
    counts: Counter[str] = field(default_factory=Counter)
    epoch_s: float | None = None
    zone_offset_s: float = 0.0


def rejected(reason: str) -> str:
    """Returns the key that counts rows rejected for a reason."""
    return f"rejected: {reason}"


def adjusted(reason: str) -> str:
    """Returns the key that counts rows changed for a reason."""
    return f"adjusted: {reason}"
