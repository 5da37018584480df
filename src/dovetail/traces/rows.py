"""What a reader makes of a file: canonical columns, not yet checked, and what it refused itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import polars as pl

SecondsPerIteration = Callable[[str, int], float | None]
"""Gives seconds per iteration of a model on a number of GPUs, None where it does not know."""

JobIterations = Callable[[str, int], float | None]
"""Gives the iterations a job of a model at a batch size needs, None where it does not know."""

Training = Callable[[str, int, int], tuple[float, float] | None]
"""Gives iterations and seconds of a whole training of a model, on so many GPUs at a batch."""

TEXTS = ("model", "user", "recurrence", "queue", "gpu_type", "status")
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
)
FLAGS = ("elastic", "shareable", "preemptible")
REQUIRED = ("job_id", "submit_s", "gpus", "duration_s")
CANONICAL = (*REQUIRED, *TEXTS[:1], *NUMBERS, *TEXTS[1:], *FLAGS)


@dataclass(frozen=True)
class Rows:
    """One file's rows as canonical columns; values may still be missing, wrong or out of order.

    `counts` holds rows the reader refused (`rejected: reason`) or changed (`adjusted: reason`).
    `read` counts all rows of the source. `epoch_s` is the Unix time of `submit_s` 0, if known;
    `zone_offset_s` what to add to get the local clock there.
    """

    frame: pl.DataFrame
    read: int
    counts: Counter[str] = field(default_factory=Counter)
    epoch_s: float | None = None
    zone_offset_s: float = 0.0


def rejected(reason: str) -> str:
    """Returns the key under which rows refused for a reason are counted."""
    return f"rejected: {reason}"


def adjusted(reason: str) -> str:
    """Returns the key under which rows changed for a reason are counted."""
    return f"adjusted: {reason}"
