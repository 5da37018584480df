"""Builds a self-contained HTML page: escaped text, tables, figures as inline SVG.

All text is escaped, and the page loads nothing from outside.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from typing import TYPE_CHECKING

from dovetail.report.plots.canvas import INK, svg_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""The content security policy of the page: the browser loads nothing from outside."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its text, and the number that sorts it (None: unknown, sorted last)."""

    text: str
    sort_key: float | None = None
    is_words: bool = False

    def html(self) -> str:
        """Returns the cell as HTML."""
        if self.is_words:
            return f'<td class="words">{escape(self.text)}</td>'
        key = "" if self.sort_key is None else repr(float(self.sort_key))
        return f'<td data-sort="{key}">{escape(self.text)}</td>'


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of a table; `note` is small print under its name."""

    name: str
    cells: Sequence[Cell]
    note: str = ""
    is_best: bool = False

    def html(self) -> str:
        """Returns the row as HTML."""
        note = f'<div class="small">{escape(self.note)}</div>' if self.note else ""
        kind = ' class="best"' if self.is_best else ""
        body = "".join(cell.html() for cell in self.cells)
        name = escape(self.name)
        return f'<tr{kind}><th scope="row" data-sort="{name}">{name}{note}</th>{body}</tr>'


def table(heads: Sequence[str], rows: Sequence[TableRow], kind: str = "sortable") -> str:
    """Returns a table that scrolls in its own box; a sortable one sorts on a click on its head."""
    head = "".join(f'<th scope="col">{escape(h)}</th>' for h in heads)
    body = "\n".join(row.html() for row in rows)
    return (
        f'<div class="scroll" tabindex="0"><table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def figure(drawn: Figure, title: str, caption: str, key: str) -> str:
    """Returns a figure with its title and caption; `key` keeps its inner names from clashing."""
    svg = inline_svg(svg_text(drawn), key, f"{title}. {caption}")
    return (
        f"<figure><h3>{escape(title)}</h3>{svg}<figcaption>{escape(caption)}</figcaption></figure>"
    )


def inline_svg(svg: str, key: str, label: str) -> str:
    """Returns an SVG file as an element of the page, in the reader's own text colour."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.S)
    body = re.sub(r"<style[^>]*>.*?</style>", "", body, flags=re.S)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.S)
    body = re.sub(r'(id="|href="#|url\(#)', lambda m: m.group(1) + key + "-", body)
    body = re.sub(r' d="[^"]*"', lambda m: _rounded(m.group()), body)
    body = body.replace(INK, "currentColor")
    body = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", body, count=1)
    attributes = f' role="img" aria-label="{escape(label, quote=True)}"'
    return body.replace("<svg", "<svg" + attributes, 1).strip()


def _rounded(path: str) -> str:
    """Returns a path with hundredths of a point, which no eye can tell from millionths."""
    return re.sub(r"(\.\d\d)\d+", r"\1", path)


def page(title: str, body: str) -> str:
    """Returns the whole page."""
    files = resources.files("dovetail.report") / "templates"
    css = (files / "report.css").read_text("utf-8")
    script = (files / "report.js").read_text("utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>\n{css}</style></head>\n<body>\n{body}\n<script>\n{script}</script>\n"
        "</body></html>\n"
    )
