"""SenseTime's Helios log, and Acme's Seren and Kalos logs: China time, and how each job ended."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl

from dovetail.traces.clock import REPEATED_HOUR, Moments, moments
from dovetail.traces.delimited import Delimited, read_delimited
from dovetail.traces.readers.format import Format, ReadOptions, has_columns
from dovetail.traces.rows import Rows, adjusted

CHINA = "Asia/Shanghai"
FROM_TIMES = "duration from start and end"
_ROUNDED_S = 1.0
"""The most by which rounding to seconds sets a duration apart from its times."""
_HELIOS = {
    "job_id": "job_id",
    "user": "user",
    "queue": "vc",
    "gpus": "gpu_num",
    "status": "state",
}
_ACME = {
    "job_id": "job_id",
    "user": "user",
    "gpus": "gpu_num",
    "model": "type",
    "status": "state",
}


def _read_helios(path: Path, options: ReadOptions) -> Rows:
    table = read_delimited(path)
    columns = table.canonical(_HELIOS, {"cpus": "cpu_num"})
    return _rows(table, options, columns, times_count=False)


def _read_acme(path: Path, options: ReadOptions) -> Rows:
    """Reads both clusters; `type` (such as Pretrain) becomes the model, memory is per pod.

    Times have an offset, and CPU-only jobs 0 GPUs. The run time is the end minus the start, as the
    dataset documents `duration`: in Kalos that column counts from the submission.
    """
    table = read_delimited(path)
    columns = table.canonical(_ACME, {"cpus": "cpu_num"})
    if table.has("mem_per_pod_GB"):
        pods = table.number("node_num")
        columns.append((table.number("mem_per_pod_GB") * pods).alias("memory_gb"))
    return _rows(table, options, columns, times_count=True)


def _rows(
    table: Delimited, options: ReadOptions, columns: list[pl.Series], *, times_count: bool
) -> Rows:
    zone = options.timezone or CHINA
    submitted = moments(table.text("submit_time"), zone)
    started, ended = _recorded(table, "start_time", zone), _recorded(table, "end_time", zone)
    duration, from_times = _durations(table, started, ended, times_count=times_count)
    frame = pl.DataFrame([*columns, submitted.first.alias("submit_s"), duration])
    if started is not None and ended is not None:
        start, end = started.after(submitted.first), ended.after(submitted.first)
        waited = (start - submitted.first).alias("wait_s")
        frame = frame.with_columns(start.alias("start_s"), end.alias("end_s"), waited)
    counts = Counter(
        {adjusted(REPEATED_HOUR): submitted.repeated, adjusted(FROM_TIMES): from_times}
    )
    return Rows(frame, len(table), counts, 0.0, submitted.offset_s(zone))


def _recorded(table: Delimited, column: str, zone: str) -> Moments | None:
    return moments(table.text(column), zone) if table.has(column) else None


def _durations(
    table: Delimited, start: Moments | None, end: Moments | None, *, times_count: bool
) -> tuple[pl.Series, int]:
    """Returns the run times, and how many follow from start and end.

    Those are the ones that the log has none of; with `times_count` also those that differ.
    """
    duration = table.number("duration").alias("duration_s")
    if start is None or end is None:
        return duration, 0
    ran_s = end.since(start)
    replaced = duration.is_null()
    if times_count:
        replaced |= ((ran_s - duration).abs() > _ROUNDED_S).fill_null(False)
    replaced &= ran_s.is_not_null()
    return duration.zip_with(~replaced, ran_s), int(replaced.sum())


HELIOS = Format(
    "helios",
    "Helios cluster_log (CSV, China local times)",
    has_columns("job_id", "user", "vc", "gpu_num", "state", "submit_time"),
    _read_helios,
)
ACME = Format(
    "acme",
    "Acme Seren or Kalos trace (CSV, times with offset)",
    has_columns("job_id", "user", "node_num", "gpu_num", "type", "state", "submit_time"),
    _read_acme,
)
