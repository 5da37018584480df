"""Makes one job of the rows that `sacct -D` prints for each of its runs.

A requeue ends one row and begins the next under the same job id; its Submit is the moment of the
requeue (slurmctld's `batch_requeue_fini`). Exports may overlap, so one run may be printed twice.
Job numbers also start anew: rows that cannot be runs of one job are jobs of their own.
"""

from __future__ import annotations

import polars as pl

from dovetail.core.units import DAY_S
from dovetail.traces.rows import Refusals, adjusted, joined
from dovetail.traces.run_lists import run_text

SAME_ROW_TWICE = "the same row again"
RUN_OF_A_JOB = "earlier run of a requeued job"
LIMIT_OF_RUNS = "time limit of a requeued job, which holds for each run: earlier runs added"
CONTRADICTORY = "row that contradicts another of its submission, the later one counts"
NUMBER_AGAIN = "job number given anew, its job numbered on (7#2)"

REQUEUE_S_MAX = DAY_S
"""The longest time from the end of a run to the Submit of the next. Slurm requeues a job when its
nodes are clean, hours later if one hangs; a number that starts anew comes back after months."""

REQUEUE_DELAY_S = 121.0
"""How long Slurm itself keeps a requeued job back, by default (slurmctld's `batch_requeue_fini`:
the credential's life, 120 s, and a second). What goes beyond is a hold."""

_OVERLAP_S = 1.0
"""Slurm's times are whole seconds, so a run may begin in the second in which the last one ended."""
_KEY = ("cluster", "number")


def one_row_a_job(frame: pl.DataFrame, refused: Refusals) -> pl.DataFrame:
    """Returns one row for each job, in the order of lines.

    The run time and the suspended time are sums, submission and start those of the first run, end
    and all else of the last one; `restarts` counts the starts after the first, and `runs` lists the
    runs of a job that its first one did not end. `frame` has the
    columns of `slurm`, with `ended`, `cut` and `state`. The order of lines does not matter, but
    between equal rows. A second job of one number gets the id `7#2`. Slurm's time limit begins anew
    with every run, so that of a job is its earlier runs and the limit of the last.
    """
    frame = frame.with_columns(
        pl.col("job_id").alias("number"),
        pl.lit("").alias("runs"),
        pl.lit(0.0).alias("held_again_s"),
    )
    several = frame.select(pl.struct(*_KEY).is_duplicated()).to_series()
    alone, rows = frame.filter(~several), frame.filter(several)
    if rows.is_empty():
        return _numbered(frame, refused)
    rows = _without_contradictions(_closed(_distinct(rows, refused)), refused)
    rows = rows.with_columns((~_goes_on()).cum_sum().over(_KEY).alias("job"))
    columns = [c for c in frame.columns if c not in _KEY]
    jobs = rows.group_by(*_KEY, "job", maintain_order=True).agg(*_merged(columns))
    limited = jobs["time_limit_s"].is_not_null() & (jobs["restarts"] > 0)
    refused.counts[adjusted(LIMIT_OF_RUNS)] += int(limited.sum())
    if rows.height > jobs.height:
        refused.counts[joined(RUN_OF_A_JOB)] += rows.height - jobs.height
    both = pl.concat([alone, jobs.select(frame.columns)])
    return _numbered(both, refused)


def _distinct(rows: pl.DataFrame, refused: Refusals) -> pl.DataFrame:
    """Returns the runs in order of time; of two rows of one run the one that ended stays."""
    order = [*_KEY, "submit_s", "start_s", "ended", "cut", "at"]
    rows = rows.sort(order, nulls_last=True)
    runs = rows.unique([*_KEY, "user", "submit_s", "start_s"], keep="last", maintain_order=True)
    # A row printed while the job waited is the same run as the later one that has a start.
    ended_later = (pl.col("ended") | pl.col("cut")).any().over(*_KEY, "user", "submit_s")
    unstarted = pl.col("start_s").is_null() & ~pl.col("ended") & ~pl.col("cut")
    runs = runs.filter(~(unstarted & ended_later))
    if rows.height > runs.height:
        refused.counts[joined(SAME_ROW_TWICE)] += rows.height - runs.height
    return runs


