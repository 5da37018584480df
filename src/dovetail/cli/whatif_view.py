"""The terminal tables of `whatif` and `chargeback`: rows beside the base, the search, charges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dovetail.report.words import MISSING, count, duration, factor, percent, shortened

if TYPE_CHECKING:
    from dovetail.study.target import TargetAnswer
    from dovetail.study.whatif import Whatif

_CHANGE_WIDTH = 22
_NAMES_MAX, _NAME_WIDTH = 6, 9
_MONEY = "cost_per_month"


def whatif_view(found: Whatif, by: str = "") -> Group:
    """Returns what decides the answer, the answer, the rows, their cost, and the notes.

    `by` is what the waits are split by, if they are.
    """
    rows = found.table.to_dicts()
    first = [Text(note) for note in found.notes[: found.first]]
    rest = [Text(f"Note: {note}") for note in found.notes[found.first :]]
    parts: list[Text | Table] = [*first, Text(best_sentence(rows)), Text(""), _rows(rows)]
    parts.append(Text("1 GPU: jobs of one GPU that start within 10 min; held: GPUs in use\n"))
    if found.split is not None:
        parts += _by_name(found.split, by)
    if rows[0][_MONEY] is not None:
        parts += [_money(rows), Text("")]
    return Group(*parts, *rest)


def best_sentence(rows: Sequence[dict[str, object]]) -> str:
    """Returns which row has the shortest mean JCT, and whether it differs clearly from the base."""
    kept = [row for row in rows if not _lost_jobs(row, rows[0])]
    lost = "".join(
        f" '{row['change']}' is not compared: {_lost_jobs(row, rows[0]):,.0f} jobs fit no more."
        for row in rows
        if row not in kept
    )
    return f"{_best_of(kept)}{lost}"


def _lost_jobs(row: dict[str, object], base: dict[str, object]) -> float:
    """Returns how many jobs that fit the base do not fit a row, which may make its mean short."""
    return max(0.0, float(str(row["left_out_jobs"])) - float(str(base["left_out_jobs"])))


def _best_of(rows: Sequence[dict[str, object]]) -> str:
    base = rows[0]["change"]
    best = min(rows, key=lambda row: float(str(row["avg_jct_s"])))
    if best is rows[0]:
        return "No change shortens the mean JCT."
    text = (
        f"Shortest mean JCT: '{best['change']}', {_times(best['ratio_to_base'])} that of '{base}'"
    )
    if best["ratio_low"] is None:
        return f"{text}. It has no interval and may be chance."
    clear = float(str(best["ratio_high"])) < 1
    interval = f"{_times(best['ratio_low'])} to {_times(best['ratio_high'])}"
    text += f" (95 % interval {interval}{'' if clear else ': no clear difference'})"
    lost = (("kills", best["cut_jobs"]), ("leaves out", best["left_out_jobs"]))
    but = " and ".join(f"{verb} {_number(jobs):,.0f} jobs" for verb, jobs in lost if jobs)
    return f"{text}, but it {but}." if but else f"{text}."


def _times(value: object) -> str:
    return factor(None if value is None else float(str(value)))


def _rows(rows: Sequence[dict[str, object]]) -> Table:
    heads = ("mean JCT", "vs base", "95 %", "wait", "90 % wait", "1 GPU", "held")
    table = _table(heads)
    for row in rows:
        low, high = _times(row["ratio_low"]), _times(row["ratio_high"])
        interval = MISSING if row["ratio_low"] is None else f"{low[:-1]}-{high[:-1]}"
        _add(
            table,
            row["change"],
            duration(_number(row["avg_jct_s"])),
            _times(row["ratio_to_base"]),
            interval,
            duration(_number(row["avg_wait_s"])),
            duration(_number(row["p90_wait_s"])),
            _share(row["one_gpu_jobs_in_10_min"]),
            _share(row["gpu_utilization"]),
        )
    return table


def _by_name(split: pl.DataFrame, by: str) -> list[Text | Table]:
    """Returns the mean waits of the names with most jobs, and what they are of."""
    names = split["name"].unique(maintain_order=True).to_list()
    shown = names[:_NAMES_MAX]
    table = _table([shortened(name or f"no {by}", _NAME_WIDTH) for name in shown])
    for change in split["change"].unique(maintain_order=True).to_list():
        rows = split.filter(pl.col("change") == change).rows_by_key("name", named=True, unique=True)
        _add(table, change, *(duration(rows[name]["avg_wait_s"]) for name in shown))
    some = f", {len(shown)} of {len(names)}" if len(names) > len(shown) else ""
    return [Text(f"Mean wait by {by}{some}"), table, Text("")]


def _money(rows: Sequence[dict[str, object]]) -> Table:
    table = _table(("GPUs", "cost of 30 d", "more", "GPU-hour held", "useful"))
    for row in rows:
        _add(
            table,
            row["change"],
            count(_number(row["gpus"])),
            *(_amount(row[key]) for key in (_MONEY, "extra_cost_per_month")),
            *(_amount(row[key]) for key in ("cost_per_gpu_h_used", "cost_per_gpu_h_useful")),
        )
    return table


def target_view(answers: Sequence[TargetAnswer], notes: Sequence[str]) -> Group:
    """Returns what decides, the answer of each setting, and the sizes around it."""
    parts: list[Text | Table] = [Text(note) for note in notes]
    alone = len(answers) == 1
    parts += [Text(a.sentence if alone else f"{a.change}: {a.sentence}") for a in answers]
    for answer in answers:
        priced = answer.table[_MONEY].null_count() == 0
        money = ("cost of 30 d",) if priced else ()
        mixed = any("+" in row["cluster"] for row in answer.table.to_dicts())
        what = "cluster" if mixed else "nodes"
        table = _table((what, "GPUs", "share", "95 %", "wait", *money, ""))
        for row in answer.table.to_dicts():
            low, high = row["share_low"], row["share_high"]
            interval = MISSING if low is None else f"{_share(low)}-{_share(high)}"
            _add(
                table,
                row["change"],
                row["cluster"].replace(" ", "") if mixed else count(row["nodes"]),
                count(row["gpus"]),
                _share(row["share"]),
                interval,
                duration(row["avg_wait_s"]),
                *((_amount(row[_MONEY]),) if priced else ()),
                "<- answer" if row["cluster"] == answer.cluster else "",
            )
        parts += [Text(""), table]
    return Group(*parts)


def _table(heads: Sequence[str]) -> Table:
    table = Table(
        box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold"
    )
    table.add_column("change", max_width=_CHANGE_WIDTH, overflow="fold")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _add(table: Table, change: object, *cells: str) -> None:
    table.add_row(escape(str(change)), *cells)


def _number(value: object) -> float | None:
    return None if value is None else float(str(value))


def _share(value: object) -> str:
    return percent(_number(value)).replace(" ", "")


def _amount(value: object) -> str:
    """Returns an amount of money: whole from 100 on, else with two decimals."""
    amount = _number(value)
    if amount is None:
        return MISSING
    return f"{amount:,.0f}" if abs(amount) >= 100 else f"{amount:,.2f}"


def charges_view(words: str, by: str, charges: pl.DataFrame) -> Group:
    """Returns the charges by month and payer, each month with its sum."""
    priced = charges["cost"].null_count() < len(charges)
    heads = ("GPU type", "GPU-hours", "idle GPU-hours", *(("cost",) if priced else ()))
    table = Table(
        box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold"
    )
    for name in ("month", by):
        table.add_column(name, no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for month in charges["month"].unique(maintain_order=True):
        rows = charges.filter(pl.col("month") == month)
        for row in rows.to_dicts():
            table.add_row(*_charge_cells(month, row, priced))
        sums = rows.select("gpu_hours", "idle_gpu_hours", "cost").sum().to_dicts()[0]
        total = {**sums, "who": "all", "gpu_type": ""}
        table.add_row(*_charge_cells(month, total, priced), style="bold", end_section=True)
    parts: list[Text | Table] = [Text(words), Text(""), table]
    if not priced:
        parts += [Text(""), Text("Note: no prices: give them with --price, as in --price 2.10")]
    return Group(*parts)


def _charge_cells(month: str, row: dict[str, object], priced: bool) -> list[str]:
    hours = [f"{_number(row[key]) or 0.0:,.1f}" for key in ("gpu_hours", "idle_gpu_hours")]
    cost = [_amount(row["cost"])] if priced else []
    return [escape(text) for text in (month, str(row["who"]), str(row["gpu_type"]))] + hours + cost
