"""A table of a study on a screen: too wide for it, it is shown in parts, one below the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from papers.finding import Sheet

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class Grid:
    """All columns beside each other if they fit; else each part begins with the first column."""

    sheet: Sheet

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        title = self.sheet.title
        for columns in self._parts(console, options):
            yield self._table(columns, title)
            title = ""

    def _parts(self, console: Console, options: ConsoleOptions) -> Iterator[list[int]]:
        """Yields columns that fit beside each other; one too wide by itself is folded later."""
        from rich.measure import Measurement

        part = [0]
        for column in range(1, len(self.sheet.heads)):
            wider = self._table([*part, column], "")
            needs = Measurement.get(console, options.update(max_width=10_000), wider).maximum
            if len(part) > 1 and needs > options.max_width:
                yield part
                part = [0]
            part.append(column)
        yield part

    def _table(self, columns: Sequence[int], title: str) -> Table:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        table = Table(
            box=SIMPLE_HEAD,
            title=title or None,
            title_justify="left",
            title_style="bold",
            pad_edge=False,
        )
        for i in columns:
            words = i < self.sheet.words
            table.add_column(self.sheet.heads[i], justify="left" if words else "right")
        for row in self.sheet.rows:
            table.add_row(*(Text(row[i]) for i in columns))
        return table
