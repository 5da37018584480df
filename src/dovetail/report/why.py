"""Why a policy wins or loses: whose waiting it saves, by size and length, and at whose cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from dovetail.core.policy import registered
from dovetail.record.result import RECORDED, Comparison, RunResult
from dovetail.report.changes import is_off, recorded_of
from dovetail.report.replay_words import far_sizes
from dovetail.report.words import size_order, size_words

LENGTHS_S = (600.0, 3600.0, 14400.0)
LENGTHS = ("up to 10 min", "up to 1 h", "up to 4 h", "over 4 h")
"""The classes of the time that a job holds GPUs under the baseline."""


@dataclass(frozen=True, slots=True)
class Why:
    """The waits under a policy beside those under `against`.

    `table` has a row for each size and length: group, length, jobs, base_wait_s and wait_s (means),
    saved_s (of all its jobs together, below zero if lost), share (of all that is saved), gain and
    lose (jobs that wait less or longer by more than a minute). With a record also recorded_wait_s
    (its mean), recorded_saved_s (against it) and replay_off (`is_off`).
    """

    policy: str
    against: str
    words: str
    table: pl.DataFrame

    def as_dict(self) -> dict[str, object]:
        """Returns it as JSON values."""
        rows = self.table.to_dicts()
        return {"policy": self.policy, "against": self.against, "words": self.words, "rows": rows}


CLEAR_S = 60.0


def why(comparison: Comparison, policy: str) -> Why | None:
    """Returns why a row differs from the baseline; None if it is the baseline, or nobody waits."""
    against = comparison.baseline
    if policy in (against, RECORDED) or against not in comparison.results:
        return None
    ours, base = comparison.results[policy], comparison.results[against]
    pairs = _paired(ours, base)
    record, beside = recorded_of(comparison, "wait_s"), dict[str, pl.Expr]()
    if record is not None:
        pairs = pairs.join(record, on="job_id", how="left", maintain_order="left")
        beside = {
            "recorded_wait_s": pl.col("recorded").mean().round(3),
            "recorded_saved_s": (pl.col("recorded") - pl.col("wait_s")).sum().round(3),
            "replay_off": is_off(comparison, "base_wait_s", "wait_s"),
        }
    if not len(pairs):
        return None
    total_s = float(pairs["saved_s"].sum())
    table = (
        pairs.group_by("group", "length")
        .agg(
            pl.len().cast(pl.Int64).alias("jobs"),
            pl.col("base_wait_s", "wait_s").mean().round(3),
            pl.col("saved_s").sum().round(3),
            (pl.col("saved_s") > CLEAR_S).sum().cast(pl.Int64).alias("gain"),
            (pl.col("saved_s") < -CLEAR_S).sum().cast(pl.Int64).alias("lose"),
            **beside,
        )
        .with_columns((pl.col("saved_s") / (abs(total_s) or 1.0)).round(6).alias("share"))
        .select(
            "group",
            "length",
            "jobs",
            "base_wait_s",
            "wait_s",
            "saved_s",
            "share",
            "gain",
            "lose",
            *beside,
        )
        .sort("saved_s", "group", "length", descending=[True, False, False])
    )
    words = " ".join(
        part
        for part in (
            _words(ours, base, table, total_s),
            far_sizes(comparison),
            _against_the_log(table),
        )
        if part
    )
    return Why(policy, against, words, table)


def _paired(ours: RunResult, base: RunResult) -> pl.DataFrame:
    """Returns size, length, waits and the wait saved of the jobs that both runs finished."""
    theirs = base.jobs.select(
        "job_id",
        pl.col("wait_s").alias("base_wait_s"),
        (pl.col("jct_s") - pl.col("wait_s")).alias("held_s"),
    )
    joined = (
        ours.jobs.select("job_id", pl.col("size_class").alias("group"), "wait_s", "jct_s")
        .join(theirs, on="job_id", how="inner", maintain_order="left")
        .filter(pl.all_horizontal(pl.col("jct_s", "base_wait_s", "held_s").is_finite()))
    )
    at = np.searchsorted(LENGTHS_S, joined["held_s"].to_numpy())
    return joined.with_columns(
        pl.Series("length", [LENGTHS[i] for i in at.tolist()], dtype=pl.String),
        (pl.col("base_wait_s") - pl.col("wait_s")).alias("saved_s"),
    )


def overtaken(jobs: pl.DataFrame) -> int:
    """Returns how many jobs started after one that was submitted later."""
    jobs = jobs.filter(pl.col("start_s").is_finite()).sort("submit_s")
    submit_s, start_s = jobs["submit_s"].to_numpy(), jobs["start_s"].to_numpy()
    if not len(start_s):
        return 0
    earliest = np.append(np.minimum.accumulate(start_s[::-1])[::-1], np.inf)
    later = np.searchsorted(submit_s, submit_s, side="right")
    return int((earliest[later] < start_s).sum())


def _words(ours: RunResult, base: RunResult, table: pl.DataFrame, total_s: float) -> str:
    verb = "saves" if total_s > 0 else "costs"
    jobs, gain, lose = (int(table[column].sum()) for column in ("jobs", "gain", "lose"))
    first = table.row(0 if total_s > 0 else len(table) - 1, named=True)
    share = f"{abs(float(first['share'])):.0%}"
    if "recorded_saved_s" in first:
        logged_s = float(first["recorded_saved_s"])
        share += f", {saved_words(float(first['saved_s']))}; from the log {saved_words(logged_s)}"
    text = (
        f"{_idea(ours)} Against {_name(base)} it {verb} {abs(total_s) / 3600:,.0f} h of waiting: "
        f"{gain:,} of {jobs:,} jobs wait less, {lose:,} longer. The largest part ("
        f"{share}) is of jobs of {size_words(str(first['group']))} that hold them "
        f"{first['length']}"
    )
    stops = [int(run.number("preemptions") or 0) for run in (ours, base)]
    return (
        f"{text}. Jobs overtaken by a later one: {overtaken(ours.jobs):,} (before "
        f"{overtaken(base.jobs):,}); runs cut short: {stops[0]:,} (before {stops[1]:,})."
    )


def _against_the_log(table: pl.DataFrame) -> str:
    if "recorded_saved_s" not in table.columns:
        return ""
    total_s = float(table["recorded_saved_s"].sum())
    verb = "saves" if total_s > 0 else "costs"
    return f"Against the log itself it {verb} {abs(total_s) / 3600:,.0f} h."


def _name(result: RunResult) -> str:
    return str(result.manifest.get("name") or result.policy)


def _idea(result: RunResult) -> str:
    """Returns the first sentence of the policy's page."""
    entry = registered().get(_name(result))
    if entry is None:
        return f"{_name(result)}."
    return f"{_name(result)}: {entry.summary}"


def by_size(table: pl.DataFrame) -> list[dict[str, object]]:
    """Returns the rows by size, then by length."""
    rows = table.to_dicts()
    rows.sort(key=lambda r: (size_order(str(r["group"])), LENGTHS.index(str(r["length"]))))
    return rows


def saved_words(seconds: float) -> str:
    """Returns waiting saved as `+3.2 h`, lost as `-41 h`."""
    hours = seconds / 3600
    return f"{hours:+,.0f} h" if abs(hours) >= 10 else f"{hours:+.1f} h"
