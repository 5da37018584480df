"""Writes the rejected rows of an import as CSV: file, line, reason, and the text of the line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from dovetail.traces.canonical import is_parquet
from dovetail.traces.output_file import write_output
from dovetail.traces.source import read_text_bytes


def write_rejects(refused: pl.DataFrame, files: Sequence[Path], out: Path) -> None:
    """Writes one line for each rejected row, by file and line. Raises InputError.

    `refused` is that of `Imported`. A log that is joined from several tables has no lines.
    """
    if "file" not in refused.columns:
        refused = refused.with_columns(pl.lit(str(files[0])).alias("file"))
    refused = refused.with_columns(pl.col("file").fill_null(str(files[0])))
    parts = [_with_text(refused.filter(pl.col("file") == str(path)), path) for path in files]
    table = pl.concat(parts).select("file", "line", "reason", "text")
    write_output(out, lambda stream: stream.write(table.write_csv().encode()))


def _with_text(refused: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Returns the rows in order of line, with the text of each."""
    rows = refused.sort("line", nulls_last=True).select("file", "line", "reason")
    if rows["line"].is_null().all() or is_parquet(path):
        return rows.with_columns(pl.lit("").alias("text"))
    lines = pl.Series(read_text_bytes(path).decode().split("\n")).str.strip_chars_end("\r")
    return rows.with_columns(lines.gather(rows["line"] - 1).alias("text"))
