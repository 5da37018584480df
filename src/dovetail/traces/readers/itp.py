"""Microsoft ITP, as collected and as ElasticFlow extended it; times in s since the collection."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from dovetail.traces.delimited import read_delimited
from dovetail.traces.readers.format import Format, Head, ReadOptions
from dovetail.traces.rows import Rows

_RAW = {
    "job_id": "job_id",
    "submit_s": "submission_time",
    "gpus": "num_gpu",
    "duration_s": "duration",
}


def _matches_raw(head: Head) -> bool:
    return head.has(*_RAW.values()) and not head.has("num_iteration")


def _read_raw(path: Path, options: ReadOptions) -> Rows:
    table = read_delimited(path)
    return Rows(pl.DataFrame(table.canonical(_RAW)), len(table))


def _matches_elasticflow(head: Head) -> bool:
    ours = head.has("job_id", "submission_time", "num_iteration", "deadline")
    theirs = head.has("job_id", "submit_time", "ddl", "iteration")
    return ours or theirs


def _read_elasticflow(path: Path, options: ReadOptions) -> Rows:
    """Reads the published layout, and the simulator's (ddl; real_ columns where it has them)."""
    table = read_delimited(path)
    published = table.has("submission_time")
    iterations = "num_iteration" if published else "iteration"
    if table.has("real_iteration"):
        iterations = "real_iteration"
    columns = {
        "job_id": "job_id",
        "submit_s": "submission_time" if published else "submit_time",
        "gpus": "num_gpu",
        "duration_s": "real_duration" if table.has("real_duration") else "duration",
        "iterations": iterations,
        "deadline_s": "deadline" if published else "ddl",
        "model": "model_name",
        "batch_size": "batch_size",
    }
    frame = pl.DataFrame(table.canonical(columns))
    if table.has("best_effort"):
        best_effort = (table.number("best_effort") > 0).fill_null(False)
        frame = frame.with_columns(frame["deadline_s"].set(best_effort, None))
    # The models share names with others' of other speeds; the family tells them apart.
    frame = frame.with_columns(("elasticflow/" + frame["model"]).alias("model"))
    return Rows(frame, len(table))


ITP = Format("itp", "Microsoft ITP, measured columns (CSV)", _matches_raw, _read_raw)
ELASTICFLOW = Format(
    "elasticflow",
    "ITP or Philly with ElasticFlow's models, iterations and deadlines (CSV)",
    _matches_elasticflow,
    _read_elasticflow,
)
