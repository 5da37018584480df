"""Reads sacct's own columns from a Parquet file, as the texts that `sacct -P` prints.

Values may be stored as texts, or as what they mean: times as timestamps (without a zone they are
local) or Unix seconds, spans as durations, counts as numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from dovetail.core.errors import InputError
from dovetail.traces.readers.format import refuse
from dovetail.traces.readers.parquet_table import ParquetTable
from dovetail.traces.readers.sacct_lines import check_columns
from dovetail.traces.rows import Refusals

_SPANS = {
    "Elapsed": "store seconds as ElapsedRaw",
    "Timelimit": "store minutes as TimelimitRaw",
    "Suspended": "store a duration, or texts as 00:05:00",
}
_TIMES = ("Submit", "Eligible", "Start", "End")
_SECONDS_MAX = 1e11
"""Larger numbers are no Unix seconds but milliseconds or less: the year 5138."""


def stored_rows(path: Path, columns: Sequence[str], refused: Refusals) -> tuple[pl.DataFrame, int]:
    """Returns the rows of jobs as texts, numbered from 1 as `line`, and how many rows were read.

    Raises InputError.
    """
    if columns:
        what = f"{path} names its columns itself"
        raise InputError("--columns", what, "leave it out")
    table = ParquetTable.read(path, "UTC", ())
    check_columns(str(path), table.frame.columns)
    texts = [_text(table, name) for name in table.frame.columns]
    frame = pl.DataFrame(texts).with_row_index("line", offset=1).cast({"line": pl.Int64})
    job = frame["JobID" if "JobID" in frame.columns else "JobIDRaw"]
    return refuse(frame, job == "", "no job id", refused), len(table)


def _text(table: ParquetTable, name: str) -> pl.Series:
    """Returns one column as sacct prints it."""
    values = table.frame[name]
    kind = values.dtype
    if kind.is_numeric():
        if name in _SPANS and f"{name}Raw" in table.frame.columns:
            return table.text()  # The raw column is the one that is read.
        return _number(f"{table.path}, column {name}", values)
    if isinstance(kind, pl.Datetime) and kind.time_zone is not None:
        return _printed(values.dt.epoch("s").cast(pl.String))
    if isinstance(kind, pl.Datetime):
        return _printed(values.dt.strftime("%Y-%m-%dT%H:%M:%S"))
    if isinstance(kind, pl.Duration):
        minutes, seconds = values.dt.total_minutes(), values.dt.total_seconds()
        clock = pl.format("{}:{}:{}", pl.lit(minutes // 60), pl.lit(minutes % 60), seconds % 60)
        return _printed(pl.select(clock.alias(name)).to_series())
    return table.text(name).alias(name)


def _number(where: str, values: pl.Series) -> pl.Series:
    """Returns a column of numbers as texts, whole ones without a point. Raises InputError."""
    if values.name in _SPANS and values.null_count() < len(values):
        raise InputError(where, "has numbers, whose unit is not known", _SPANS[values.name])
    known = values.cast(pl.Float64).fill_nan(None)
    if values.name in _TIMES and (known > _SECONDS_MAX).any():
        what = "has numbers that are too large for Unix seconds"
        raise InputError(where, what, "store Unix seconds, or timestamps")
    whole = (known.drop_nulls() % 1 == 0).all()
    return _printed(known.cast(pl.Int64 if whole else pl.Float64).cast(pl.String))


def _printed(texts: pl.Series) -> pl.Series:
    return texts.fill_null("")
