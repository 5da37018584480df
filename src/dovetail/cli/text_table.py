"""Tables of text for commands that must answer at once: one line a row, as wide as the terminal.

NOTE: the library that draws the reports of simulations takes 45 ms to be imported and to draw 50
rows; a user would wait for it at every `ls`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import combining, east_asian_width

GAP = "   "
RULE, CUT = "─", "…"
Piece = tuple[str, str]
"""A text, and the name of its style."""
Line = Sequence[Piece]


@dataclass(frozen=True, slots=True)
class Column:
    """A column and how it gives way where there is no room.

    One with a `least` width is cut down to it. Then columns leave: the lowest `stays` first, 0
    never.
    """

    name: str
    right: bool = False
    least: int = 0
    stays: int = 0


def table_lines(
    columns: Sequence[Column], rows: Sequence[Sequence[Line]], width: int
) -> list[Line]:
    """Returns a table of rows of cells under the names of its columns, up to `width` wide."""
    widths = [
        max([len(column.name), *(cells(row[at]) for row in rows)])
        for at, column in enumerate(columns)
    ]
    kept = _fitted(columns, widths, width)
    rule = RULE * (sum(widths[at] + len(GAP) for at in kept) - len(GAP))
    names: list[Line] = [((column.name, "bold"),) for column in columns]
    lines = [_line(columns, row, widths, kept) for row in (names, *rows)]
    return [lines[0], ((rule, ""),), *lines[1:]]


def _line(
    columns: Sequence[Column], row: Sequence[Line], widths: Sequence[int], kept: Sequence[int]
) -> Line:
    line: list[Piece] = []
    for at in kept:
        cell = cut(row[at], widths[at])
        room = (" " * (widths[at] - cells(cell)), "")
        line += [room, *cell] if columns[at].right else [*cell, room]
        line.append((GAP, ""))
    while line and not line[-1][0].strip(" "):
        line.pop()
    return line


def _fitted(columns: Sequence[Column], widths: list[int], width: int) -> list[int]:
    """Returns the columns that there is room for, the widest of them cut as far as it takes."""
    kept = list(range(len(columns)))
    yields = [max(0, w - c.least) if c.least else 0 for w, c in zip(widths, columns, strict=True)]
    while True:
        over = sum(widths[at] + len(GAP) for at in kept) - len(GAP) - width
        leaving = [(columns[at].stays, at) for at in kept if columns[at].stays]
        if over <= sum(yields[at] for at in kept) or not leaving:
            break
        kept.remove(min(leaving)[1])
    while over > 0 and (wide := [(widths[at], -at) for at in kept if yields[at]]):
        at = -max(wide)[1]
        widths[at], yields[at], over = widths[at] - 1, yields[at] - 1, over - 1
    return kept


def cells(line: Line) -> int:
    """Returns how many places pieces of text take on a terminal."""
    return sum(len(text) if text.isascii() else sum(map(_cells_of, text)) for text, _ in line)


def _cells_of(character: str) -> int:
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def cut(line: Line, width: int) -> Line:
    """Returns what has room; what is left out is said by one character."""
    if cells(line) <= width:
        return line
    kept: list[Piece] = []
    room = width - len(CUT)
    for text, style in line:
        end = 0
        while end < len(text) and (taken := _cells_of(text[end])) <= room:
            room -= taken
            end += 1
        if end < len(text):
            return [*kept, (text[:end] + CUT, style)]
        kept.append((text, style))
    return kept
