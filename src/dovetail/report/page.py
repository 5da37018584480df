"""Builds a self-contained HTML page from templates: escaped text, tables, figures, scripts.

All text is escaped by the templates. The page loads nothing, and its browser runs no script
but those whose hashes stand in its policy.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import polars as pl

from dovetail.report.order import Mark
from dovetail.report.plots.canvas import INK, svg_text
from dovetail.report.terms import TERMS

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup
    from matplotlib.figure import Figure

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src "
"""The content security policy of the page: the browser loads nothing from outside."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its text, and the number that sorts it (None: unknown, sorted last).

    `share` (0 to 1) draws a bar behind the text, as long as that part of the cell.
    """

    text: str
    sort_key: float | None = None
    is_words: bool = False
    share: float | None = None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class ColumnHead:
    """The head of a column: its text, the word it is explained under, the mark of a policy."""

    text: str
    term: str = ""
    mark: Mark | None = None
    is_words: bool = False

    @property
    def meaning(self) -> str:
        """Returns the definition of the head's word."""
        return TERMS[self.term].meaning if self.term else ""


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of a table; `note` is small print under its name, `mark` that of a policy."""

    name: str
    cells: Sequence[Cell]
    note: str = ""
    is_best: bool = False
    mark: Mark | None = None


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table that scrolls in its own box; a sortable one sorts on a click on its head.

    `frame` is what the table shows, whole: the reader downloads it as `name`.csv.
    """

    name: str
    heads: Sequence[ColumnHead]
    rows: Sequence[TableRow]
    frame: pl.DataFrame | None = None
    kind: str = "sortable"
    more: str = ""

    @property
    def csv_link(self) -> str:
        """Returns the frame as CSV in a data URI."""
        assert self.frame is not None
        return "data:text/csv;charset=utf-8," + quote(self.frame.write_csv(), safe=CSV_SAFE)


CSV_SAFE = ",;:.+-_~!*()=/@ "
"""What a data URI in a quoted attribute may hold as it is; quoting all would add a third."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure of the page: drawn once here, and again by the scripts where they run.

    `chart` names the script's drawing that takes its place; without one it stays as it is.
    """

    key: str
    title: str
    caption: str
    drawn: Figure
    chart: str = ""

    @property
    def svg(self) -> Markup:
        """Returns the figure as an element of the page; `key` keeps inner names apart."""
        from markupsafe import Markup

        label = f"{self.title}. {self.caption}"
        return Markup(inline_svg(svg_text(self.drawn), self.key, label))


@cache
def environment(*folders: Path) -> Environment:
    """Returns the templates of this package, and of folders of others before them."""
    from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined

    loaders = [FileSystemLoader(list(folders)), PackageLoader("dovetail.report", "templates")]
    return Environment(
        loader=ChoiceLoader(loaders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: str, scripts: Sequence[str], values: dict[str, object], *folders: Path) -> str:
    """Returns a whole page: a template, with the named scripts at its end."""
    from markupsafe import Markup

    texts = [Markup(f"\n{_script(name)}") for name in scripts]
    found = environment(*folders).get_template(template)
    css = "".join(_script(name) for name in STYLES)
    policy = POLICY + " ".join(_hash_of(text) for text in texts)
    return found.render(**values, css=Markup(css), scripts=texts, policy=policy, terms=TERMS)


STYLES = ("uPlot.min.css", "report.css")
TABLE_SCRIPTS = ("tables.js",)
CHART_SCRIPTS = ("uPlot.iife.min.js", "tables.js", "jobs.js", "draw.js", "charts.js")


def _script(name: str) -> str:
    root = resources.files("dovetail.report")
    if not name.startswith("uPlot"):
        return (root / "templates" / name).read_text("utf-8")
    licence = (root / "vendored" / "uPlot.LICENSE").read_text("utf-8")
    return f"/*\n{licence}*/\n{(root / 'vendored' / name).read_text('utf-8')}\n"


def _hash_of(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


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
