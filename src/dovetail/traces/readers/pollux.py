"""Pollux's workloads: application, replicas and batch size, without any length of the work."""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl

from dovetail.core.errors import InputError
from dovetail.traces.assemble import GPUS_MAX
from dovetail.traces.delimited import read_delimited
from dovetail.traces.readers.format import Format, ReadOptions, has_columns, refuse, step_times
from dovetail.traces.rows import Refusals, Rows

_COLUMNS = {
    "job_id": "name",
    "submit_s": "time",
    "model": "application",
    "gpus": "num_replicas",
    "batch_size": "batch_size",
}


def _read(path: Path, options: ReadOptions) -> Rows:
    """Reads work as the supplied iterations of the application, or as its whole training."""
    table = read_delimited(path)
    frame = pl.DataFrame(table.canonical(_COLUMNS))
    iterations, duration = _work(path, options, frame["model"], frame["gpus"], frame["batch_size"])
    frame = frame.with_columns(iterations.alias("iterations"), duration.alias("duration_s"))
    refused = Refusals()
    unknown = duration.is_null() & (frame["gpus"] >= 1)
    frame = refuse(frame, unknown, "no work or step time for the application", refused)
    return Rows(frame, len(table), refused.counts, refused=refused.rows)


def _work(
    path: Path, options: ReadOptions, models: pl.Series, gpus: pl.Series, batch: pl.Series
) -> tuple[pl.Series, pl.Series]:
    """Returns the iterations and the seconds of each job, null where not known."""
    known, training = options.job_iterations, options.training
    if known is not None:
        counted = [known(m, _whole(b)) for m, b in zip(models, batch, strict=True)]
        iterations = pl.Series("iterations", counted, dtype=pl.Float64)
        return iterations, iterations * step_times(path, options, models, gpus)
    if training is None:
        raise InputError(
            str(path),
            "has neither durations nor iterations of jobs",
            "supply iterations by model, and step times",
        )
    rows = zip(models, map(_whole, gpus), map(_whole, batch), strict=True)
    works = [
        training(model, n, size) if model and 1 <= n <= GPUS_MAX and size >= 1 else None
        for model, n, size in rows
    ]
    return (
        pl.Series("iterations", [w and w[0] for w in works], dtype=pl.Float64),
        pl.Series("duration_s", [w and w[1] for w in works], dtype=pl.Float64),
    )


def _whole(number: float | None) -> int:
    return int(number) if number is not None and math.isfinite(number) else 0


POLLUX = Format(
    "pollux",
    "Pollux workload (CSV: name, time, application, replicas, batch)",
    has_columns(*_COLUMNS.values()),
    _read,
    needs="what a training of each model takes, or step times and iterations by model",
)
