"""MIT Supercloud's `slurm-log.csv`: Slurm's database as it is, with numbers for states and TRES."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from dovetail.traces.delimited import Delimited, read_delimited
from dovetail.traces.readers.format import Format, ReadOptions, has_columns, refuse
from dovetail.traces.rows import Refusals, Rows

_STATES = {
    3: "completed",
    4: "cancelled",
    5: "failed",
    6: "timeout",
    7: "node_fail",
    8: "preempted",
    9: "boot_fail",
    10: "deadline",
    11: "out_of_memory",
}
"""Slurm's `enum job_states` of jobs that ended; 0 to 2 are pending, running and suspended."""
_GPU_TYPES = {"1001": "tesla", "1002": "volta"}
"""The TRES of GPUs, as in the data set's `tres-mapping.txt`; 1 is CPUs and 2 memory in MB."""
UNLIMITED_MINUTES = 2.0**32 - 2
"""Slurm stores NO_VAL and INFINITE as the two largest 32-bit numbers."""


def _read(path: Path, options: ReadOptions) -> Rows:
    """Reads jobs that started and ended; times are Unix seconds, limits minutes."""
    table = read_delimited(path)
    refused = Refusals()
    submit, start, end = (table.number(f"time_{t}") for t in ("submit", "start", "end"))
    state = table.number("state")
    limit = _optional(table, "timelimit", "time_limit")
    tres = table.text("tres_alloc")
    user = table.text("id_user")
    frame = pl.DataFrame(
        {
            "job_id": table.text("id_job"),
            "submit_s": submit,
            "gpus": _gpus(tres),
            "duration_s": end - start,
            "time_limit_s": limit.set((limit >= UNLIMITED_MINUTES).fill_null(False), None) * 60,
            "user": user,
            "queue": table.text("partition") if table.has("partition") else "",
            "status": state.replace_strict(_STATES, default="", return_dtype=pl.String),
            "gpu_type": _gpu_type(tres),
            "cpus": _tres(tres, "1"),
            "memory_gb": _tres(tres, "2") / 1024,
            "start_s": start,
            "end_s": end,
            "wait_s": start - submit,
            "nodes": _nodes(table),
        }
    )
    frame = refuse(frame, frame["status"] == "", "not ended yet", refused)
    # Slurm's database has 0 for a time that never came.
    started = (frame["start_s"] > 0).fill_null(False)
    frame = refuse(frame, ~started, "never started", refused)
    return Rows(frame, len(table), refused.counts, 0.0, refused=refused.rows)


def _optional(table: Delimited, *names: str) -> pl.Series:
    for name in names:
        if table.has(name):
            return table.number(name)
    return pl.repeat(None, len(table), eager=True, dtype=pl.Float64)


def _tres(tres: pl.Series, number: str) -> pl.Series:
    return tres.str.extract(rf"(?:^|,){number}=(\d+)").cast(pl.Float64, strict=False)


def _gpus(tres: pl.Series) -> pl.Series:
    frame = pl.DataFrame({number: _tres(tres, number) for number in _GPU_TYPES})
    return frame.select(pl.sum_horizontal(pl.all().fill_null(0.0)).alias("gpus"))["gpus"]


def _gpu_type(tres: pl.Series) -> pl.Series:
    """Returns the type if the job has GPUs of a single one."""
    held = pl.DataFrame({kind: _tres(tres, number) for number, kind in _GPU_TYPES.items()})
    single = pl.sum_horizontal(pl.all().is_not_null()) == 1
    names = (pl.when(pl.col(kind).is_not_null()).then(pl.lit(kind)) for kind in held.columns)
    return held.select(pl.when(single).then(pl.coalesce(*names)).fill_null("").alias("t"))["t"]


def _nodes(table: Delimited) -> pl.Series:
    """Returns node lists, which the file has as Python lists."""
    if not table.has("nodelist"):
        return pl.repeat("", len(table), eager=True, dtype=pl.String)
    return table.text("nodelist").str.replace_all(r"[\[\]'\" ]", "")


SUPERCLOUD = Format(
    "supercloud",
    "MIT Supercloud slurm-log.csv",
    has_columns(
        "id_job", "id_user", "state", "time_submit", "time_start", "time_end", "tres_alloc"
    ),
    _read,
)
