"""Pollux's workloads: application, replicas and batch size, without any length of the work."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import polars as pl

from dovetail.core.errors import InputError
from dovetail.workload.delimited import read_delimited
from dovetail.workload.readers.format import Format, Head, ReadOptions, refuse, step_times
from dovetail.workload.rows import Rows


def _matches(head: Head) -> bool:
    return head.has("name", "time", "application", "num_replicas", "batch_size")


def _read(path: Path, options: ReadOptions) -> Rows:
    """Reads work as the supplied iterations of the application times their supplied time."""
    table = read_delimited(path)
    table.need("name", "time", "application", "num_replicas", "batch_size")
    if options.job_iterations is None:
        raise InputError(
            str(path),
            "says neither how long a job is nor how many iterations it has",
            "supply iterations by model, and step times",
        )
    models, gpus, batch = (
        table.text("application"),
        table.number("num_replicas"),
        table.number("batch_size"),
    )
    known = options.job_iterations
    iterations = pl.Series(
        "iterations",
        [known(m, _whole(b)) for m, b in zip(models, batch, strict=True)],
        dtype=pl.Float64,
    )
    duration = iterations * step_times(path, options, models, gpus)
    frame = pl.DataFrame(
        {
            "job_id": table.text("name"),
            "submit_s": table.number("time"),
            "gpus": gpus,
            "duration_s": duration,
            "iterations": iterations,
            "model": models,
            "batch_size": batch,
        }
    )
    counts: Counter[str] = Counter()
    unknown = duration.is_null() & (gpus >= 1)
    frame = refuse(frame, unknown, "no work or step time for the application", counts)
    return Rows(frame, len(table), counts)


def _whole(batch: float | None) -> int:
    return int(batch) if batch is not None and math.isfinite(batch) else 0


POLLUX = Format(
    "pollux",
    "Pollux workload (CSV: name, time, application, replicas, batch)",
    _matches,
    _read,
    needs="step times and iterations by model",
)
