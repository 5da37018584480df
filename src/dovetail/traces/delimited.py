"""A delimited text file as columns of text, and the columns as numbers, naming line and column."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from dovetail.core.errors import InputError, nearest
from dovetail.traces.source import LINE_LIMIT_BYTES, read_text_bytes

MISSING = ("", "None", "none", "NULL", "null", "NaN", "nan", "NA", "N/A", "n/a", "\\N", "-")
"""Texts that mean that a number or a time is not there."""

_ROW = "\0row"
_SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars", " ": "spaces"}


@dataclass(frozen=True, slots=True)
class Delimited:
    """The rows of one file, blank lines left out, every value still text."""

    path: Path
    frame: pl.DataFrame
    separator: str
    header_lines: int
    quoted: bool

    def __len__(self) -> int:
        return self.frame.height

    def has(self, column: str) -> bool:
        """Tells whether the header names this column."""
        return column in self.frame.columns

    @property
    def columns(self) -> list[str]:
        """Returns the names in the header, in its order."""
        return [c for c in self.frame.columns if c != _ROW]

    def need(self, *columns: str) -> None:
        """Raises InputError when one of these columns is missing, with the nearest one we have."""
        for column in columns:
            if not self.has(column):
                raise InputError(
                    f"{self.path}, line {max(self.header_lines, 1)}",
                    f"has no column '{column}'",
                    _separator_hint(self.columns, self.separator)
                    or nearest(column, [c[:40] for c in self.columns[:40]] or ["(none)"]),
                )

    def text(self, column: str) -> pl.Series:
        """Returns a column as text, missing values as empty text."""
        self.need(column)
        return self.frame[column].fill_null("").rename(column)

    def number(self, column: str) -> pl.Series:
        """Returns a column as numbers, null where missing. Raises InputError on other text."""
        self.need(column)
        raw = self.frame[column]
        values = raw.cast(pl.Float64, strict=False)
        if values.null_count() != raw.null_count():
            stripped = raw.str.strip_chars()
            values = stripped.cast(pl.Float64, strict=False)
            bad = values.is_null() & stripped.is_not_null() & ~stripped.is_in(MISSING)
            if bad.any():
                raise self.error(column, bad, "is not a number")
        return values.fill_nan(None)

    def error(self, column: str, bad: pl.Series, trouble: str) -> InputError:
        """Returns the error that names the first bad row of a column and its value."""
        first = int(bad.arg_max() or 0)
        value = str(self.frame[column][first])
        shown = value if len(value) <= 40 else value[:37] + "..."
        return InputError(
            f"{self.path}, line {self.line_of(first)}, column {column}", f"{shown!r} {trouble}"
        )

    def line_of(self, position: int) -> int:
        """Returns the line in the file (from 1) on which the row at a position begins."""
        row = int(self.frame[_ROW][position])
        data = read_text_bytes(self.path)
        begins = self.header_lines + row + 1
        if not self.quoted or b'"' not in data:
            return begins
        # Quoted values may hold line ends, so records have to be counted.
        with contextlib.suppress(csv.Error):
            for i, (line, _) in enumerate(_records(data, self.separator, self.header_lines)):
                begins = line
                if i == row:
                    break
        return begins


def read_delimited(
    path: Path, separator: str = ",", *, header: Sequence[str] = (), quoted: bool = True
) -> Delimited:
    """Returns the file's rows; `header` gives the column names of a file that has none.

    Raises InputError for an empty file, a broken quote or a line with too many values.
    """
    data = read_text_bytes(path)
    names, header_lines = (list(header), 0) if header else _header(path, data, separator)
    # The parser takes the number of columns from the first line it sees, so that has to be a
    # header, not a row that may be short or blank.
    first = separator.join(f"c{i}" for i in range(len(names))).encode() + b"\n"
    body = first + data if header else first + _after_lines(data, header_lines)
    try:
        frame = pl.read_csv(
            body, separator=separator, quote_char='"' if quoted else None, infer_schema=False
        )
    except pl.exceptions.PolarsError:
        raise _first_fault(path, data, separator, header_lines, len(names), quoted) from None
    frame.columns = names
    frame = frame.with_row_index(_ROW)
    blank = pl.all_horizontal(pl.col(names).is_null())
    return Delimited(path, frame.filter(~blank), separator, header_lines, quoted)


def header_of(first: bytes, separator: str = ",") -> list[str]:
    """Returns the column names on the first line that is not blank; empty if there is none."""
    for line in first.decode("utf-8-sig", "replace").splitlines():
        if line.strip():
            return _split(line, separator)
    return []


def _header(path: Path, data: bytes, separator: str) -> tuple[list[str], int]:
    begin = lines = 0
    while begin < len(data):
        end = data.find(b"\n", begin)
        end = len(data) if end < 0 else end
        lines += 1
        line = data[begin:end].decode().strip("\r")
        if "\r" in line:
            mend = "lines should end with a line feed; save the file anew"
            raise InputError(f"{path}, line {lines}", "holds a carriage return", mend)
        if line.strip():
            names = _split(line, separator)
            _refuse_twins(path, names, lines)
            return names, lines
        begin = end + 1
    raise InputError(str(path), "is empty", "a header line and one line a job are expected")


def _after_lines(data: bytes, lines: int) -> bytes:
    begin = 0
    for _ in range(lines):
        end = data.find(b"\n", begin)
        begin = len(data) if end < 0 else end + 1
    return data[begin:]


def _split(line: str, separator: str) -> list[str]:
    try:
        fields = next(csv.reader([line], delimiter=separator), [])
    except csv.Error:  # a value longer than the parser takes
        fields = line.split(separator)
    return [f.strip().lstrip("#").strip() for f in fields]


def _refuse_twins(path: Path, names: list[str], line: int) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}, line {line}", f"names the column '{name}' twice")


def _records(data: bytes, separator: str, skip: int) -> Iterator[tuple[int, list[str]]]:
    """Yields each record after `skip` lines with the line on which it begins."""
    csv.field_size_limit(LINE_LIMIT_BYTES)
    stream = io.StringIO(data.decode(), newline="")
    for _ in range(skip):
        stream.readline()
    rows = csv.reader(stream, delimiter=separator, strict=True)
    begins = skip + 1
    for row in rows:
        yield begins, row
        begins = skip + rows.line_num + 1


def _first_fault(
    path: Path, data: bytes, separator: str, skip: int, width: int, quoted: bool
) -> InputError:
    """Returns the error for the first record that cannot be one."""
    begins = skip + 1
    if not quoted:
        for i, line in enumerate(data.decode().split("\n")[skip:]):
            if line.count(separator) >= width:
                return _too_wide(path, skip + i + 1, line.count(separator) + 1, width)
    try:
        for line_number, row in _records(data, separator, skip):
            begins = line_number
            if len(row) > width:
                return _too_wide(path, line_number, len(row), width)
            begins += 1
    except csv.Error as error:
        return InputError(f"{path}, line {begins}", f"cannot be split into values: {error}")
    return InputError(f"{path}, line {skip + 1}", "cannot be split into values", "broken quotes?")


def _too_wide(path: Path, line: int, found: int, expected: int) -> InputError:
    return InputError(f"{path}, line {line}", f"has {found} values for {expected} columns")


def _separator_hint(columns: list[str], separator: str) -> str:
    """Returns a hint when the header looks as if another character separated it."""
    if len(columns) > 2:
        return ""
    for other, word in _SEPARATORS.items():
        if other != separator and any(c.count(other) >= 2 for c in columns):
            return f"the values seem to be separated by {word}; {_SEPARATORS[separator]} expected"
    return ""
