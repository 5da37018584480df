"""Alibaba's 2026 GPU traces: jobs on spot GPUs, and the execution summary of ASI."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from dovetail.core.errors import InputError
from dovetail.core.units import DAY_S, HOUR_S
from dovetail.traces.delimited import read_delimited
from dovetail.traces.readers.format import Format, ReadOptions, has_columns, refuse
from dovetail.traces.readers.parquet_table import ParquetTable
from dovetail.traces.rows import Refusals, Rows, adjusted

_SUMMARY = ("pod_id", "gpu_spec_public", "priority_class", "gpu_request", "duration_hours")


def _read_spot(path: Path, options: ReadOptions) -> Rows:
    """Reads GPUs and CPUs per worker, times workers; the organization is the account.

    High-priority jobs (HP) are not preemptible, spot jobs are.
    """
    table = read_delimited(path)
    columns = table.canonical(
        {
            "job_id": "job_name",
            "account": "organization",
            "gpu_type": "gpu_model",
            "submit_s": "submit_time",
            "duration_s": "duration",
            "qos": "job_type",
        }
    )
    workers = table.number("worker_num")
    frame = pl.DataFrame(columns).with_columns(
        (table.number("gpu_request") * workers).alias("gpus"),
        (table.number("cpu_request") * workers).alias("cpus"),
        (table.text("job_type").str.to_lowercase() == "spot").alias("preemptible"),
    )
    return Rows(frame, len(table))


def _read_summary(path: Path, options: ReadOptions) -> Rows:
    """Reads one execution a job. The table has no times: submissions are drawn over its days.

    The execution summary counts pods of all kinds; `job_type_public` becomes the queue.
    """
    if not options.spread_days:
        raise InputError(
            str(path),
            "has no submission times",
            "draw them over the days that the trace covers, as in --spread-days 185",
        )
    table = ParquetTable.read(path, options.timezone or "UTC", _SUMMARY)
    draw = np.random.default_rng(options.seed).uniform(0.0, options.spread_days * DAY_S, len(table))
    workload, model = table.text("workload_id"), table.text("model_type_public")
    frame = pl.DataFrame(
        {
            "job_id": pl.int_range(len(table), eager=True).cast(pl.String),
            "submit_s": np.sort(draw),
            "gpus": table.number("gpu_request"),
            "duration_s": table.number("duration_hours") * HOUR_S,
            "gpu_type": table.text("gpu_spec_public"),
            "qos": table.text("priority_class"),
            "queue": table.text("job_type_public"),
            "recurrence": workload.set(workload == "", "").alias("recurrence"),
            "model": ("asi/" + model).set(model == "", ""),
            "preemptible": table.text("priority_class") == "LP",
        }
    )
    refused = Refusals()
    refused.counts[adjusted("submission drawn, the table has none")] = len(table)
    if "schedule_status" in table.frame.columns:
        never = table.text("schedule_status").str.to_lowercase() == "false"
        frame = refuse(frame, never, "never scheduled", refused)
    return Rows(frame, len(table), refused.counts, refused=refused.rows)


SPOT_GPU = Format(
    "spot-gpu",
    "Alibaba 2026 spot-GPU jobs (CSV)",
    has_columns("job_name", "organization", "gpu_model", "gpu_request", "worker_num", "job_type"),
    _read_spot,
)
ASI = Format(
    "asi",
    "Alibaba 2026 ASI job execution summary (Parquet)",
    has_columns(*_SUMMARY),
    _read_summary,
    parquet=True,
)
