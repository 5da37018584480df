"""The waits of every policy by queue, account, user or size, in one table of the terminal."""

from __future__ import annotations

import polars as pl
from rich.console import Group
from rich.markup import escape
from rich.text import Text

from dovetail.core.errors import InputError
from dovetail.record.result import Comparison
from dovetail.report.order import marks
from dovetail.report.run_tables import group_name
from dovetail.report.tables import painted, plain_table, row_names, wait_groups
from dovetail.report.words import count, duration

SPLITS = {"queue": "queue", "account": "account", "user": "user", "size": "size_class"}
GROUPS_MAX = 12


def check_split(by: str) -> None:
    """Raises InputError for what splits no waits."""
    if by and by not in SPLITS:
        raise InputError("--by", f"'{by}' splits no waits", f"one of {', '.join(SPLITS)}")


def waits_by(comparison: Comparison, by: str) -> Group:
    """Returns mean, median and 90 % wait of each group of jobs under every policy.

    Raises InputError if the jobs name no group.
    """
    key = SPLITS[by]
    groups = wait_groups(comparison, key)
    if not groups:
        raise InputError("--by", f"the jobs of the trace name no {by}", "as in --by size")
    short = row_names(comparison)
    mark_of = marks(short)
    table = plain_table()
    for head in (by, "policy"):
        table.add_column(head, no_wrap=True, max_width=24)
    for head in ("jobs", "mean wait", "median", "90 %"):
        table.add_column(head, justify="right", no_wrap=True)
    for group in groups[:GROUPS_MAX]:
        label = group_name(group)
        for name in comparison.ranked["policy"]:
            split = comparison.results[name].splits.get(key) if name in comparison.results else None
            rows = () if split is None else split.filter(pl.col("group") == group).to_dicts()
            for row in rows:
                waits = (row["avg_wait_s"], row["median_wait_s"], row["p90_wait_s"])
                cells = (count(row["jobs"]), *map(duration, waits))
                table.add_row(escape(label), painted(short[name], mark_of[name]), *cells)
                label = ""
    some = f", {GROUPS_MAX} of {len(groups)}" if len(groups) > GROUPS_MAX else ""
    return Group(Text(f"Waits by {by}{some}"), table)
