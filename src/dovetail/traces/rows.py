"""The result of a reader: unchecked canonical columns, and counts of rejected rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import polars as pl

from dovetail.core.trace import ImportRecord

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
    "runs",
)
NUMBERS = (
    "iterations",
    "batch_size",
    "priority",
    "deadline_s",
    "time_limit_s",
    "restart_s",
    "min_gpus",
    "max_gpus",
    "gpu_part",
    "cpus",
    "memory_gb",
    "eligible_s",
    "start_s",
    "end_s",
    "wait_s",
    "restarts",
)
FLAGS = ("elastic", "shareable", "preemptible")
REQUIRED = ("job_id", "submit_s", "gpus", "duration_s")
CLOCK_TIMES = ("submit_s", "eligible_s", "start_s", "end_s", "deadline_s")
"""The columns that are moments, which shift with the origin of the clock."""
CANONICAL = (*REQUIRED, *TEXTS[:1], *NUMBERS, *TEXTS[1:], *FLAGS)


@dataclass(frozen=True)
class Rows:
    """The rows of one file as canonical columns; values may be missing, invalid or out of order.

    `counts` has the rows that the reader rejected (`rejected: reason`) or changed (`adjusted:
    reason`) or made one of several (`joined: reason`), `read` all rows of the source. `frame` may
    have the `line` of each row, and `refused` the rejected rows. `notes` are sentences on what the
    reader assumed. `beside_gpus`: jobs without GPU ran on the machines of the others. `epoch_s` is
    the Unix time of `submit_s` 0 if known, `zone_offset_s` the UTC offset there. `imported` is the
    record of an import before this one; `origin_s` the Unix time of second 0 once `submit_s`
    counts from there.
    """

    frame: pl.DataFrame
    read: int
    counts: Counter[str] = field(default_factory=Counter)
    epoch_s: float | None = None
    zone_offset_s: float = 0.0
    refused: Sequence[pl.DataFrame] = ()
    notes: tuple[str, ...] = ()
    beside_gpus: bool = False
    imported: ImportRecord | None = None
    origin_s: float | None = None


REFUSED = pl.Schema(
    {
        "line": pl.Int64,
        "reason": pl.String,
        "gpu_s": pl.Float64,
        "gpus": pl.Float64,
        "stayed_s": pl.Float64,
    }
)
"""A rejected row: its line from 1, why, the GPU-seconds it had, the GPUs that it asked for, and the
seconds from when it was eligible (else submitted) to its end; null where not known."""


@dataclass(frozen=True, slots=True)
class Refusals:
    """The rows that a reader does not use: counted by reason, and one by one."""

    counts: Counter[str] = field(default_factory=Counter)
    rows: list[pl.DataFrame] = field(default_factory=list)

    def add(self, reason: str, frame: pl.DataFrame) -> None:
        """Counts all rows of a frame; keeps their lines and GPU-seconds if it has them."""
        if frame.height:
            self.counts[rejected(reason)] += frame.height
            self.rows.append(refused_rows(frame, pl.lit(reason)))


def refused_rows(frame: pl.DataFrame, reason: pl.Expr) -> pl.DataFrame:
    """Returns the rows of a frame of (some) canonical columns as rejected rows."""
    known = [name for name in ("line", "gpus", "duration_s", "end_s") if name in frame.columns]
    line, gpus, duration_s, end_s = (
        pl.col(name) if name in known else pl.lit(None, pl.Float64)
        for name in ("line", "gpus", "duration_s", "end_s")
    )
    part = pl.col("gpu_part").fill_null(1.0) if "gpu_part" in frame.columns else pl.lit(1.0)
    since = [pl.col(name) for name in ("eligible_s", "submit_s") if name in frame.columns]
    since_s = pl.coalesce(since) if since else pl.lit(None, pl.Float64)
    shown = [pl.col("file")] if "file" in frame.columns else []
    return frame.select(
        line.cast(pl.Int64).alias("line"),
        reason.cast(pl.String).alias("reason"),
        (gpus * duration_s).cast(pl.Float64).alias("gpu_s"),
        (gpus * part).cast(pl.Float64).alias("gpus"),
        (end_s - since_s).cast(pl.Float64).alias("stayed_s"),
        *shown,
    )


def rejected(reason: str) -> str:
    """Returns the key that counts rows rejected for a reason."""
    return f"rejected: {reason}"


def joined(reason: str) -> str:
    """Returns the key that counts rows that became part of another row's job for a reason."""
    return f"joined: {reason}"


def adjusted(reason: str) -> str:
    """Returns the key that counts rows changed for a reason."""
    return f"adjusted: {reason}"
