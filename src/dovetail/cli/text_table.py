"""Text tables for commands that must answer at once: one line per row, as wide as the terminal.

NOTE: rich, which draws the reports of simulations, takes 45 ms to import and to draw 50 rows: too
long for every `ls`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import combining, east_asian_width

GAP = "   "
RULE, CUT = "─", "…"
Piece = tuple[str, str]
"""A text and the name of its style."""
Line = Sequence[Piece]


@dataclass(frozen=True, slots=True)
class Column:
    """A column, and how it shrinks when the table is too wide.

    First, columns with a `least` width are cut, down to that width. Then columns are dropped,
    those with the lowest `stays` first; a column with `stays` 0 is never dropped.
    """

    name: str
    right: bool = False
    least: int = 0
    stays: int = 0


def table_lines(
    columns: Sequence[Column], rows: Sequence[Sequence[Line]], width: int
) -> list[Line]:
    """Returns the lines of a table with a header, at most `width` wide."""
    widths = [
        max([len(column.name), *(cells(row[at]) for row in rows)])
        for at, column in enumerate(columns)
    ]
    shown = _fitted(columns, widths, width)
    rule = RULE * (sum(widths[at] + len(GAP) for at in shown) - len(GAP))
    names: list[Line] = [((column.name, "bold"),) for column in columns]
    lines = [_line(columns, row, widths, shown) for row in (names, *rows)]
    return [lines[0], ((rule, ""),), *lines[1:]]


def _line(
    columns: Sequence[Column], row: Sequence[Line], widths: Sequence[int], shown: Sequence[int]
) -> Line:
    line: list[Piece] = []
    for at in shown:
        cell = cut(row[at], widths[at])
        padding = (" " * (widths[at] - cells(cell)), "")
        line += [padding, *cell] if columns[at].right else [*cell, padding]
        line.append((GAP, ""))
    while line and not line[-1][0].strip(" "):
        line.pop()
    return line


def _fitted(columns: Sequence[Column], widths: list[int], width: int) -> list[int]:
    """Returns the columns that fit, and reduces `widths` of the widest as far as necessary."""
    columns_left = list(range(len(columns)))
    yields = [max(0, w - c.least) if c.least else 0 for w, c in zip(widths, columns, strict=True)]
    while True:
        over = sum(widths[at] + len(GAP) for at in columns_left) - len(GAP) - width
        leaving = [(columns[at].stays, at) for at in columns_left if columns[at].stays]
        if over <= sum(yields[at] for at in columns_left) or not leaving:
            break
        columns_left.remove(min(leaving)[1])
    while over > 0 and (wide := [(widths[at], -at) for at in columns_left if yields[at]]):
        at = -max(wide)[1]
        widths[at], yields[at], over = widths[at] - 1, yields[at] - 1, over - 1
    return columns_left


def cells(line: Line) -> int:
    """Returns the number of terminal cells of a line."""
    return sum(len(text) if text.isascii() else sum(map(_cells_of, text)) for text, _ in line)


def _cells_of(character: str) -> int:
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def cut(line: Line, width: int) -> Line:
    """Returns a line of at most `width` cells; `…` marks the cut."""
    if cells(line) <= width:
        return line
    pieces: list[Piece] = []
    room = width - len(CUT)
    for text, style in line:
        end = 0
        while end < len(text) and (taken := _cells_of(text[end])) <= room:
            room -= taken
            end += 1
        if end < len(text):
            return [*pieces, (text[:end] + CUT, style)]
        pieces.append((text, style))
    return pieces
