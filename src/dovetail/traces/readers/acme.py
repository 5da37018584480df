"""Acme's Seren and Kalos logs: times with an offset, CPU-only jobs with 0 GPUs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl

from dovetail.traces.clock import moments
from dovetail.traces.delimited import read_delimited
from dovetail.traces.readers.format import Format, Head, ReadOptions
from dovetail.traces.readers.helios import CHINA, FROM_TIMES, ran
from dovetail.traces.rows import Rows, adjusted


def _matches(head: Head) -> bool:
    return head.has("job_id", "user", "node_num", "gpu_num", "type", "state", "submit_time")


def _read(path: Path, options: ReadOptions) -> Rows:
    """Reads both clusters; `type` (such as Pretrain) becomes the model, memory is per pod."""
    table = read_delimited(path)
    table.need("job_id", "user", "gpu_num", "type", "state", "submit_time", "duration")
    zone = options.timezone or CHINA
    submitted = moments(table.text("submit_time"), zone)
    duration, from_times = ran(table, zone)
    columns = [
        table.text("job_id"),
        submitted.first.alias("submit_s"),
        table.number("gpu_num").alias("gpus"),
        duration,
        table.text("user"),
        table.text("type").alias("model"),
        table.text("state").alias("status"),
    ]
    if table.has("cpu_num"):
        columns.append(table.number("cpu_num").alias("cpus"))
    if table.has("mem_per_pod_GB"):
        pods = table.number("node_num")
        columns.append((table.number("mem_per_pod_GB") * pods).alias("memory_gb"))
    counts = Counter({adjusted(FROM_TIMES): from_times})
    return Rows(pl.DataFrame(columns), len(table), counts, 0.0, submitted.offset_s(zone))


ACME = Format("acme", "Acme Seren or Kalos trace (CSV, times with offset)", _matches, _read)
