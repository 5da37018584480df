"""SenseTime's Helios job log: local China time, user, virtual cluster and how the job ended."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl

from dovetail.traces.clock import moments
from dovetail.traces.delimited import Delimited, read_delimited
from dovetail.traces.readers.format import Format, Head, ReadOptions
from dovetail.traces.readers.philly_csv import REPEATED_HOUR
from dovetail.traces.rows import Rows, adjusted

CHINA = "Asia/Shanghai"
FROM_TIMES = "duration from start and end"


def _matches(head: Head) -> bool:
    return head.has("job_id", "user", "vc", "gpu_num", "state", "submit_time")


def _read(path: Path, options: ReadOptions) -> Rows:
    table = read_delimited(path)
    table.need("job_id", "user", "vc", "gpu_num", "state", "submit_time", "duration")
    zone = options.timezone or CHINA
    submitted = moments(table.text("submit_time"), zone)
    duration, from_times = ran(table, zone)
    columns = [
        table.text("job_id"),
        submitted.first.alias("submit_s"),
        table.number("gpu_num").alias("gpus"),
        duration,
        table.text("user"),
        table.text("vc").alias("queue"),
        table.text("state").alias("status"),
    ]
    if table.has("cpu_num"):
        columns.append(table.number("cpu_num").alias("cpus"))
    counts = Counter(
        {adjusted(REPEATED_HOUR): submitted.repeated, adjusted(FROM_TIMES): from_times}
    )
    return Rows(pl.DataFrame(columns), len(table), counts, 0.0, submitted.offset_s(zone))


def ran(table: Delimited, zone: str) -> tuple[pl.Series, int]:
    """Returns the run times, from start and end where the log leaves the duration out."""
    duration = table.number("duration").alias("duration_s")
    absent = duration.is_null()
    if not (absent.any() and table.has("start_time") and table.has("end_time")):
        return duration, 0
    start, end = (moments(table.text(c), zone) for c in ("start_time", "end_time"))
    filled = duration.zip_with(~absent, end.since(start))
    return filled, int((absent & filled.is_not_null()).sum())


HELIOS = Format("helios", "Helios cluster_log (CSV, China local times)", _matches, _read)
