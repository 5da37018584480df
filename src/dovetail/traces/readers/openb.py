"""Alibaba's 2023 "openb" pods: fractions of a GPU, pods that never ran, lists of types."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from dovetail.core.errors import InputError
from dovetail.traces.delimited import read_delimited
from dovetail.traces.readers.format import Format, ReadOptions, has_columns, refuse
from dovetail.traces.rows import Refusals, Rows

_PHASES = {
    "Succeeded": "completed",
    "Running": "completed",
    "Failed": "failed",
    "Pending": "cancelled",
}


def _read(path: Path, options: ReadOptions) -> Rows:
    """Reads a pod that ran until it was deleted (phase Running) as completed then.

    `gpu_milli` is the part of each of its GPUs.
    """
    table = read_delimited(path)
    if not table.has("creation_time"):
        raise InputError(
            f"{path}, line 1",
            "has no column 'creation_time'",
            "this openb file has no times at all",
        )
    columns = table.canonical(
        {"job_id": "name", "submit_s": "creation_time"},
        {"gpu_type": "gpu_spec", "status": "pod_phase", "queue": "qos"},
    )
    gpus, milli = table.number("num_gpu").alias("gpus"), table.number("gpu_milli")
    scheduled = table.number("scheduled_time")
    columns += [
        gpus,
        (milli / 1000).set((gpus == 0).fill_null(False), None).alias("gpu_part"),
        (table.number("deletion_time") - scheduled).alias("duration_s"),
        scheduled.alias("start_s"),
        table.number("deletion_time").alias("end_s"),
        (scheduled - table.number("creation_time")).alias("wait_s"),
        (table.number("cpu_milli") / 1000).alias("cpus"),
    ]
    if table.has("memory_mib"):
        columns.append((table.number("memory_mib") / 1024).alias("memory_gb"))
    frame = pl.DataFrame(columns)
    if "status" in frame.columns:
        frame = frame.with_columns(frame["status"].replace(_PHASES))
    refused = Refusals()
    frame = refuse(frame, scheduled.is_null(), "never scheduled", refused)
    counts = refused.counts
    return Rows(frame, len(table), counts, refused=refused.rows, beside_gpus=True)


OPENB = Format(
    "openb",
    "Alibaba 2023 openb pods (CSV)",
    has_columns("name", "cpu_milli", "num_gpu", "gpu_milli"),
    _read,
)
