"""A reproduction as a folder (report.html, rows.csv, summary.json, figures) and on a terminal."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from papers.frame.claim import HOLDS, MISSED, WITHIN, Claim, Reproduction, Table

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
    from rich.table import Table as RichTable

HEADS = ("", "published", "ours", "band", "verdict")


def write_reproduction(reproduction: Reproduction, folder: Path) -> None:
    """Writes all files of a paper into a folder that exists and is empty."""
    from dovetail.report import plots

    figures = folder / "figures"
    figures.mkdir()
    for picture in reproduction.plots:
        plots.save(picture.draw(), figures / picture.name)
    (folder / "report.html").write_text(report(reproduction), "utf-8")
    summary = json.dumps(reproduction_dict(reproduction), indent=1)
    (folder / "summary.json").write_text(summary + "\n", "utf-8")
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(_row_dict(Claim("", ""))))
        writer.writeheader()
        writer.writerows(_row_dict(row) for row in reproduction.claims)
    for listing in reproduction.tables:
        with (folder / f"{listing.name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([listing.heads, *listing.rows])


def reproduction_dict(reproduction: Reproduction) -> dict[str, object]:
    """Returns the reproduction as plain values for JSON."""
    return {
        "study": reproduction.title,
        "covers": reproduction.covers,
        "verdicts": reproduction.verdicts,
        "notes": list(reproduction.notes),
        "rows": [_row_dict(row) for row in reproduction.claims],
        "sheets": {
            listing.name: [dict(zip(listing.heads, row, strict=True)) for row in listing.rows]
            for listing in reproduction.tables
        },
    }


def _row_dict(row: Claim) -> dict[str, object]:
    low, high = row.band or (None, None)
    fields = {k: v for k, v in asdict(row).items() if k not in ("band", "holds", "why")}
    return {**fields, "low": low, "high": high, "verdict": row.verdict, "why": _why(row)}


def _why(row: Claim) -> str:
    """Returns the reason of a row, which a row that is as it should be does not need."""
    return "" if row.verdict in (WITHIN, HOLDS) else row.why


def report(reproduction: Reproduction) -> str:
    """Returns the whole reproduction as one self-contained page."""
    from dovetail.report.page import TABLE_SCRIPTS, Picture, render

    values: dict[str, object] = {
        "title": reproduction.title,
        "covers": reproduction.covers,
        "answer": sentence(reproduction),
        "notes": reproduction.notes,
        "tables": _page_tables(reproduction),
        "pictures": [Picture(p.name, p.title, p.caption, p.draw()) for p in reproduction.plots],
    }
    return render("reproduction.html.jinja", TABLE_SCRIPTS, values, Path(__file__).parent)


def _page_tables(reproduction: Reproduction) -> Iterator[dict[str, object]]:
    """Yields the tables of the page with their titles: the paper's, then the claims by part."""
    from dovetail.report.page import Cell, ColumnHead, PageTable, TableRow

    for listing in reproduction.tables:
        shown = [
            TableRow(name, [Cell(c, is_words=i < listing.words - 1) for i, c in enumerate(rest)])
            for name, *rest in listing.rows
        ]
        heads = [ColumnHead(head) for head in listing.heads]
        yield {"title": listing.title, "table": PageTable(listing.name, heads, shown, kind="")}
    heads = [ColumnHead(head) for head in HEADS]
    for part, rows in groupby(reproduction.claims, key=lambda row: row.part):
        listed = [
            TableRow(
                r.what, [Cell(c, is_words=i == 3) for i, c in enumerate(cells(r)[1:])], _why(r)
            )
            for r in rows
        ]
        yield {"title": part, "table": PageTable(part, heads, listed)}


def sentence(reproduction: Reproduction) -> str:
    """Returns the outcome in one sentence."""
    counts = {verdict: n for verdict, n in reproduction.verdicts.items() if n}
    listed = ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
    return f"{len(reproduction.claims)} rows: {listed}." if counts else "Nothing was found."


def cells(row: Claim) -> list[str]:
    """Returns the cells of a row: name, published, ours, band, verdict."""
    band = "" if row.band is None else f"{number(row.band[0])} to {number(row.band[1])}"
    unit = f" {row.unit}" if row.unit else ""
    return [
        row.what,
        "" if row.published is None else number(row.published) + unit,
        "" if row.ours is None else number(row.ours) + unit,
        band,
        row.verdict,
    ]


def number(value: float) -> str:
    """Returns a number with four digits, or all of a whole number's."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def view(reproduction: Reproduction) -> Group:
    """Returns the terminal's view: a table for each part, misses with their reasons."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    shown: list[RenderableType] = [
        Text(reproduction.title, style="bold"),
        Text(sentence(reproduction)),
    ]
    for listing in reproduction.tables:
        shown += [Text(""), TableGrid(listing)]
    for part, grouped in groupby(reproduction.claims, key=lambda row: row.part):
        rows = list(grouped)
        table = RichTable(
            box=SIMPLE_HEAD, title=part, title_justify="left", title_style="bold", pad_edge=False
        )
        for i, head in enumerate(HEADS):
            table.add_column(head, justify="right" if 0 < i < 4 else "left")
        for row in rows:
            style = "red" if row.verdict == MISSED else ""
            table.add_row(*(Text(cell, style=style) for cell in cells(row)))
        shown += [Text(""), table, *_reasons(rows)]
    shown += [Text(""), *(Text(f"Note: {note}") for note in reproduction.notes)]
    return Group(*shown)


def _reasons(rows: Sequence[Claim]) -> list[RenderableType]:
    from rich.text import Text

    missed: dict[str, list[str]] = {}
    for row in rows:
        if row.verdict == MISSED and row.why:
            missed.setdefault(row.why, []).append(row.what)
    return [Text(f"missed: {'; '.join(what)}: {why}") for why, what in missed.items()]


@dataclass(frozen=True, slots=True)
class TableGrid:
    """All columns beside each other if they fit; else each part begins with the first column."""

    listing: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        title = self.listing.title
        for columns in self._parts(console, options):
            yield self._table(columns, title)
            title = ""

    def _parts(self, console: Console, options: ConsoleOptions) -> Iterator[list[int]]:
        """Yields columns that fit beside each other; one too wide by itself is folded later."""
        from rich.measure import Measurement

        part = [0]
        for column in range(1, len(self.listing.heads)):
            wider = self._table([*part, column], "")
            needs = Measurement.get(console, options.update(max_width=10_000), wider).maximum
            if len(part) > 1 and needs > options.max_width:
                yield part
                part = [0]
            part.append(column)
        yield part

    def _table(self, columns: Sequence[int], title: str) -> RichTable:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(
            box=SIMPLE_HEAD,
            title=title or None,
            title_justify="left",
            title_style="bold",
            pad_edge=False,
        )
        for i in columns:
            words = i < self.listing.words
            table.add_column(self.listing.heads[i], justify="left" if words else "right")
        for row in self.listing.rows:
            table.add_row(*(Text(row[i]) for i in columns))
        return table
