"""Muri's simulator traces: Philly jobs with models, iterations and stage times; times in ms."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from dovetail.core.errors import InputError, nearest
from dovetail.traces.delimited import read_delimited
from dovetail.traces.readers.format import Format, ReadOptions, has_columns
from dovetail.traces.rows import Rows

WORKS = ("iterations", "duration")


_COLUMNS = {"job_id": "job_id", "gpus": "num_gpu", "iterations": "iterations"}


def _read(path: Path, options: ReadOptions) -> Rows:
    """Reads work as iterations x iteration_time by default: that is what Muri's simulator runs.

    The `duration` column is Philly's recorded time; it is up to one iteration longer.
    """
    if options.work not in WORKS:
        raise InputError(f"work '{options.work}'", "is unknown", nearest(options.work, WORKS))
    table = read_delimited(path)
    columns = table.canonical(_COLUMNS, {"batch_size": "batch_size", "priority": "priority"})
    table.need("submit_time", "iteration_time", "duration")
    duration_ms = (
        table.number("duration")
        if options.work == "duration"
        else table.number("iterations") * table.number("iteration_time")
    )
    columns += [
        (table.number("submit_time") / 1000).alias("submit_s"),
        (duration_ms / 1000).alias("duration_s"),
    ]
    if table.has("model_name"):
        # Muri's models share names with others' of other speeds; the family tells them apart.
        columns.append(("muri/" + table.text("model_name")).alias("model"))
    return Rows(pl.DataFrame(columns), len(table))


MURI = Format(
    "muri",
    "Muri simulator trace (CSV, times in ms)",
    has_columns("job_id", "num_gpu", "submit_time", "iterations", "iteration_time"),
    _read,
)
