"""DIR-LAB's Philly and Helios extracts: intervals between jobs, users, and how jobs ended."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from dovetail.traces.delimited import read_delimited
from dovetail.traces.readers.format import Format, ReadOptions, has_columns
from dovetail.traces.rows import Rows

_COLUMNS = {
    "job_id": "u_id",
    "user": "user",
    "gpus": "gpu_num",
    "duration_s": "run_time",
    "status": "new_status",
}


def _read(path: Path, options: ReadOptions) -> Rows:
    """Reads submissions as the running sum of intervals; user numbers become u1, u2, ..."""
    table = read_delimited(path)
    interval = table.number("interval")
    unusable = interval.is_null() | (interval < 0) | interval.is_infinite()
    if unusable.any():
        # One missing interval would move every later job.
        raise table.error("interval", unusable, "is not a time since the previous job")
    frame = pl.DataFrame(table.canonical(_COLUMNS, {"cpus": "cpu_num"}))
    user = frame["user"]
    frame = frame.with_columns(
        interval.cum_sum().alias("submit_s"), ("u" + user).set(user == "", "").alias("user")
    )
    return Rows(frame, len(table))


DIRLAB = Format(
    "dirlab",
    "DIR-LAB Philly or Helios extract (CSV)",
    has_columns(*_COLUMNS.values(), "interval"),
    _read,
)