def _closed(runs: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows with those as ended that a requeue cut short and another run follows."""
    followed = pl.col("cut") & (pl.int_range(pl.len()) < pl.len() - 1).over(_KEY)
    return runs.with_columns((pl.col("ended") | followed).alias("ended"))


def _without_contradictions(rows: pl.DataFrame, refused: Refusals) -> pl.DataFrame:
    """Returns the rows without those that another of their submission overlaps.

    Slurm's database has one row for each number and submission, so only one of them can be right.
    """
    same = [*_KEY, "user", "submit_s"]
    next_s = pl.col("start_s").shift(-1).over(same)
    overlapped = (pl.col("end_s") > next_s + _OVERLAP_S).fill_null(False)
    marked = rows.with_columns(overlapped.alias("overlapped"))
    refused.add(CONTRADICTORY, marked.filter("overlapped"))
    return marked.filter(~pl.col("overlapped")).drop("overlapped")


def _goes_on() -> pl.Expr:
    """Returns whether a row is the next run of the job in the row above it."""

    def above(column: str) -> pl.Expr:
        return pl.col(column).shift(1).over(_KEY)

    begins_s = pl.coalesce("start_s", "submit_s")
    # A job cancelled before its next run has no allocation, and may ask for another one.
    alike = (pl.col("gpus") == above("gpus")) | pl.col("start_s").is_null()
    return (
        (begins_s >= above("end_s") - _OVERLAP_S)
        & (pl.col("submit_s") - above("end_s") <= REQUEUE_S_MAX)
        & (pl.col("user") == above("user"))
        & alike
        & (above("state") != "COMPLETED")
        & above("ended")
    ).fill_null(False)


def _held_again_s() -> pl.Expr:
    """Returns how long a job was held before a run that is not its first, beyond Slurm's delay."""
    until_s = pl.min_horizontal("eligible_s", pl.coalesce("start_s", "end_s"))
    until_s = pl.when(pl.col("eligible_s").is_not_null()).then(until_s)
    held_s = until_s - pl.col("submit_s") - REQUEUE_DELAY_S
    later = pl.int_range(pl.len()) > 0
    return pl.when(later).then(held_s.clip(0.0)).otherwise(0.0).fill_null(0.0)


def _run_list() -> pl.Expr:
    """Returns the runs of a job of several rows, "" if none of them started."""
    begin_s = pl.col("start_s") - pl.col("start_s").drop_nulls().first()
    ran_s = pl.col("duration_s") + pl.col("suspended_s")
    last = pl.int_range(pl.len()) == pl.len() - 1
    cause = pl.when(last).then(pl.lit("")).otherwise("state")
    text = run_text(begin_s, ran_s, _held_again_s(), cause)
    started = text.filter(pl.col("start_s").is_not_null() & ran_s.is_not_null())
    return pl.when(pl.len() > 1).then(started.str.join(" ")).otherwise(pl.lit(""))


def _merged(columns: list[str]) -> list[pl.Expr]:
    """Returns how each column of a job follows from its rows."""
    runs = pl.col("start_s").count().cast(pl.Float64) - 1
    ran_before_s = pl.col("duration_s").sum() - pl.col("duration_s").last().fill_null(0.0)
    special = {
        "time_limit_s": pl.col("time_limit_s").last() + ran_before_s,
        "gpus": pl.col("gpus").filter(pl.col("start_s").is_not_null()).last(),
        "submit_s": pl.col("submit_s").first(),
        "eligible_s": pl.col("eligible_s").first(),
        "start_s": pl.col("start_s").drop_nulls().first(),
        "end_s": pl.col("end_s").last(),
        "duration_s": pl.col("duration_s").sum(),
        "suspended_s": pl.col("suspended_s").sum(),
        "restarts": pl.max_horizontal(runs, pl.col("restarts").max()).clip(0),
        "gpu_type": pl.col("gpu_type").filter(pl.col("gpu_type") != "").last().fill_null(""),
        "nodes": pl.col("nodes").filter(pl.col("nodes") != "").last().fill_null(""),
        "runs": _run_list(),
        "held_again_s": _held_again_s().sum(),
    }
    special["gpus"] = pl.coalesce(special["gpus"], pl.col("gpus").last())
    # A row that never started names all partitions that it waited for, as in `a,b`.
    ran_in = pl.col("queue").filter(pl.col("start_s").is_not_null()).last()
    special["queue"] = pl.coalesce(ran_in, pl.col("queue").last())
    return [special.get(c, pl.col(c).last()).alias(c) for c in columns]


def _numbered(jobs: pl.DataFrame, refused: Refusals) -> pl.DataFrame:
    """Returns the jobs in the order of lines, each with an id of its own.

    If several files have jobs of one number they may be of several clusters, and each id gets the
    name of its file. The second job of one number in order of time gets a number.
    """
    if jobs["number"].is_duplicated().any():
        jobs = jobs.sort("submit_s", "start_s", "at", nulls_last=True)
        if jobs.select((pl.col("source").n_unique().over("number") > 1).any()).item():
            jobs = jobs.with_columns((pl.col("source") + ":" + pl.col("number")).alias("number"))
        again = pl.int_range(1, pl.len() + 1).over("number")
        jobs = jobs.with_columns(again.alias("again"))
        suffix = pl.when(pl.col("again") > 1).then("#" + pl.col("again").cast(pl.String))
        name = pl.concat_str("number", suffix.otherwise(pl.lit("")))
        refused.counts[adjusted(NUMBER_AGAIN)] += int((jobs["again"] > 1).sum())
        jobs = jobs.with_columns(name.alias("job_id")).drop("again")
    return jobs.sort("at").drop("number")
