"""Columns of a Parquet file as texts, numbers and Unix seconds, whatever their stored type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from dovetail.core.errors import InputError, nearest
from dovetail.traces.clock import moments


@dataclass(frozen=True, slots=True)
class ParquetTable:
    """The rows of one file; absent columns read as missing values where that is allowed."""

    path: Path
    frame: pl.DataFrame
    zone: str
    """The zone of times without an offset."""

    @staticmethod
    def read(path: Path, zone: str, needed: Sequence[str]) -> ParquetTable:
        """Returns the rows of a file. Raises InputError if it is damaged or lacks a column."""
        try:
            frame = pl.read_parquet(path.read_bytes())
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            raise InputError(str(path), f"is not a readable Parquet file: {reason}") from None
        for column in needed:
            if column not in frame.columns:
                raise InputError(
                    str(path), f"has no column '{column}'", nearest(column, frame.columns)
                )
        return ParquetTable(path, frame, zone)

    def __len__(self) -> int:
        return self.frame.height

    def first_of(self, *names: str) -> str:
        """Returns the first of these columns that the file has with any value, else empty."""
        for name in names:
            if name in self.frame.columns and self.frame[name].null_count() < len(self):
                return name
        return ""

    def text(self, *names: str) -> pl.Series:
        """Returns the first of these columns as text; lists are joined by commas."""
        name = self.first_of(*names)
        if not name:
            return pl.repeat("", len(self), eager=True, dtype=pl.String)
        column = self.frame[name]
        if column.dtype.base_type() in (pl.List, pl.Array):
            column = self._cast(column, pl.List(pl.String)).list.join(",")
        return self._cast(column, pl.String).fill_null("").str.strip_chars()

    def number(self, *names: str) -> pl.Series:
        """Returns the first of these columns as numbers, null where missing or no number."""
        name = self.first_of(*names)
        if not name:
            return self.nothing()
        column = self.frame[name]
        if isinstance(column.dtype, pl.Duration):
            return column.dt.total_microseconds().cast(pl.Float64) / 1e6
        return self._cast(column, pl.String).cast(pl.Float64, strict=False).fill_nan(None)

    def seconds(self, *names: str) -> pl.Series:
        """Returns moments as Unix seconds: stored as times, as texts, or as Unix seconds."""
        name = self.first_of(*names)
        if not name:
            return self.nothing()
        column = self.frame[name]
        if column.dtype.is_numeric():
            return column.cast(pl.Float64).fill_nan(None)
        if isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone is not None:
            return column.dt.epoch("us").cast(pl.Float64) / 1e6
        if isinstance(column.dtype, pl.Datetime):
            column = column.dt.strftime("%Y-%m-%d %H:%M:%S%.f")
        return moments(self._cast(column, pl.String), self.zone).first

    def _cast(self, column: pl.Series, wanted: pl.DataType | type[pl.DataType]) -> pl.Series:
        try:
            return column.cast(wanted)
        except pl.exceptions.PolarsError:
            where = f"{self.path}, column {column.name}"
            raise InputError(where, f"contains {column.dtype}, which cannot be read") from None

    def nothing(self) -> pl.Series:
        """Returns a column of missing numbers."""
        return pl.repeat(None, len(self), eager=True, dtype=pl.Float64)
