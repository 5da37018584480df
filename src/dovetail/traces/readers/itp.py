"""Microsoft ITP, as collected and as ElasticFlow extended it; times in s since the collection."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from dovetail.traces.delimited import Delimited, read_delimited
from dovetail.traces.readers.format import Format, Head, ReadOptions
from dovetail.traces.rows import Rows


def _matches_raw(head: Head) -> bool:
    return head.has("job_id", "submission_time", "duration", "num_gpu") and not head.has(
        "num_iteration"
    )


def _read_raw(path: Path, options: ReadOptions) -> Rows:
    table = read_delimited(path)
    table.need("job_id", "submission_time", "duration", "num_gpu")
    return Rows(pl.DataFrame(_measured(table, "submission_time", "duration")), len(table))


def _measured(table: Delimited, submit: str, duration: str) -> list[pl.Series]:
    return [
        table.text("job_id"),
        table.number(submit).alias("submit_s"),
        table.number("num_gpu").alias("gpus"),
        table.number(duration).alias("duration_s"),
    ]


def _matches_elasticflow(head: Head) -> bool:
    ours = head.has("job_id", "submission_time", "num_iteration", "deadline")
    theirs = head.has("job_id", "submit_time", "ddl", "iteration")
    return ours or theirs


def _read_elasticflow(path: Path, options: ReadOptions) -> Rows:
    """Reads the published layout, and the simulator's (ddl; real_ columns where it has them)."""
    table = read_delimited(path)
    published = table.has("submission_time")
    submit = "submission_time" if published else "submit_time"
    deadline = "deadline" if published else "ddl"
    iterations = "num_iteration" if published else "iteration"
    if table.has("real_iteration"):
        iterations = "real_iteration"
    duration = "real_duration" if table.has("real_duration") else "duration"
    table.need(
        "job_id", submit, "num_gpu", duration, iterations, deadline, "model_name", "batch_size"
    )
    due = table.number(deadline)
    if table.has("best_effort"):
        due = due.set((table.number("best_effort") > 0).fill_null(False), None)
    columns = [
        *_measured(table, submit, duration),
        table.number(iterations).alias("iterations"),
        # The models share names with others' of other speeds; the family tells them apart.
        ("elasticflow/" + table.text("model_name")).alias("model"),
        table.number("batch_size"),
        due.alias("deadline_s"),
    ]
    return Rows(pl.DataFrame(columns), len(table))


ITP = Format("itp", "Microsoft ITP, measured columns (CSV)", _matches_raw, _read_raw)
ELASTICFLOW = Format(
    "elasticflow",
    "ITP or Philly with ElasticFlow's models, iterations and deadlines (CSV)",
    _matches_elasticflow,
    _read_elasticflow,
)
