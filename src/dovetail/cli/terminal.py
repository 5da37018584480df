"""Prints styled lines on a terminal, or redraws them in place; plain text elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from dovetail.cli.text_table import CUT, RULE, Line, cut

if TYPE_CHECKING:
    from rich.console import RenderableType

CODES = {
    "bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35,
    "cyan": 36, "bright_red": 91, "bright_blue": 94, "bright_cyan": 96,
}  # fmt: skip
"""The code of each style (ECMA-48)."""
POORER = {ord(RULE): "-", ord(CUT): "~"}
UNBOUNDED = 1 << 20
"""The width of output to a file or a pipe, which is never truncated."""
ALTERNATE, ORDINARY = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""Switch to the alternate screen without a cursor, and back."""


def is_watched() -> bool:
    """True if standard output is a terminal."""
    return sys.stdout.isatty()


def width() -> int:
    """Returns the columns of the terminal; `UNBOUNDED` for a file or a pipe."""
    if not is_watched() and not os.environ.get("COLUMNS", "").isdecimal():
        return UNBOUNDED
    return size()[0]


def size() -> tuple[int, int]:
    """Returns columns and lines of the terminal; COLUMNS and LINES take precedence.

    NOTE: `shutil.get_terminal_size` is equivalent, but its import costs 3 ms.
    """
    try:
        reported = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        reported = os.terminal_size((80, 24))
    variables = [os.environ.get(name, "") for name in ("COLUMNS", "LINES")]
    columns, lines = (
        int(text) if text.isdecimal() and int(text) else size or default
        for text, size, default in zip(variables, reported, (80, 24), strict=True)
    )
    return columns, lines


def say(lines: Sequence[Line]) -> None:
    """Prints lines on standard output, with colours on a terminal."""
    click.echo(_text(lines, coloured=is_watched()))


def show(view: RenderableType) -> None:
    """Prints a view of `report.tables`: in colour on a terminal, 80 columns wide elsewhere."""
    from rich.console import Console

    Console(highlight=False).print(view)


@contextmanager
def in_place() -> Iterator[Callable[[Sequence[Line]], None]]:
    """Yields a function that replaces the lines on the alternate screen."""
    sys.stdout.write(ALTERNATE)
    try:
        yield _draw
    finally:
        sys.stdout.write(ORDINARY)
        sys.stdout.flush()


def _draw(lines: Sequence[Line]) -> None:
    columns, rows = size()
    # NOTE: a line as wide as the terminal would wrap.
    shown = [cut(line, columns - 1) for line in lines[:rows]]
    text = _text(shown, coloured=True)
    sys.stdout.write("\x1b[H" + text.replace("\n", "\x1b[K\n") + "\x1b[K\x1b[J")
    sys.stdout.flush()


def _text(lines: Sequence[Line], *, coloured: bool) -> str:
    coloured = coloured and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    if coloured:
        lines = [
            [(f"\x1b[{CODES[style]}m{text}\x1b[0m" if style else text, "") for text, style in line]
            for line in lines
        ]
    text = "\n".join("".join(text for text, _ in line) for line in lines)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(POORER).encode(encoding, "replace").decode(encoding)
    return text
