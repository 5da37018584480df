"""Reads delimited text files as columns of text or numbers. Errors name the line and the column."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import polars as pl

from dovetail.core.errors import InputError, nearest
from dovetail.traces.import_record import COMMENT
from dovetail.traces.rows import TEXTS
from dovetail.traces.source import LINE_LIMIT_BYTES, read_text_bytes

MISSING = ("", "None", "none", "NULL", "null", "NaN", "nan", "NA", "N/A", "n/a", "\\N", "-")
"""Texts for a missing number or time."""

NOTHING_MORE: Mapping[str, str] = MappingProxyType({})

_LINE = "\0line"
_SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars", " ": "spaces"}


@dataclass(frozen=True, slots=True)
class Delimited:
    """The rows of one file as text, without blank lines."""

    path: Path
    frame: pl.DataFrame
    separator: str
    header_lines: int
    quoted: bool

    def __len__(self) -> int:
        return self.frame.height

    def has(self, column: str) -> bool:
        """True if the header has this column."""
        return column in self.frame.columns

    @property
    def columns(self) -> list[str]:
        """Returns the column names in the order of the header."""
        return [c for c in self.frame.columns if c != _LINE]

    def need(self, *columns: str) -> None:
        """Raises InputError if one of these columns is missing, with the most similar name."""
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

    def canonical(
        self, needed: Mapping[str, str], also: Mapping[str, str] = NOTHING_MORE
    ) -> list[pl.Series]:
        """Returns `lines()` and canonical columns: all `needed`, and those of `also` that exist.

        Both map canonical names to the names of the file. The canonical name decides whether a
        column has texts or numbers. Raises InputError for a missing column or an invalid number.
        """
        self.need(*needed.values())
        present = {ours: theirs for ours, theirs in also.items() if self.has(theirs)}
        values = [
            (self.text(theirs) if ours in ("job_id", *TEXTS) else self.number(theirs)).alias(ours)
            for ours, theirs in {**needed, **present}.items()
        ]
        return [self.lines(), *values]

    def lines(self) -> pl.Series:
        """Returns the first line of each row, from 1."""
        return self.frame[_LINE].cast(pl.Int64).alias("line")

    def row_ids(self) -> pl.Series:
        """Returns the row numbers from 0 as job ids, for a file without ids."""
        return pl.int_range(len(self), eager=True).cast(pl.String).alias("job_id")

    def error(self, column: str, bad: pl.Series, what: str) -> InputError:
        """Returns an error with the line and the value of the first bad row of a column."""
        first = int(bad.arg_max() or 0)
        value = str(self.frame[column][first])
        shown = value if len(value) <= 40 else value[:37] + "..."
        return InputError(
            f"{self.path}, line {self.line_of(first)}, column {column}", f"{shown!r} {what}"
        )

    def line_of(self, position: int) -> int:
        """Returns the first line, from 1, of the row at a position."""
        return int(self.frame[_LINE][position])


def read_delimited(
    path: Path, separator: str = ",", *, header: Sequence[str] = (), quoted: bool = True
) -> Delimited:
    """Returns the rows of a file; `header` has the column names of a file without a header.

    Raises InputError for an empty file, an unmatched quote or a line with too many values.
    """
    data = read_text_bytes(path)
    names, header_lines = (list(header), 0) if header else _header(path, data, separator)
    # The parser takes the number of columns from the first line, so that must be a header, not a
    # row that may be short or blank.
    first = separator.join(f"c{i}" for i in range(len(names))).encode() + b"\n"
    body = first + data if header else first + _after_lines(data, header_lines)
    try:
        frame = pl.read_csv(
            body, separator=separator, quote_char='"' if quoted else None, infer_schema=False
        )
    except pl.exceptions.PolarsError:
        raise _first_fault(path, data, separator, header_lines, len(names), quoted) from None
    frame.columns = names
    frame = frame.with_columns(_first_lines(data, header_lines, frame.height, quoted))
    blank = pl.all_horizontal(pl.col(names).is_null())
    return Delimited(path, frame.filter(~blank), separator, header_lines, quoted)


def _first_lines(data: bytes, header_lines: int, rows: int, quoted: bool) -> pl.Series:
    """Returns the first line of each row; a quoted value may contain line ends."""
    if quoted and b'"' in data:
        text = np.frombuffer(_after_lines(data, header_lines), np.uint8)
        ends = np.flatnonzero(text == ord("\n"))
        quotes = np.cumsum(text == ord('"'), dtype=np.int64)[ends]
        outside = np.flatnonzero(quotes % 2 == 0)
        begins = np.concatenate(([0], outside + 1))[:rows] + header_lines + 1
        if len(begins) == rows:
            return pl.Series(_LINE, begins)
    return pl.int_range(header_lines + 1, header_lines + 1 + rows, eager=True).alias(_LINE)


def header_of(first: bytes, separator: str = ",") -> list[str]:
    """Returns the column names on the first line that is not blank, empty without one."""
    for line in first.decode("utf-8-sig", "replace").splitlines():
        if line.strip() and not line.startswith(COMMENT):
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
            mend = "save the file with line feeds as line ends"
            raise InputError(f"{path}, line {lines}", "contains a carriage return", mend)
        if line.strip() and not line.startswith(COMMENT):
            names = _split(line, separator)
            _check_unique(path, names, lines)
            return names, lines
        begin = end + 1
    raise InputError(str(path), "is empty", "expected a header line and one line per job")


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


def _check_unique(path: Path, names: list[str], line: int) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}, line {line}", f"repeats the column '{name}'")


def _records(data: bytes, separator: str, skip: int) -> Iterator[tuple[int, list[str]]]:
    """Yields the first line and the values of each record after `skip` lines."""
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
    """Returns the error of the first invalid record."""
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
    return InputError(f"{path}, line {skip + 1}", "cannot be split into values", "check the quotes")


def _too_wide(path: Path, line: int, values: int, columns: int) -> InputError:
    return InputError(f"{path}, line {line}", f"has {values} values for {columns} columns")


def _separator_hint(columns: list[str], separator: str) -> str:
    """Returns a hint if the header seems to use another separator, empty otherwise."""
    if len(columns) > 2:
        return ""
    for other, word in _SEPARATORS.items():
        if other != separator and any(c.count(other) >= 2 for c in columns):
            return f"the separators seem to be {word}; expected {_SEPARATORS[separator]}"
    return ""
