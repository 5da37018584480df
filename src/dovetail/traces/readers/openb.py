"""Alibaba's 2023 "openb" pods: fractions of a GPU, pods that never ran, types joined by a bar."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl

from dovetail.core.errors import InputError
from dovetail.traces.delimited import read_delimited
from dovetail.traces.readers.format import Format, ReadOptions, has_columns, refuse
from dovetail.traces.rows import Rows, adjusted

_PHASES = {
    "Succeeded": "completed",
    "Running": "completed",
    "Failed": "failed",
    "Pending": "cancelled",
}


def _read(path: Path, options: ReadOptions) -> Rows:
    """Reads a pod that ran until it was deleted (phase Running) as completed then."""
    table = read_delimited(path)
    if not table.has("creation_time"):
        raise InputError(
            f"{path}, line 1",
            "has no column 'creation_time'",
            "this openb file has no times at all",
        )
    table.need("name", "cpu_milli", "num_gpu", "gpu_milli", "deletion_time", "scheduled_time")
    gpus, milli = table.number("num_gpu"), table.number("gpu_milli")
    scheduled = table.number("scheduled_time")
    types = table.text("gpu_spec") if table.has("gpu_spec") else _blank(len(table))
    several = types.str.contains("|", literal=True)
    phase = table.text("pod_phase") if table.has("pod_phase") else _blank(len(table))
    frame = pl.DataFrame(
        {
            "job_id": table.text("name"),
            "submit_s": table.number("creation_time"),
            # A fraction is a share of one GPU; whole GPUs have 1000.
            "gpus": (gpus * milli / 1000).zip_with((gpus == 1).fill_null(False), gpus),
            "duration_s": table.number("deletion_time") - scheduled,
            "cpus": table.number("cpu_milli") / 1000,
            "gpu_type": types.set(several, ""),
            "status": phase.replace(_PHASES),
        }
    )
    if table.has("memory_mib"):
        frame = frame.with_columns((table.number("memory_mib") / 1024).alias("memory_gb"))
    if table.has("qos"):
        frame = frame.with_columns(table.text("qos").alias("queue"))
    counts = Counter({adjusted("several GPU types allowed, any is taken"): int(several.sum())})
    frame = refuse(frame, (gpus >= 1) & scheduled.is_null(), "never scheduled", counts)
    return Rows(frame, len(table), counts)


def _blank(n: int) -> pl.Series:
    return pl.repeat("", n, eager=True, dtype=pl.String)


OPENB = Format(
    "openb",
    "Alibaba 2023 openb pods (CSV)",
    has_columns("name", "cpu_milli", "num_gpu", "gpu_milli"),
    _read,
)
