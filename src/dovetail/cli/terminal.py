"""Lines in styles on a terminal, one after the other or drawn anew in place; plain elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click

from dovetail.cli.text_table import CUT, RULE, Line, cut

CODES = {
    "bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35,
    "cyan": 36, "bright_red": 91, "bright_blue": 94, "bright_cyan": 96,
}  # fmt: skip
"""The styles that are used, as terminals know them (ECMA-48)."""
POORER = {ord(RULE): "-", ord(CUT): "~"}
UNBOUNDED = 1 << 20
"""The width of output to a file or a pipe: nothing is cut there."""
ALTERNATE, ORDINARY = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""Another screen without a cursor, and back."""


def is_watched() -> bool:
    """Tells whether standard output is a terminal."""
    return sys.stdout.isatty()


def width() -> int:
    """Returns the columns of the terminal; `UNBOUNDED` for output that a program reads."""
    if not is_watched() and not os.environ.get("COLUMNS", "").isdecimal():
        return UNBOUNDED
    return size()[0]


def size() -> tuple[int, int]:
    """Returns columns and lines of the terminal; what COLUMNS and LINES say goes before.

    NOTE: `shutil` says it too, and takes 3 ms to import compressors for it.
    """
    try:
        seen = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        seen = os.terminal_size((80, 24))
    said = [os.environ.get(name, "") for name in ("COLUMNS", "LINES")]
    columns, lines = (
        int(word) if word.isdecimal() and int(word) else has or usual
        for word, has, usual in zip(said, seen, (80, 24), strict=True)
    )
    return columns, lines


def say(lines: Sequence[Line]) -> None:
    """Prints lines on standard output, in colour if it is a terminal."""
    click.echo(_text(lines, coloured=is_watched()))


@contextmanager
def in_place() -> Iterator[Callable[[Sequence[Line]], None]]:
    """Gives what draws a picture of lines over the one before, on a screen of its own."""
    sys.stdout.write(ALTERNATE)
    try:
        yield _draw
    finally:
        sys.stdout.write(ORDINARY)
        sys.stdout.flush()


def _draw(lines: Sequence[Line]) -> None:
    columns, rows = size()
    # NOTE: a line as wide as the terminal would go on in the next one.
    shown = [cut(line, columns - 1) for line in lines[:rows]]
    text = _text(shown, coloured=True)
    sys.stdout.write("\x1b[H" + text.replace("\n", "\x1b[K\n") + "\x1b[K\x1b[J")
    sys.stdout.flush()


def _text(lines: Sequence[Line], *, coloured: bool) -> str:
    coloured = coloured and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    text = "\n".join(
        "".join(_styled(*piece) if coloured and piece[1] else piece[0] for piece in line)
        for line in lines
    )
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(POORER).encode(encoding, "replace").decode(encoding)
    return text


def _styled(text: str, style: str) -> str:
    return f"\x1b[{CODES[style]}m{text}\x1b[0m"
