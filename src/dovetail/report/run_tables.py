"""The tables of the page of one run: its numbers, and the split by each label of its jobs."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from dovetail.record.result import WEEKDAYS, RunResult
from dovetail.report.page import Cell, ColumnHead, PageTable, TableRow
from dovetail.report.words import MISSING, count, duration, factor, percent, size_order

TOP_GROUPS = 15
"""The largest groups of a split that are shown: a trace may name thousands of users."""
IN_ORDER = frozenset({"hour", "weekday"})
"""The splits that have an order of their own and few groups: all are shown."""
SPLIT_NAMES = {
    "size_class": "GPUs asked for",
    "queue": "Queue",
    "queue_size": "Queue: GPUs",
    "account": "Account",
    "user": "User",
    "model": "Model",
}
"""The titles of the splits, in the order shown; any other split follows under its own name."""
NUMBER_TABLES = 3
SPLIT_NUMBERS = (
    *("avg_jct_s", "median_jct_s", "p99_jct_s"),
    *("avg_wait_s", "median_wait_s", "p90_wait_s", "avg_time_to_start_s"),
)
SPLIT_HEADS = (
    ColumnHead("jobs"),
    ColumnHead("mean JCT", "jct"),
    ColumnHead("median", "median"),
    ColumnHead("99 %", "p99"),
    ColumnHead("wait", "wait"),
    ColumnHead("median", "wait"),
    ColumnHead("90 %", "wait"),
    ColumnHead("to first start", "start"),
)


class TitledTable(NamedTuple):
    """A table with its title."""

    title: str
    table: PageTable


def split_titles(splits: dict[str, pl.DataFrame]) -> dict[str, str]:
    """Returns the title of each split that names groups, in the order of the page."""
    keys = [*SPLIT_NAMES, *sorted(key for key in splits if key not in SPLIT_NAMES)]
    return {
        key: SPLIT_NAMES.get(key, key.replace("_", " ").capitalize())
        for key in keys
        if key in splits and len(splits[key]) and splits[key]["group"].to_list() != [""]
    }


def group_name(group: object) -> str:
    """Returns the name of a group as a table shows it; jobs may name none."""
    return str(group) or "(none)"


def sorted_groups(key: str, groups: pl.DataFrame) -> pl.DataFrame:
    """Returns sizes by size, hours and weekdays by time, others by jobs, the largest first."""
    if key == "size_class":
        order = sorted(range(len(groups)), key=lambda i: size_order(str(groups["group"][i])))
        return groups[order]
    if key in IN_ORDER:
        days = {day: f"{number:02}" for number, day in enumerate(WEEKDAYS)}
        return groups.sort(pl.col("group").replace(days))
    return groups.sort("jobs", "group", descending=[True, False])


def shown_groups(key: str, groups: pl.DataFrame, most: int = TOP_GROUPS) -> pl.DataFrame:
    """Returns the first groups, and all hours of the day."""
    return groups if key in IN_ORDER else groups.head(most)


def group_tables(result: RunResult) -> list[TitledTable]:
    """Returns a table for each split of the run."""
    tables = []
    for key, title in split_titles(result.splits).items():
        frame = sorted_groups(key, result.splits[key])
        rows = [
            TableRow(
                group_name(row["group"]),
                [
                    Cell(count(row["jobs"]), row["jobs"]),
                    *(Cell(duration(row[k]), row[k]) for k in SPLIT_NUMBERS),
                ],
            )
            for row in shown_groups(key, frame).to_dicts()
        ]
        rest = len(frame) - len(rows)
        more = f"and {rest:,} more, with fewer jobs each" if rest else ""
        listed = PageTable(f"by-{key}", [ColumnHead(title), *SPLIT_HEADS], rows, frame, more=more)
        tables.append(TitledTable(title, listed))
    return tables


def numbers_tables(result: RunResult) -> list[PageTable]:
    """Returns all numbers of the summary, in tables side by side; the last has the CSV of all."""
    known = {k: v for k, v in result.summary.items() if k != "policy" and v is not None}
    rows = [
        TableRow(key.removesuffix("_s").replace("_", " "), [Cell(_spelled(key, value))])
        for key, value in known.items()
    ]
    frame = pl.DataFrame({"number": list(known), "value": [str(v) for v in known.values()]})
    heads, per_table = (
        [ColumnHead("number"), ColumnHead("value")],
        max(1, -(-len(rows) // NUMBER_TABLES)),
    )
    starts = range(0, len(rows), per_table)
    return [
        PageTable(
            "numbers",
            heads,
            rows[start : start + per_table],
            frame if start == starts[-1] else None,
            kind="plain",
        )
        for start in starts
    ]


def import_table(result: RunResult) -> PageTable | None:
    """Returns what an import made of the rows of the log, None where nobody knows."""
    trace = result.manifest.get("trace")
    record = trace.get("import") if isinstance(trace, dict) else None
    if not isinstance(record, dict):
        return None
    counts = {str(what): int(number) for what, number in record["counts"].items()}
    rows = [TableRow(what, [Cell(count(number), number)]) for what, number in counts.items()]
    frame = pl.DataFrame({"what": list(counts), "rows": list(counts.values())})
    heads = [ColumnHead(f"rows of {record['source']} ({record['format']})"), ColumnHead("rows")]
    return PageTable("import", heads, rows, frame, kind="plain")


IMPORT_UNKNOWN = (
    "The trace does not say how it was imported: what was left out of its log is not known."
)


def _spelled(key: str, value: float | int | str) -> str:
    if isinstance(value, str):
        return value or MISSING
    if key.endswith("_gpu_s"):
        return f"{value:,.0f} GPU-s"
    if key.endswith("_s"):
        return duration(value)
    if key.endswith("_utilization"):
        return percent(value)
    if key == "x_bound":
        return factor(value)
    return count(value) if float(value).is_integer() else f"{value:,.4g}"
