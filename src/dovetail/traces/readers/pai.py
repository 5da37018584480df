"""Alibaba PAI 2020: the big tables, which have no header, and the simulator's job lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from dovetail.core.errors import InputError
from dovetail.traces.assemble import EVENED_OUT
from dovetail.traces.delimited import Delimited, read_delimited
from dovetail.traces.readers.format import Format, Head, ReadOptions, has_columns, refuse
from dovetail.traces.rows import Refusals, Rows, adjusted

TABLES = {
    "job": ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    "task": (
        *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
        *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
    ),
    "instance": (
        *("job_name", "task_name", "inst_name", "worker_name", "inst_id", "status"),
        *("start_time", "end_time", "machine"),
    ),
    "group_tag": ("inst_id", "user", "gpu_type_spec", "group", "workload"),
}
"""The columns of the tables we use; the published files hold data from the first line on."""

PERCENT = 100.0


def _matches_tables(head: Head) -> bool:
    return _kind(head.path) is not None


def _kind(path: Path) -> str | None:
    return next((k for k in TABLES if path.name.startswith(f"pai_{k}_table")), None)


def _join(paths: Sequence[Path], options: ReadOptions) -> Rows:
    """Joins tasks (needed) with jobs, instances and groups if their files are among them.

    Submission is the job's start time, which PAI records when it is submitted; the run lasts from
    the first start to the last end of its instances (else tasks); GPUs are summed over tasks. The
    part of each GPU is kept if it is that of all instances with GPUs, and evened out otherwise.
    """
    tables = _tables(paths)
    if "task" not in tables:
        raise InputError(
            ", ".join(str(p) for p in paths[:3]),
            "no GPU counts without the task table",
            "give pai_task_table as well",
        )
    jobs = _tasks(tables["task"])
    if "instance" in tables:
        jobs = _refined(jobs, tables["instance"])
    refused = Refusals()
    jobs = _with_jobs(jobs, tables.get("job"))
    read = jobs.height
    if "group_tag" in tables:
        jobs = _with_groups(jobs, tables["group_tag"])
    refused.counts[adjusted("several GPU types in a job, any is taken")] += int(jobs["mixed"].sum())
    refused.counts[adjusted(EVENED_OUT)] += int(jobs["uneven"].sum())
    jobs = refuse(jobs, jobs["gpus"].is_null(), "no task of the job is known", refused)
    unknown = jobs["begin_s"].is_null() | jobs["end_s"].is_null()
    jobs = refuse(jobs, unknown, "no start or end of the run", refused)
    jobs = jobs.with_columns(
        (pl.col("end_s") - pl.col("begin_s")).alias("duration_s"),
        pl.col("begin_s").alias("start_s"),
        (pl.col("begin_s") - pl.col("submit_s")).alias("wait_s"),
    )
    wanted = ("job_id", "submit_s", "gpus", "gpu_part", "duration_s", "user", "status", "gpu_type")
    times = ("cpus", "start_s", "end_s", "wait_s")
    more = [c for c in ("memory_gb", "recurrence", "model") if c in jobs.columns]
    # PAI shifts all times by a constant but keeps time of day and weekday (UTC+8).
    frame = jobs.select(*wanted, *times, *more)
    return Rows(frame, read, refused.counts, refused=refused.rows, beside_gpus=True)


def _tables(paths: Sequence[Path]) -> dict[str, Delimited]:
    tables: dict[str, Delimited] = {}
    for path in paths:
        kind = _kind(path)
        if kind is None:
            raise InputError(
                str(path), "is an unknown table", f"pai_*_table of {', '.join(TABLES)}"
            )
        if kind in tables:
            raise InputError(str(path), f"is a second {kind} table")
        tables[kind] = read_delimited(path, header=TABLES[kind])
    return tables


def _tasks(table: Delimited) -> pl.DataFrame:
    """Returns one row per job: the requests of all its tasks, and when they ran."""
    instances = table.number("inst_num").fill_null(1.0)
    # Of one instance, in hundredths: 50 is half a GPU, 150 are two GPUs of which it takes 0.75.
    asked = table.number("plan_gpu").fill_null(0.0) / PERCENT
    whole = asked.ceil()
    frame = pl.DataFrame(
        {
            "job_id": table.text("job_name"),
            "gpus": asked * instances,
            "whole": whole * instances,
            "gpu_part": (asked / whole).fill_nan(None).round(3),
            "cpus": table.number("plan_cpu").fill_null(0.0) / PERCENT * instances,
            "memory_gb": table.number("plan_mem").fill_null(0.0) * instances,
            "gpu_type": table.text("gpu_type"),
            "task_status": table.text("status"),
            "begin_s": table.number("start_time"),
            "end_s": table.number("end_time"),
        }
    )
    typed = pl.col("gpu_type").filter((pl.col("gpus") > 0) & (pl.col("gpu_type") != ""))
    jobs = frame.group_by("job_id", maintain_order=True).agg(
        pl.col("gpus", "whole", "cpus", "memory_gb").sum(),
        pl.col("gpu_part").max(),
        (pl.col("gpu_part").drop_nulls().n_unique() > 1).alias("uneven"),
        pl.col("begin_s").min(),
        pl.col("end_s").max(),
        (typed.n_unique() > 1).alias("mixed"),
        pl.when(typed.n_unique() == 1).then(typed.first()).otherwise(pl.lit("")).alias("gpu_type"),
        pl.col("task_status").sort_by(pl.col("task_status") == "Terminated").first(),
    )
    several = pl.col("uneven")
    return jobs.with_columns(
        pl.when(several).then(pl.col("gpus").ceil()).otherwise("whole").alias("gpus"),
        pl.when(several)
        .then(pl.col("gpus") / pl.col("gpus").ceil())
        .otherwise("gpu_part")
        .alias("gpu_part"),
    ).drop("whole")


def _refined(jobs: pl.DataFrame, table: Delimited) -> pl.DataFrame:
    """Returns the jobs with the times of their instances where those are known."""
    times = pl.DataFrame(
        {
            "job_id": table.text("job_name"),
            "first": table.number("start_time"),
            "last": table.number("end_time"),
        }
    )
    spans = times.group_by("job_id").agg(pl.col("first").min(), pl.col("last").max())
    return jobs.join(spans, on="job_id", how="left", maintain_order="left").with_columns(
        pl.coalesce("first", "begin_s").alias("begin_s"),
        pl.coalesce("last", "end_s").alias("end_s"),
    )


def _with_jobs(tasks: pl.DataFrame, table: Delimited | None) -> pl.DataFrame:
    if table is None:
        return tasks.with_columns(
            pl.col("begin_s").alias("submit_s"),
            pl.lit("").alias("user"),
            pl.lit("").alias("inst_id"),
            pl.col("task_status").replace({"Terminated": "completed"}).alias("status"),
        )
    jobs = pl.DataFrame(
        {
            "job_id": table.text("job_name"),
            "inst_id": table.text("inst_id"),
            "user": table.text("user"),
            "status": table.text("status"),
            "submit_s": table.number("start_time"),
            "job_end_s": table.number("end_time"),
        }
    )
    joined = jobs.join(tasks, on="job_id", how="full", coalesce=True, maintain_order="left")
    return joined.with_columns(
        pl.coalesce("submit_s", "begin_s").alias("submit_s"),
        pl.coalesce("end_s", "job_end_s").alias("end_s"),
        pl.coalesce("status", "task_status"),
        pl.col("mixed", "uneven").fill_null(False),
    )


def _with_groups(jobs: pl.DataFrame, table: Delimited) -> pl.DataFrame:
    """Returns the jobs with their recurrence group and workload, by `inst_id`."""
    tags = pl.DataFrame(
        {
            c: table.text(s)
            for c, s in (("inst_id", "inst_id"), ("recurrence", "group"), ("model", "workload"))
        }
    ).unique("inst_id", keep="first", maintain_order=True)
    return jobs.join(tags, on="inst_id", how="left", maintain_order="left")


def _read_simulator(path: Path, options: ReadOptions) -> Rows:
    """Reads the simulator's list; its GPUs are those of the whole job. None are asked for by some
    jobs, whose GPUs are missing.
    """
    table = read_delimited(path)
    columns = table.canonical(
        {
            "job_id": "job_id",
            "submit_s": "submit_time",
            "gpus": "num_gpu",
            "duration_s": "duration",
        },
        {"user": "user", "gpu_type": "gpu_type", "recurrence": "group", "cpus": "num_cpu"},
    )
    frame = pl.DataFrame(columns).with_columns(pl.col("gpus").fill_null(0.0))
    return Rows(frame, len(table), beside_gpus=True)


_GAIA = {"submit_s": "arrival_time", "duration_s": "length", "gpus": "cpus"}


def _matches_gaia(head: Head) -> bool:
    return head.columns == list(_GAIA.values())


def _read_gaia(path: Path, options: ReadOptions) -> Rows:
    """Reads GAIA's derived sample. Its large file is in hours, its small one in seconds.

    A file is in hours when arrivals have fractions and no job is longer than a month of hours.
    """
    table = read_delimited(path)
    frame = pl.DataFrame([table.row_ids(), *table.canonical(_GAIA)])
    arrival, longest = frame["submit_s"], frame["duration_s"].max()
    fractions = bool((arrival != arrival.floor()).any())
    in_hours = fractions and isinstance(longest, float) and longest <= 24 * 31
    if in_hours:
        # The fractions of the file stand for whole seconds.
        frame = frame.with_columns((pl.col("submit_s", "duration_s") * 3600).round(3))
    counts = Counter({adjusted("hours read as seconds"): len(table) if in_hours else 0})
    return Rows(frame, len(table), counts)


PAI = Format(
    "pai",
    "Alibaba PAI 2020 tables (no header)",
    _matches_tables,
    lambda path, options: _join([path], options),
    _join,
)
PAI_SIM = Format(
    "pai-sim",
    "Alibaba PAI simulator jobs (CSV)",
    has_columns("job_id", "num_inst", "submit_time", "num_gpu", "duration"),
    _read_simulator,
)
GAIA = Format("gaia", "GAIA's sample of PAI (CSV)", _matches_gaia, _read_gaia)
