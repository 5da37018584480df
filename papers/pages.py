"""Findings as a folder (report.html, rows.csv, summary.json, figures) and as a terminal table."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from papers.finding import HOLDS, MISSED, WITHIN, Finding, Findings
from papers.grids import Grid
from papers.studies import Study

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

HEADS = ("", "published", "ours", "band", "verdict")


def write_findings(study: Study, findings: Findings, folder: Path) -> None:
    """Writes all files of a study into a folder that exists and is empty."""
    from dovetail.report import plots

    figures = folder / "figures"
    figures.mkdir()
    for picture in findings.pictures:
        plots.save(picture.draw(), figures / picture.name)
    (folder / "report.html").write_text(report(study, findings), "utf-8")
    said = json.dumps(findings_dict(study, findings), indent=1)
    (folder / "summary.json").write_text(said + "\n", "utf-8")
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(_row_dict(Finding("", ""))))
        writer.writeheader()
        writer.writerows(_row_dict(row) for row in findings.rows)
    for sheet in findings.sheets:
        with (folder / f"{sheet.name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([sheet.heads, *sheet.rows])


def findings_dict(study: Study, findings: Findings) -> dict[str, object]:
    """Returns the findings as plain values for JSON."""
    return {
        "study": study.title,
        "covers": study.covers,
        "verdicts": findings.verdicts,
        "notes": list(findings.notes),
        "rows": [_row_dict(row) for row in findings.rows],
        "sheets": {
            sheet.name: [dict(zip(sheet.heads, row, strict=True)) for row in sheet.rows]
            for sheet in findings.sheets
        },
    }


def _row_dict(row: Finding) -> dict[str, object]:
    low, high = row.band or (None, None)
    kept = {k: v for k, v in asdict(row).items() if k not in ("band", "holds", "why")}
    return {**kept, "low": low, "high": high, "verdict": row.verdict, "why": _why(row)}


def _why(row: Finding) -> str:
    """Returns the reason of a row, which a row that is as it should be does not need."""
    return "" if row.verdict in (WITHIN, HOLDS) else row.why


def report(study: Study, findings: Findings) -> str:
    """Returns the whole study as one self-contained page."""
    from dovetail.report.page import Cell, TableRow, figure, page, table

    body = [
        f"<h1>{escape(study.title)}</h1>",
        f"<p>{escape(study.covers)}</p>",
        f'<p class="answer">{escape(sentence(findings))}</p>',
    ]
    if findings.notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in findings.notes)
        body.append(f"<h2>What it was run on</h2><ul>{items}</ul>")
    for sheet in findings.sheets:
        shown = [
            TableRow(name, [Cell(c, is_words=i < sheet.words - 1) for i, c in enumerate(rest)])
            for name, *rest in sheet.rows
        ]
        body += [f"<h2>{escape(sheet.title)}</h2>", table(sheet.heads, shown, "")]
    for part, rows in groupby(findings.rows, key=lambda row: row.part):
        listed = [
            TableRow(
                r.what, [Cell(c, is_words=i == 3) for i, c in enumerate(cells(r)[1:])], _why(r)
            )
            for r in rows
        ]
        body += [f"<h2>{escape(part)}</h2>", table(HEADS, listed)]
    drawn = [figure(p.draw(), p.title, p.caption, p.name) for p in findings.pictures]
    if drawn:
        body.append(f'<h2>Pictures</h2><div class="figures">\n{"".join(drawn)}\n</div>')
    return page(f"Dovetail: {study.title}", "\n".join(body))


def sentence(findings: Findings) -> str:
    """Returns the outcome in one sentence."""
    counted = {verdict: n for verdict, n in findings.verdicts.items() if n}
    listed = ", ".join(f"{n} {verdict}" for verdict, n in counted.items())
    return f"{len(findings.rows)} rows: {listed}." if counted else "Nothing was found."


def cells(row: Finding) -> list[str]:
    """Returns what a table says of a finding: name, published, ours, band, verdict."""
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


def view(study: Study, findings: Findings) -> Group:
    """Returns what the terminal shows: a table for each part, misses with their reasons."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    shown: list[RenderableType] = [Text(study.title, style="bold"), Text(sentence(findings))]
    for sheet in findings.sheets:
        shown += [Text(""), Grid(sheet)]
    for part, grouped in groupby(findings.rows, key=lambda row: row.part):
        rows = list(grouped)
        table = Table(
            box=SIMPLE_HEAD, title=part, title_justify="left", title_style="bold", pad_edge=False
        )
        for i, head in enumerate(HEADS):
            table.add_column(head, justify="right" if 0 < i < 4 else "left")
        for row in rows:
            style = "red" if row.verdict == MISSED else ""
            table.add_row(*(Text(cell, style=style) for cell in cells(row)))
        shown += [Text(""), table, *_reasons(rows)]
    shown += [Text(""), *(Text(f"Note: {note}") for note in findings.notes)]
    return Group(*shown)


def _reasons(rows: Sequence[Finding]) -> list[RenderableType]:
    from rich.text import Text

    missed: dict[str, list[str]] = {}
    for row in rows:
        if row.verdict == MISSED and row.why:
            missed.setdefault(row.why, []).append(row.what)
    return [Text(f"missed: {'; '.join(what)}: {why}") for why, what in missed.items()]
