"""The record of a log beside the replay of the site's scheduler; each table has a frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl

from dovetail.record.replay_error import ReplayError
from dovetail.record.result import RECORDED, Comparison, RunResult
from dovetail.report.page import Cell, ColumnHead, PageTable, TableRow
from dovetail.report.replay_words import departure_lines, later_words, replay_sentence
from dovetail.report.run_tables import (
    TitledTable,
    group_name,
    shown_groups,
    sorted_groups,
    split_titles,
)
from dovetail.report.words import count, duration, factor, percent

ROWS_MAX = 15
"""The groups of a split that the page shows; its CSV has all."""


class RecordBesideReplay(NamedTuple):
    """The log beside the replay of it."""

    words: str
    tables: Sequence[TitledTable]
    departures: PageTable | None = None
    reasons: str = ""


def recorded_tables(comparison: Comparison, shorts: Mapping[str, str]) -> RecordBesideReplay | None:
    """Returns the record beside the replay of the site's scheduler: in all, and by each label.

    `shorts` are the short names of the rows.
    """
    if RECORDED not in comparison.results:
        return None
    replay = comparison.site or comparison.baseline
    if replay == RECORDED:
        replay = next((name for name in comparison.results if name != RECORDED), "")
    if replay not in comparison.results:
        return None
    log, ours = comparison.results[RECORDED], comparison.results[replay]
    name = shorts[replay]
    words = (
        f"The log beside the replay of its jobs under {name}. The closer the two, the more the "
        "rows of other policies can be trusted."
    )
    error = comparison.replay_error
    if error is not None:
        words += f" {replay_sentence(error, name)}"
    heads = [
        ColumnHead("number"),
        ColumnHead("recorded", "recorded"),
        ColumnHead(name),
        ColumnHead("ratio"),
    ]
    tables = [TitledTable("In all", _recorded_numbers(heads, log, ours))]
    for key, title in split_titles(log.splits).items():
        if key in ours.splits and key != "user":
            frame = _recorded_split(log, ours, key)
            heads = [ColumnHead(title), *WAIT_PAIR]
            shown = [
                TableRow(group_name(r["group"]), [Cell(count(r["jobs"]), r["jobs"]), *_pair(r)])
                for r in shown_groups(key, frame, ROWS_MAX).to_dicts()
            ]
            listed = PageTable(f"recorded-by-{key}", heads, shown, frame)
            tables.append(TitledTable(f"Wait: {title}", listed))
    departures = _departures(error) if error is not None and error.departures else None
    lines = [] if error is None else departure_lines(error, 0)
    return RecordBesideReplay(words, tables, departures, " ".join(lines))


def _departures(error: ReplayError) -> PageTable:
    """Returns the first jobs whose starts differ, with the reason."""
    heads = [
        ColumnHead("after"),
        ColumnHead("job", is_words=True),
        ColumnHead("GPUs"),
        ColumnHead("replay starts it", is_words=True),
        ColumnHead("why", is_words=True),
    ]
    found = [
        {
            "after_s": d.t_s - error.first_s,
            "job_id": d.job_id,
            "gpus": d.gpus,
            "later_s": d.replayed_start_s - d.recorded_start_s,
            "why": d.because,
        }
        for d in error.departures
    ]
    rows = [
        TableRow(
            duration(d.t_s - error.first_s),
            [
                Cell(d.job_id, is_words=True),
                Cell(f"{d.gpus:g}", d.gpus),
                Cell(later_words(d), is_words=True),
                Cell(d.because, is_words=True),
            ],
        )
        for d in error.departures
    ]
    return PageTable("departures", heads, rows, pl.DataFrame(found), kind="plain")


WAIT_PAIR = (
    ColumnHead("jobs"),
    ColumnHead("recorded wait", "wait"),
    ColumnHead("replayed wait", "wait"),
    ColumnHead("ratio"),
)
RECORDED_NUMBERS = {
    "avg_jct_s": "mean JCT",
    "median_jct_s": "median JCT",
    "p99_jct_s": "99 % JCT",
    "avg_wait_s": "mean wait",
    "avg_time_to_start_s": "mean time to first start",
    "makespan_s": "makespan",
    "gpu_utilization": "GPUs held",
}


def _recorded_numbers(heads: Sequence[ColumnHead], log: RunResult, ours: RunResult) -> PageTable:
    found = [
        {"number": key, "recorded": log.number(key), "replayed": ours.number(key)}
        for key in RECORDED_NUMBERS
    ]
    frame = pl.DataFrame(
        found, schema={"number": pl.String, "recorded": pl.Float64, "replayed": pl.Float64}
    ).with_columns((pl.col("replayed") / pl.col("recorded")).alias("ratio"))
    rows = []
    for row in frame.to_dicts():
        spell = percent if row["number"] == "gpu_utilization" else duration
        cells = [Cell(spell(row[k]), row[k]) for k in ("recorded", "replayed")]
        rows.append(TableRow(RECORDED_NUMBERS[row["number"]], [*cells, Cell(factor(row["ratio"]))]))
    return PageTable("recorded", heads, rows, frame, kind="plain")


def _recorded_split(log: RunResult, ours: RunResult, key: str) -> pl.DataFrame:
    theirs = log.splits[key].select("group", "jobs", pl.col("avg_wait_s").alias("recorded_wait_s"))
    replayed = ours.splits[key].select("group", pl.col("avg_wait_s").alias("replayed_wait_s"))
    joined = theirs.join(replayed, on="group", how="left", maintain_order="left")
    ratio = (pl.col("replayed_wait_s") / pl.col("recorded_wait_s")).alias("ratio")
    return sorted_groups(key, joined.with_columns(ratio))


def _pair(row: dict[str, float]) -> list[Cell]:
    times = [Cell(duration(row[k]), row[k]) for k in ("recorded_wait_s", "replayed_wait_s")]
    return [*times, Cell(factor(_finite(row["ratio"])), _finite(row["ratio"]))]


def _finite(value: float | None) -> float | None:
    return None if value is None or value != value or value in (float("inf"),) else value
