"""A log format: its name, how to detect it and how to read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from dovetail.core.errors import InputError
from dovetail.traces.assemble import GPUS_MAX
from dovetail.traces.delimited import header_of
from dovetail.traces.rows import (
    JobIterations,
    Refusals,
    Rows,
    SecondsPerIteration,
    Training,
)
from dovetail.traces.source import PARQUET_MAGIC, parquet_columns


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Inputs of some formats besides the file.

    `work` is the length of a Muri job: `iterations` (times iteration time) or `duration`.
    `timezone` is that of local times without an offset, by default that of the format. `training`
    is for traces that have only models, unless `job_iterations` is set. `gpus_per_node` counts GPUs
    by nodes where a log has none; `spread_days` draws submissions by `seed` where it has no times.
    `columns` names the values of a log without a header.
    """

    seconds_per_iteration: SecondsPerIteration | None = None
    job_iterations: JobIterations | None = None
    work: str = "iterations"
    timezone: str = ""
    training: Training | None = None
    gpus_per_node: int = 0
    spread_days: float = 0.0
    seed: int = 0
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Head:
    """The start of a file, for detecting its format."""

    path: Path
    text: bytes

    @property
    def columns(self) -> list[str]:
        """Returns the names of the columns: of Parquet, else the first line split at commas."""
        if self.parquet:
            return parquet_columns(self.path)
        return header_of(self.text)

    @property
    def parquet(self) -> bool:
        """Returns whether this is a Parquet file."""
        return self.text.startswith(PARQUET_MAGIC)

    def has(self, *columns: str) -> bool:
        """True if the first line has all these columns."""
        return set(columns) <= set(self.columns)


def has_columns(*columns: str) -> Callable[[Head], bool]:
    """Returns the test whether a file has all these columns."""
    return lambda head: head.has(*columns)


@dataclass(frozen=True, slots=True)
class Format:
    """A log format. `read` returns the rows of one file, `join` those of several files together."""

    name: str
    title: str
    matches: Callable[[Head], bool] = field(repr=False)
    read: Callable[[Path, ReadOptions], Rows] = field(repr=False)
    join: Callable[[Sequence[Path], ReadOptions], Rows] | None = field(default=None, repr=False)
    needs: str = ""
    parquet: bool | None = False
    """Whether files of this format are Parquet, not text; None: either."""


def step_times(path: Path, options: ReadOptions, models: pl.Series, gpus: pl.Series) -> pl.Series:
    """Returns seconds per iteration for each row, null where not known. Raises InputError."""
    known = options.seconds_per_iteration
    if known is None:
        raise InputError(
            str(path),
            "gives work in iterations, so it needs the seconds an iteration takes",
            "supply step times by model and GPUs",
        )
    pairs = pl.DataFrame({"model": models, "gpus": gpus.cast(pl.Float64)})
    distinct = pairs.unique(maintain_order=True)
    values = [
        known(model, round(n)) if n is not None and 1 <= n <= GPUS_MAX else None
        for model, n in distinct.iter_rows()
    ]
    table = distinct.with_columns(pl.Series("step_s", values, dtype=pl.Float64))
    joined = pairs.join(
        table, on=["model", "gpus"], how="left", maintain_order="left", nulls_equal=True
    )
    return joined["step_s"]


def refuse(frame: pl.DataFrame, bad: pl.Series, reason: str, refused: Refusals) -> pl.DataFrame:
    """Returns the rows that are not bad, and notes the others under a reason."""
    bad = bad.fill_null(False)
    if not bad.any():
        return frame
    refused.add(reason, frame.filter(bad))
    return frame.filter(~bad)
