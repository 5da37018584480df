"""Writes the rejected rows of an import as CSV: file, line, kind, reason, text of the line.

Jobs that are lost come first, then GPU jobs that never ran, then rows of no GPU job, then the steps
of jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from dovetail.traces.canonical import is_parquet
from dovetail.traces.loss import NEVER_RAN, NO_LOSS
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
    table = pl.concat(parts).with_columns(_kind().alias("kind"))
    order = table["kind"].replace_strict({kind: n for n, kind in enumerate(KINDS)})
    table = table.with_columns(order.alias("order")).sort("order", maintain_order=True)
    table = table.select("file", "line", "kind", "reason", "text")
    write_output(out, lambda stream: stream.write(table.write_csv().encode()))


KINDS = ("lost job", "never ran", "no GPU job", "step")
"""The kinds of rejected rows, in the order in which they are written."""


def _kind() -> pl.Expr:
    lost, never, no_job, step = KINDS
    is_step = pl.col("reason").is_in(["job step", "damaged line of a job step"])
    idle = pl.col("reason").is_in(list(NEVER_RAN)) & (pl.col("gpus").fill_null(1.0) > 0)
    no_loss = pl.col("reason").is_in(list(NO_LOSS))
    return (
        pl.when(is_step)
        .then(pl.lit(step))
        .when(idle)
        .then(pl.lit(never))
        .when(no_loss)
        .then(pl.lit(no_job))
        .otherwise(pl.lit(lost))
    )


def _with_text(refused: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Returns the rows in order of line, with the text of each."""
    rows = refused.sort("line", nulls_last=True).select("file", "line", "reason", "gpus")
    if rows["line"].is_null().all() or is_parquet(path):
        return rows.with_columns(pl.lit("").alias("text"))
    lines = pl.Series(read_text_bytes(path).decode().split("\n")).str.strip_chars_end("\r")
    return rows.with_columns(lines.gather(rows["line"] - 1).alias("text"))
