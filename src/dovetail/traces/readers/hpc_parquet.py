"""Job tables of HPC centres in Parquet: PM100 (CINECA), Kestrel and Eagle (NLR)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from dovetail.core.errors import InputError
from dovetail.traces.readers.format import Format, ReadOptions, has_columns, refuse
from dovetail.traces.readers.parquet_table import ParquetTable
from dovetail.traces.rows import Refusals, Rows, adjusted

MOUNTAIN = "America/Denver"
GPUS_FROM_NODES = "GPUs from nodes, at --gpus-per-node each"
_UNLIMITED_MINUTES = 2.0**31
"""Limits from here on are Slurm's INFINITE and NO_VAL."""


def _read_pm100(path: Path, options: ReadOptions) -> Rows:
    """Reads allocated GPUs, memory in GB, limits in minutes; local times are UTC by default."""
    table = ParquetTable.read(
        path, options.timezone or "UTC", ("job_id", "submit_time", "run_time")
    )
    limit = table.number("time_limit")
    submit, start, end = (table.seconds(f"{t}_time") for t in ("submit", "start", "end"))
    frame = pl.DataFrame(
        {
            "job_id": table.text("job_id"),
            "submit_s": submit,
            "gpus": table.number("num_gpus_alloc", "num_gpus_req"),
            "duration_s": table.number("run_time"),
            "time_limit_s": limit.set((limit >= _UNLIMITED_MINUTES).fill_null(False), None) * 60,
            "user": table.text("user_id"),
            "qos": table.text("qos"),
            "queue": table.text("partition"),
            "status": _state(table.text("job_state")),
            "cpus": table.number("num_cores_alloc"),
            "memory_gb": table.number("mem_alloc"),
            "start_s": start,
            "end_s": end,
            "wait_s": start - submit,
            "nodes": _node_names(table.text("nodes")),
        }
    )
    return Rows(frame, len(table), epoch_s=0.0)


def _read_nlr(path: Path, options: ReadOptions) -> Rows:
    """Reads requested GPUs, else nodes times `--gpus-per-node`: Kestrel's archive has no GPUs.

    Jobs that never ran have no run time. Times without an offset are of Mountain Time.
    """
    table = ParquetTable.read(path, options.timezone or MOUNTAIN, ("job_id", "submit_time"))
    refused = Refusals()
    submit, start, end = (table.seconds(f"{t}_time") for t in ("submit", "start", "end"))
    frame = pl.DataFrame(
        {
            "job_id": table.text("job_id"),
            "submit_s": submit,
            "gpus": _gpus_of(table, options, refused),
            "duration_s": table.number("wallclock_used", "run_time"),
            "time_limit_s": table.number("wallclock_req"),
            "user": table.text("user_hash", "user"),
            "account": table.text("account_hash", "account"),
            "qos": table.text("qos"),
            "queue": table.text("partition"),
            "recurrence": table.text("submit_script_hash"),
            "status": _state(table.text("state_simple", "state")),
            "cpus": table.number("processors_req"),
            "start_s": start,
            "end_s": end,
            "wait_s": start - submit,
            "nodes": _node_names(table.text("nodelist")),
        }
    )
    never = frame["duration_s"].is_null()
    frame = refuse(frame, never, "never started", refused)
    return Rows(frame, len(table), refused.counts, 0.0, refused=refused.rows)


def _gpus_of(table: ParquetTable, options: ReadOptions, refused: Refusals) -> pl.Series:
    gpus = table.number("gpus_requested", "gpus_req")
    if not options.gpus_per_node:
        if gpus.null_count() == len(gpus):
            raise InputError(
                str(table.path),
                "counts no GPUs",
                "read GPUs from nodes, as in --gpus-per-node 4, and slice the GPU partitions",
            )
        return gpus.fill_null(0.0)
    nodes = table.number("nodes_used", "nodes_req")
    refused.counts[adjusted(GPUS_FROM_NODES)] += int(gpus.is_null().sum())
    return gpus.zip_with(gpus.is_not_null(), nodes * options.gpus_per_node)


def _state(texts: pl.Series) -> pl.Series:
    """Returns Slurm's states; PM100 joins two of them as `OOM+NODE FAIL`."""
    return texts.str.to_lowercase().str.replace(r"^(oom.*|out_of_memory.*|node fail)$", "node_fail")


def _node_names(texts: pl.Series) -> pl.Series:
    return texts.str.replace_all(r"[\[\]'\" ]", "").str.strip_chars(",") if len(texts) else texts


PM100 = Format(
    "pm100",
    "PM100, jobs of Marconi100 (Parquet)",
    has_columns("job_id", "submit_time", "run_time", "num_gpus_alloc", "job_state"),
    _read_pm100,
    parquet=True,
)
NLR = Format(
    "nlr",
    "Kestrel and Eagle jobs of NLR, once NREL (Parquet)",
    has_columns("job_id", "submit_time", "wallclock_req", "nodes_req", "partition"),
    _read_nlr,
    parquet=True,
)
