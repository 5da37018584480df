"""Who gains and who pays: the change of JCT against the baseline, by any label of the jobs."""

from __future__ import annotations

import polars as pl

from dovetail.record.result import RECORDED, Comparison, RunResult

LABELS = ("size_class", "queue", "account", "user", "model")
"""The columns of `RunResult.jobs` that group jobs, in the order in which the page names them."""
RECORDED_COLUMNS = ("recorded_s", "recorded_total_s", "replay_off")
"""What a change has beside it where there is a record."""


MUCH = 0.5
"""The part of a change above which an error of the replay makes it doubtful."""


def recorded_of(comparison: Comparison, column: str) -> pl.DataFrame | None:
    """Returns job_id and `recorded`, a column of the record; None without one beside a baseline."""
    if RECORDED not in comparison.results or comparison.baseline == RECORDED:
        return None
    return comparison.results[RECORDED].jobs.select("job_id", pl.col(column).alias("recorded"))


def is_off(comparison: Comparison, base: str, ours: str) -> pl.Expr:
    """True if the replay's error is more than `MUCH` of what the policy changes."""
    if comparison.baseline != comparison.site:
        return pl.lit(value=False)
    off = (pl.col(base) - pl.col("recorded")).sum().abs()
    return off > MUCH * (pl.col(ours) - pl.col(base)).sum().abs()


def paired(result: RunResult, base: RunResult) -> pl.DataFrame:
    """Returns the labels, jct_s and base_s of the jobs that both finished, in no time or more."""
    theirs = base.jobs.select("job_id", pl.col("jct_s").alias("base_s"))
    return (
        result.jobs.select("job_id", *LABELS, "jct_s")
        .join(theirs, on="job_id", how="inner", maintain_order="left")
        .filter(pl.col("jct_s").is_finite() & pl.col("base_s").is_finite())
    )


def changes(comparison: Comparison, policy: str, label: str) -> pl.DataFrame:
    """Returns group, jobs, base_s and jct_s (means), change_s, total_s, ratio.

    `total_s` is jobs x mean change: what all of the group's jobs lost together, or gained
    (below zero). The group that loses most comes first. Unnamed groups are left out. With a record
    also recorded_s (its mean), recorded_total_s (the change against it), replay_off (`is_off`).
    """
    pairs = paired(comparison.results[policy], comparison.results[comparison.baseline])
    record, beside = recorded_of(comparison, "jct_s"), []
    if record is not None:
        pairs = pairs.join(record, on="job_id", how="left", maintain_order="left")
        beside = [
            pl.col("recorded").mean().round(3).alias("recorded_s"),
            (pl.col("jct_s") - pl.col("recorded")).sum().round(3).alias("recorded_total_s"),
            is_off(comparison, "base_s", "jct_s").alias("replay_off"),
        ]
    return (
        pairs.filter(pl.col(label).is_not_null() & (pl.col(label) != ""))
        .group_by(pl.col(label).alias("group"))
        .agg(pl.len().cast(pl.Int64).alias("jobs"), pl.col("base_s", "jct_s").mean(), *beside)
        .with_columns((pl.col("jct_s") - pl.col("base_s")).alias("change_s"))
        .with_columns(
            (pl.col("jobs") * pl.col("change_s")).alias("total_s"),
            (pl.col("jct_s") / pl.col("base_s")).alias("ratio"),
        )
        .select(
            "group",
            "jobs",
            "base_s",
            "jct_s",
            "change_s",
            "total_s",
            "ratio",
            *RECORDED_COLUMNS[: len(beside)],
        )
        .with_columns(pl.col("base_s", "jct_s", "change_s", "total_s").round(3))
        .sort("total_s", "group", descending=[True, False])
    )
