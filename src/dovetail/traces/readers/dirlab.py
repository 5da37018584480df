"""DIR-LAB's Philly and Helios extracts: intervals between jobs, users, and how jobs ended."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from dovetail.traces.delimited import read_delimited
from dovetail.traces.readers.format import Format, Head, ReadOptions
from dovetail.traces.rows import Rows


def _matches(head: Head) -> bool:
    return head.has("u_id", "user", "gpu_num", "interval", "run_time", "new_status")


def _read(path: Path, options: ReadOptions) -> Rows:
    """Reads submissions as the running sum of intervals; user numbers become u1, u2, ..."""
    table = read_delimited(path)
    table.need("u_id", "user", "gpu_num", "interval", "run_time", "new_status")
    interval = table.number("interval")
    unusable = interval.is_null() | (interval < 0) | interval.is_infinite()
    if unusable.any():
        # One missing interval would move every later job.
        raise table.error("interval", unusable, "is not a time since the previous job")
    user = table.text("user")
    columns = [
        table.text("u_id").alias("job_id"),
        interval.cum_sum().alias("submit_s"),
        table.number("gpu_num").alias("gpus"),
        table.number("run_time").alias("duration_s"),
        ("u" + user).set(user == "", "").alias("user"),
        table.text("new_status").alias("status"),
    ]
    if table.has("cpu_num"):
        columns.append(table.number("cpu_num").alias("cpus"))
    return Rows(pl.DataFrame(columns), len(table))


DIRLAB = Format("dirlab", "DIR-LAB Philly or Helios extract (CSV)", _matches, _read)
