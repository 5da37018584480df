"""Tables of text for commands that must answer at once: columns as wide as their words and the
terminal allow.

NOTE: the library that draws the reports of simulations takes 50 ms to import and draw 50 rows;
a user who types `ls` would wait for it every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GAP = "  "
RULE, CUT = "─", "…"
LEAST = 3
"""Columns that are cut keep so many characters."""

Piece = tuple[str, str]
"""A text, and the name of its style."""
Line = Sequence[Piece]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, where its text stands, and what becomes of text that has no room.

    One that `wraps` goes on in the next line, and is never narrower than `least`; others are cut.
    """

    name: str
    right: bool = False
    wraps: bool = False
    least: int = LEAST


class Table:
    """Rows of cells under names; a cell is a text, or pieces of text each in a style."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = tuple(columns)
        self._rows: list[list[Line]] = []

    def add(self, *row: str | Line) -> None:
        """Adds a row."""
        self._rows.append([((cell, ""),) if isinstance(cell, str) else cell for cell in row])

    def lines(self, width: int) -> list[Line]:
        """Returns the lines of the table, none of them wider than `width` if that can be."""
        widths = self._widths(width)
        names = [((c.name, "bold"),) for c in self._columns]
        rule = RULE * (sum(widths) + len(GAP) * (len(widths) - 1))
        found = [self._line(names, widths), ((rule, ""),)]
        for row in self._rows:
            found += self._row(row, widths)
        return found

    def _widths(self, width: int) -> list[int]:
        widths = [
            max([len(column.name), *(cells(row[at]) for row in self._rows)])
            for at, column in enumerate(self._columns)
        ]
        over = sum(widths) + len(GAP) * (len(widths) - 1) - width
        if over <= 0:
            return widths
        # What can go on in the next line gives way first, as far as its words stay whole.
        words = [
            max([c.least, *(len(w) for row in self._rows for t, _ in row[at] for w in t.split())])
            if c.wraps
            else widths[at]
            for at, c in enumerate(self._columns)
        ]
        for floors in (words, [column.least for column in self._columns]):
            over = _narrow(widths, floors, over)
        return widths

    def _row(self, row: Sequence[Line], widths: Sequence[int]) -> list[Line]:
        parts = [
            wrapped(cell, width) if column.wraps else [cell]
            for cell, width, column in zip(row, widths, self._columns, strict=True)
        ]
        height = max(map(len, parts))
        return [
            self._line([p[at] if at < len(p) else () for p in parts], widths)
            for at in range(height)
        ]

    def _line(self, row: Sequence[Line], widths: Sequence[int]) -> Line:
        line: list[Piece] = []
        for column, cell, width in zip(self._columns, row, widths, strict=True):
            kept = cut(cell, width)
            room = (" " * (width - cells(kept)), "")
            line += [room, *kept] if column.right else [*kept, room]
            line.append((GAP, ""))
        while line and not line[-1][0].strip(" "):
            line.pop()
        return line


def _narrow(widths: list[int], floors: Sequence[int], over: int) -> int:
    """Takes from the widest columns until nothing is over, or no room left; returns what is."""
    while over > 0:
        wide = [(w, at) for at, (w, f) in enumerate(zip(widths, floors, strict=True)) if w > f]
        if not wide:
            break
        widths[max(wide)[1]] -= 1
        over -= 1
    return over


def cells(line: Line) -> int:
    """Returns how many places pieces of text take on a terminal."""
    return sum(len(text) if text.isascii() else sum(map(_cells_of, text)) for text, _ in line)


def _cells_of(character: str) -> int:
    from unicodedata import combining, east_asian_width

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


def wrapped(cell: Line, width: int) -> list[Line]:
    """Returns the lines of a cell of one style, broken between words where that can be."""
    text = "".join(said for said, _ in cell)
    if len(text) <= width:
        return [cell]
    from textwrap import wrap

    style = cell[0][1]
    return [((part, style),) for part in wrap(text, width, break_on_hyphens=False)]
