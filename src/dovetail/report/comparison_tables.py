"""The tables of the page of a comparison; each has a frame, which is its CSV."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import polars as pl

from dovetail.record.result import GPU_SECOND_KINDS, IF_KNOWN, RECORDED, Comparison
from dovetail.report.changes import LABELS, changes
from dovetail.report.order import Mark, advised, best_of, marks, names_in_order, rows_in_order
from dovetail.report.page import Cell, ColumnHead, PageTable, TableRow
from dovetail.report.recorded_tables import ROWS_MAX
from dovetail.report.run_tables import (
    IN_ORDER,
    SPLIT_NAMES,
    TitledTable,
    group_name,
    shown_groups,
    sorted_groups,
    split_titles,
)
from dovetail.report.why import Why, why
from dovetail.report.words import (
    MISSING,
    count,
    duration,
    factor,
    known_words,
    percent,
    power_words,
    short_names,
    size_words,
)

TOP_CHANGES = 6
"""The groups that lose, and those that gain, that the page shows of each label."""


class Payers(NamedTuple):
    """What one policy does to each group of jobs."""

    name: str
    mark: Mark
    words: str
    tables: Sequence[TitledTable]
    is_open: bool = False
    note: str = ""
    why: str = ""


def paints(comparison: Comparison) -> dict[str, Mark]:
    """Returns the mark of each row."""
    return marks([*comparison.results, *comparison.table["policy"]])


def shorts(comparison: Comparison) -> dict[str, str]:
    """Returns the short name of each policy, numbered in the order of the command line."""
    return short_names([*comparison.results, *comparison.table["policy"]])


RANKING_HEADS = (
    ColumnHead("policy", "policy"),
    ColumnHead("mean JCT", "jct"),
    ColumnHead("95 % interval", "interval"),
    ColumnHead("vs baseline", "ratio"),
    ColumnHead("its interval", "interval"),
    ColumnHead("x bound", "bound"),
    ColumnHead("median", "median"),
    ColumnHead("99 %", "p99"),
    ColumnHead("wait", "wait"),
    ColumnHead("to first start", "start"),
    ColumnHead("makespan", "makespan"),
    ColumnHead("GPUs held", "held"),
    ColumnHead("preemptions", "preemptions"),
    ColumnHead("knows", "knows", is_words=True),
    ColumnHead("may", "powers", is_words=True),
)


def ranking_table(comparison: Comparison) -> PageTable:
    """Returns the policies by mean JCT, the record first."""
    best, short, paint = best_of(comparison), shorts(comparison), paints(comparison)
    ranked = rows_in_order(comparison)
    rows = []
    for row in ranked:
        name = str(row["policy"])
        notes = {
            DEPLOYABLE: name == comparison.deployable,
            "shortest mean": name == best,
            "baseline": name == comparison.baseline,
            "what happened, by the log": name == RECORDED,
            "if lengths were known": str(row["kind"]) == IF_KNOWN,
        }
        note = " · ".join(word for word, holds in notes.items() if holds)
        is_best = name == advised(comparison)
        rows.append(TableRow(short[name], _ranking_cells(row), note, is_best, paint[name]))
    frame = pl.DataFrame(ranked, schema=comparison.table.schema)
    against = ColumnHead(f"vs {short.get(comparison.baseline, 'baseline')}", "ratio")
    heads = [against if head.term == "ratio" else head for head in RANKING_HEADS]
    return PageTable("policies", heads, rows, frame)


def _ranking_cells(row: dict[str, float]) -> list[Cell]:
    is_recorded = str(row["policy"]) == RECORDED
    return [
        _time(row["avg_jct_s"]),
        Cell(_range(row["low"], row["high"], duration), row["low"]),
        Cell(factor(row["ratio_to_baseline"]), row["ratio_to_baseline"]),
        Cell(_range(row["ratio_low"], row["ratio_high"], factor), row["ratio_low"]),
        Cell(factor(row["x_bound"]), row["x_bound"]),
        _time(row["median_jct_s"]),
        _time(row["p99_jct_s"]),
        _time(row["avg_wait_s"]),
        _time(row["avg_time_to_start_s"]),
        _time(row["makespan_s"]),
        Cell(percent(row["gpu_utilization"]), row["gpu_utilization"]),
        Cell(count(row["preemptions"]), row["preemptions"]),
        Cell(MISSING if is_recorded else known_words(row), is_words=True),
        Cell(MISSING if is_recorded else power_words(row), is_words=True),
    ]


def _time(seconds: float | None) -> Cell:
    return Cell(duration(seconds), seconds)


def _range(low: float | None, high: float | None, spell: type[str] | object) -> str:
    assert callable(spell)
    if low is None or high is None or low == high:
        return MISSING
    return f"{spell(low)} – {spell(high)}"


DEPLOYABLE = "best that could be deployed today"


def changes_tables(comparison: Comparison) -> list[Payers]:
    """Returns for each policy but the baseline who loses and who gains.

    The one that the page opens on is what a reader could act on, else the first.
    """
    results, base = comparison.results, comparison.baseline
    if base not in results:
        return []
    others = [name for name in names_in_order(comparison) if name not in (base, RECORDED)]
    first = advised(comparison)
    shown_open = first if first in others else next(iter(others), "")
    found = []
    for number, name in enumerate(others):
        tables = list(_changes_of(comparison, name, number))
        found_why = why(comparison, name)
        if found_why is not None:
            tables.append(
                TitledTable("Waiting saved, by GPUs and time held", _why_table(found_why, number))
            )
        if tables:
            words = _losers(changes(comparison, name, "user"), changes(comparison, name, LABELS[0]))
            note = DEPLOYABLE if name == comparison.deployable else ""
            mark, short = paints(comparison)[name], shorts(comparison)[name]
            because = found_why.words if found_why is not None else ""
            found.append(Payers(short, mark, words, tables, name == shown_open, note, because))
    return found


WHY_HEADS = (
    ColumnHead("GPUs, time held"),
    ColumnHead("jobs"),
    ColumnHead("wait before", "wait"),
    ColumnHead("after", "wait"),
    ColumnHead("saved", "saved"),
)
SHARED = (ColumnHead("share"), ColumnHead("wait less"), ColumnHead("longer"))
RECORDED_WAIT = (ColumnHead("recorded wait", "recorded"), ColumnHead("saved from it", "saved"))
RECORDED_JCT = (ColumnHead("recorded JCT", "recorded"), ColumnHead("job-hours from it", "total"))
OFF = "replay far off"
"""The note on a group in which the error of the replay is more than half of the change."""


def _why_table(found: Why, number: int) -> PageTable:
    """Returns the waiting saved by size and length."""
    most_s = max(abs(float(saved_s)) for saved_s in found.table["saved_s"])
    logged = "recorded_wait_s" in found.table.columns
    rows = []
    for row in found.table.to_dicts():
        saved_s = float(row["saved_s"])
        kind = "gain" if saved_s > 0 else "loss"
        cells = [
            Cell(count(row["jobs"]), row["jobs"]),
            *(_time(row[key]) for key in ("base_wait_s", "wait_s")),
            Cell(_job_hours(saved_s), saved_s, kind=kind, share=abs(saved_s) / (most_s or 1.0)),
        ]
        if logged:
            cells += _beside(row["recorded_wait_s"], row["recorded_saved_s"])
        else:
            cells.append(Cell(percent(row["share"]), row["share"]))
            cells += [Cell(count(row[key]), row[key]) for key in ("gain", "lose")]
        name = f"{size_words(row['group'])}, {row['length']}"
        rows.append(TableRow(name, cells, OFF if row.get("replay_off") else ""))
    heads = [*WHY_HEADS, *(RECORDED_WAIT if logged else SHARED)]
    return PageTable(f"why-{number + 1}", heads, rows, found.table)


def _losers(users: pl.DataFrame, sizes: pl.DataFrame) -> str:
    frame, what = (users, "users") if len(users) else (sizes, "sizes")
    loss, gain = frame.filter(pl.col("ratio") > 1.005), frame.filter(pl.col("ratio") < 0.995)
    words = f"{len(loss):,} of {len(frame):,} {what} lose, {len(gain):,} gain"
    if "recorded_total_s" not in frame.columns:
        return words
    turned = frame.filter(pl.col("total_s") * pl.col("recorded_total_s") < 0)
    return f"{words}; against the log {len(turned):,} of them the other way round"


CHANGE_HEADS = (
    ColumnHead("jobs"),
    ColumnHead("job-hours", "total"),
    ColumnHead("change of mean", "change"),
    ColumnHead("mean JCT before", "jct"),
    ColumnHead("after", "jct"),
)


def _changes_of(comparison: Comparison, name: str, number: int) -> Iterable[TitledTable]:
    for label in LABELS:
        frame = changes(comparison, name, label)
        if len(frame) < 2:
            continue
        losers = frame.filter(pl.col("total_s") > 0).head(TOP_CHANGES)
        gainers = frame.filter(pl.col("total_s") <= 0).tail(TOP_CHANGES)
        shown = [*losers.to_dicts(), *gainers.to_dicts()]
        most_s = max(abs(row["total_s"]) for row in shown)
        rows = [
            TableRow(
                group_name(row["group"]),
                _change_cells(row, most_s),
                OFF if row.get("replay_off") else "",
            )
            for row in shown
        ]
        title = SPLIT_NAMES[label]
        listed = PageTable(
            f"changes-{number + 1}-by-{label}",
            [
                ColumnHead(title),
                *CHANGE_HEADS,
                *(RECORDED_JCT if "recorded_s" in frame.columns else []),
            ],
            rows,
            frame,
            more=f"the {len(rows)} that change most" if len(rows) < len(frame) else "",
        )
        yield TitledTable(title, listed)


def _change_cells(row: dict[str, float], most_s: float) -> list[Cell]:
    total_s = row["total_s"]
    kind = "loss" if total_s > 0 else "gain"
    return [
        Cell(count(row["jobs"]), row["jobs"]),
        Cell(_job_hours(total_s), total_s, kind=kind, share=abs(total_s) / (most_s or 1.0)),
        Cell(signed(row["change_s"]), row["change_s"]),
        _time(row["base_s"]),
        _time(row["jct_s"]),
        *(_beside(row["recorded_s"], row["recorded_total_s"]) if "recorded_s" in row else []),
    ]


def _beside(mean_s: float | None, total_s: float) -> list[Cell]:
    """Returns what the log has, and what it differs by."""
    return [_time(mean_s), Cell(_job_hours(total_s), total_s)]


def signed(seconds: float) -> str:
    """Returns a change as `+3.2 h` or `−41 s`."""
    words = duration(abs(seconds))
    return words if seconds == 0 else ("+" if seconds > 0 else "−") + words


def _job_hours(seconds: float) -> str:
    hours = abs(seconds) / 3600
    words = f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}"
    return ("+" if seconds > 0 else "−" if seconds < 0 else "") + words


def wait_frame(comparison: Comparison, key: str) -> pl.DataFrame:
    """Returns group, jobs, and the mean wait (s) under each policy in a column of its name.

    The medians and 90 % follow in columns of their own.
    """
    frames = {n: r.splits[key] for n, r in comparison.results.items() if key in r.splits}
    counted = pl.concat([f.select("group", "jobs") for f in frames.values()])
    groups = counted.group_by("group").agg(pl.col("jobs").max()).sort("group")
    columns = {"avg_wait_s": "wait_s", "median_wait_s": "median_s", "p90_wait_s": "90_percent_s"}
    for column, head in columns.items():
        for name in names_in_order(comparison):
            if name in frames:
                waits = frames[name].select(
                    "group", pl.col(column).round(3).alias(f"{head} {name}")
                )
                groups = groups.join(waits, on="group", how="left", maintain_order="left")
    return sorted_groups(key, groups)


def wait_tables(comparison: Comparison) -> list[TitledTable]:
    """Returns the waits by policy for each split but that by user: means, medians, 90 %.

    Hours and weekdays have means only.
    """
    splits = {k: f for r in comparison.results.values() for k, f in r.splits.items() if len(f)}
    tables = []
    for key, title in split_titles(splits).items():
        if key == "user":
            continue
        tables.append(TitledTable(title, _wait_table(comparison, key, title)))
        if key not in IN_ORDER:
            for column, words in (("median_s", "median"), ("90_percent_s", "90 % of the jobs")):
                table = _wait_table(comparison, key, title, column)
                tables.append(TitledTable(f"{title}, {words}", table))
    return tables


def user_table(comparison: Comparison) -> PageTable | None:
    """Returns the mean waits of users by policy; None where the trace names no users."""
    named = [r for r in comparison.results.values() if len(r.splits.get("user", ()))]
    return _wait_table(comparison, "user", "User") if named else None


def _wait_table(comparison: Comparison, key: str, title: str, column: str = "wait_s") -> PageTable:
    frame = wait_frame(comparison, key)
    short, paint = shorts(comparison), paints(comparison)
    waits_of = [column for column in frame.columns if column.startswith("wait_s ")]
    names = [column.removeprefix("wait_s ") for column in waits_of]
    heads = [
        ColumnHead(title),
        ColumnHead("jobs"),
        *(ColumnHead(short[n], "wait", paint[n]) for n in names),
    ]
    shown = shown_groups(key, frame, ROWS_MAX).to_dicts()
    known = [row[f"{column} {n}"] for row in shown for n in names]
    most_s = max((w for w in known if w is not None), default=0.0) or 1.0
    rows = []
    for row in shown:
        waits = [row[f"{column} {n}"] for n in names]
        cells = [
            Cell(duration(w), w, share=None if w is None else w / most_s, kind="bar") for w in waits
        ]
        jobs = Cell(count(row["jobs"]), row["jobs"])
        rows.append(TableRow(group_name(row["group"]), [jobs, *cells]))
    rest = len(frame) - len(rows)
    more = f"and {rest:,} more, with fewer jobs each" if rest else ""
    kind = column.removesuffix("_s").replace("_", "-").removeprefix("wait")
    return PageTable(
        f"{'-'.join(filter(None, ('wait', kind)))}-by-{key}", heads, rows, frame, more=more
    )


SPENDING_HEADS = {
    "useful": ColumnHead("useful work", "useful"),
    "slowdown": ColumnHead("slowed down", "slowed"),
    "switching": ColumnHead("switching", "switching"),
    "idle_waiting": ColumnHead("idle, jobs wait", "idle_waiting"),
    "idle_empty": ColumnHead("idle, none wait", "idle_empty"),
    "down": ColumnHead("node away", "down"),
}


def spending_table(comparison: Comparison) -> PageTable:
    """Returns the GPU-seconds of each kind by policy, shown as shares of the capacity."""
    short, paint = shorts(comparison), paints(comparison)
    used = [
        k
        for k in GPU_SECOND_KINDS
        if any(r.gpu_seconds.get(k) for r in comparison.results.values())
    ]
    rows, found = [], []
    for name in names_in_order(comparison):
        seconds = comparison.results[name].gpu_seconds
        total = sum(seconds.values())
        found.append({"policy": name, **{k: seconds.get(k) for k in used}})
        shares = [seconds.get(k, 0.0) / total if total > 0 else None for k in used]
        cells = [Cell(percent(share), share) for share in shares]
        rows.append(TableRow(short[name], cells, mark=paint[name]))
    frame = pl.DataFrame(found, schema={"policy": pl.String, **dict.fromkeys(used, pl.Float64)})
    heads = [ColumnHead("policy", "policy"), *(SPENDING_HEADS[k] for k in used)]
    return PageTable("gpu-seconds", heads, rows, frame)


def option_table(comparison: Comparison) -> PageTable:
    """Returns the options of the runs, each with its value or, where runs differ, all values."""
    manifests = [r.manifest for n, r in comparison.results.items() if n != RECORDED]
    keys = dict.fromkeys(key for manifest in manifests for key in manifest)
    found = [
        {"option": f"policy {short}", "value": name}
        for name, short in shorts(comparison).items()
        if short != name
    ]
    for key in keys:
        values = [manifest.get(key) for manifest in manifests]
        if key not in NO_OPTIONS and all(isinstance(v, str | int | float | None) for v in values):
            words = dict.fromkeys("" if v is None else str(v) for v in values)
            found.append({"option": key, "value": ", ".join(words)})
    frame = pl.DataFrame(found, schema={"option": pl.String, "value": pl.String})
    rows = [TableRow(row["option"], [Cell(row["value"], is_words=True)]) for row in found]
    return PageTable(
        "options",
        [ColumnHead("option"), ColumnHead("value", is_words=True)],
        rows,
        frame,
        kind="plain",
    )


NO_OPTIONS = {"policy", "name", "knows", "powers"}
"""What a manifest says of the policy and not of the run: the table of policies has it."""
