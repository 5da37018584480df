"""Makes one job of the rows that `sacct -D` prints for each of its runs.

A requeue ends one row and begins the next under the same job id, with a new Submit. Job numbers
may also start anew, and files may overlap: rows that cannot be runs of one job are not added up.
"""

from __future__ import annotations

import polars as pl

from dovetail.traces.rows import Refusals, adjusted, joined

SAME_ROW_TWICE = "the same row again"
RUN_OF_A_JOB = "earlier run of a requeued job"
CONTRADICTORY = "row that cannot be a run of the same job, the last one counts"
LIMIT_OF_RUNS = "time limit of a requeued job, which holds for each run: earlier runs added"

_OVERLAP_S = 1.0
"""Slurm's times are whole seconds, so a run may begin in the second in which the last one ended."""


def one_row_a_job(frame: pl.DataFrame, refused: Refusals) -> pl.DataFrame:
    """Returns one row for each job id, in the order of first rows.

    The run time and the suspended time are sums, submission and start those of the first run, end
    and all else of the last one; `restarts` counts the starts after the first. Slurm's time limit
    begins anew with every run, so that of the job is the earlier runs and the limit of the last.
    `frame` has the columns of `slurm`, with `ended` and `state`.
    """
    several = frame["job_id"].is_duplicated()
    if not several.any():
        return frame
    rows = _distinct(frame.filter(several), refused)
    rows = rows.with_columns(_fits().all().over("job_id").alias("fits"))
    alone = pl.col("line") != pl.col("line").last().over("job_id")
    refused.add(CONTRADICTORY, rows.filter(~pl.col("fits") & alone))
    rows = rows.filter(pl.col("fits") | ~alone)
    jobs = rows.group_by("job_id", maintain_order=True).agg(
        *_merged([c for c in frame.columns if c != "job_id"])
    )
    limited = jobs["time_limit_s"].is_not_null() & (jobs["restarts"] > 0)
    refused.counts[adjusted(LIMIT_OF_RUNS)] += int(limited.sum())
    if rows.height > jobs.height:
        refused.counts[joined(RUN_OF_A_JOB)] += rows.height - jobs.height
    both = pl.concat([frame.filter(~several), jobs.select(frame.columns)])
    return both.sort("line")


def _distinct(rows: pl.DataFrame, refused: Refusals) -> pl.DataFrame:
    """Returns the runs in order of time; of two rows of one run the one that ended stays."""
    order = ["job_id", "submit_s", "start_s", "ended", "line"]
    rows = rows.sort(order, nulls_last=[False, False, True, False, False])
    runs = rows.unique(["job_id", "submit_s", "start_s"], keep="last", maintain_order=True)
    # A row printed while the job waited is the same run as the later one that has a start.
    ended_later = pl.col("ended").any().over("job_id", "submit_s")
    runs = runs.filter(~(pl.col("start_s").is_null() & ~pl.col("ended") & ended_later))
    if rows.height > runs.height:
        refused.counts[joined(SAME_ROW_TWICE)] += rows.height - runs.height
    return runs


def _fits() -> pl.Expr:
    """Returns whether a row can follow the one above it as the next run of one job."""
    above_end_s = pl.col("end_s").forward_fill().shift(1).over("job_id")
    begins_s = pl.coalesce("start_s", "submit_s")
    last = pl.col("line") == pl.col("line").last().over("job_id")
    return (
        (above_end_s.is_null() | (begins_s >= above_end_s - _OVERLAP_S))
        & (pl.col("user") == pl.col("user").first().over("job_id"))
        & (pl.col("gpus") == pl.col("gpus").first().over("job_id"))
        & (last | ((pl.col("state") != "COMPLETED") & pl.col("ended")))
    )


def _merged(columns: list[str]) -> list[pl.Expr]:
    """Returns how each column of a job follows from its rows."""
    runs = pl.col("start_s").count().cast(pl.Float64) - 1
    ran_before_s = pl.col("duration_s").sum() - pl.col("duration_s").last().fill_null(0.0)
    special = {
        "time_limit_s": pl.col("time_limit_s").last() + ran_before_s,
        "submit_s": pl.col("submit_s").first(),
        "eligible_s": pl.col("eligible_s").first(),
        "start_s": pl.col("start_s").drop_nulls().first(),
        "end_s": pl.col("end_s").last(),
        "duration_s": pl.col("duration_s").sum(),
        "suspended_s": pl.col("suspended_s").sum(),
        "restarts": pl.max_horizontal(runs, pl.col("restarts").max()).clip(0),
        "gpu_type": pl.col("gpu_type").filter(pl.col("gpu_type") != "").last().fill_null(""),
        "nodes": pl.col("nodes").filter(pl.col("nodes") != "").last().fill_null(""),
    }
    return [special.get(c, pl.col(c).last()).alias(c) for c in columns]
