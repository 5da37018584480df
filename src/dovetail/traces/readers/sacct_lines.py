"""Finds header, separator and whole rows in what `sacct` printed, as people save it.

Before the header may be a warning or the command itself; the header may be missing (`sacct -n`);
bars, tabs, semicolons or commas separate the values; each line may end with a separator
(`sacct -p`). Files that were put together repeat the header.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from dovetail.core.errors import InputError
from dovetail.traces.readers.format import refuse
from dovetail.traces.rows import Refusals
from dovetail.traces.source import LINE_LIMIT_BYTES, read_text_bytes

FIELDS = (
    *("JobID", "User", "Account", "Partition", "QOS", "JobName", "State", "Submit", "Eligible"),
    *("Start", "End", "Elapsed", "Suspended", "Timelimit", "NNodes", "NodeList"),
    *("Reservation", "AllocTRES", "ReqTRES"),
)
"""The columns to request of sacct, in this order; every Slurm since 20.11 has them."""

COMMAND = f"sacct -a -D -X -P -S 2024-03-01 -E 2024-04-01 -o {','.join(FIELDS)}"
"""The command that prints the log: of all users, requeued rows too, steps not."""

SEPARATORS = ("|", "\t", ";", ",")
DAMAGED = "wrong number of values in the line"
DAMAGED_AGAIN = "damaged line of a job that has another"
STATES = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "COMPLETING", "CONFIGURING", "DEADLINE", "FAILED"),
    *("NODE_FAIL", "OUT_OF_MEMORY", "PENDING", "PREEMPTED", "REQUEUED", "REQUEUE_FED", "REVOKED"),
    *("REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD", "RUNNING", "SIGNALING", "SPECIAL_EXIT"),
    *("STAGE_OUT", "STOPPED", "SUSPENDED", "TIMEOUT"),
)
"""The first words of sacct's State."""

_BEFORE_HEADER_MAX = 50
_KNOWN = frozenset(
    (*FIELDS, "Priority", "JobIDRaw", "ElapsedRaw", "TimelimitRaw", "AllocGRES", "ReqGRES")
)
_JOB = r"^\d+(?:_(?:\d+|\[[^\]|]*\]?)|\+\d+)?"
_LISTS = ("NodeList", "AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES")
"""Columns whose values contain commas."""


def is_sacct(lines: Sequence[str], path: Path) -> bool:
    """True if these first lines of a file are sacct's, with or without a header."""
    if _header(lines) is not None:
        return True
    return any(_is_row(_split(line, s)) for s in SEPARATORS for line in lines[:_BEFORE_HEADER_MAX])


def are_columns(names: Sequence[str]) -> bool:
    """True if these are names of columns of sacct, that of the job among them."""
    return bool({"JobID", "JobIDRaw"}.intersection(names)) and len(_KNOWN.intersection(names)) >= 2


def whole_rows(path: Path, columns: Sequence[str], refused: Refusals) -> tuple[pl.DataFrame, int]:
    """Returns the rows that have a value for each column and a `line`, and how many rows were read.

    `columns` names the values of a log without a header. Raises InputError.
    """
    data = read_text_bytes(path)
    texts = pl.Series("text", data.decode().split("\n"), dtype=pl.String).str.strip_chars_end("\r")
    lines = texts.to_frame().with_row_index("line", offset=1).cast({"line": pl.Int64})
    lines = lines.filter(pl.col("text").str.contains(r"\S"))
    if lines.is_empty():
        raise InputError(str(path), "is empty", f"expected what this prints: {COMMAND}")
    names, separator, above, header = _layout(path, lines, columns)
    body = lines.slice(above)
    if above > bool(header):
        refused.add("line above the header", lines.slice(0, above - bool(header)))
    read = body.height + max(0, above - bool(header))
    again = body["text"] == (header or separator.join(names))
    body = refuse(body, again, "repeated header", refused)
    table = _by_commas(body, names) if separator == "," else _by_bars(body, names, separator)
    whole = table.filter(pl.col(names[-1]).is_not_null())
    _refuse_damaged(table.filter(pl.col(names[-1]).is_null()), whole, names, separator, refused)
    return whole.drop("text"), read


def _layout(
    path: Path, lines: pl.DataFrame, columns: Sequence[str]
) -> tuple[list[str], str, int, str]:
    """Returns columns, separator, the lines above the first row, and the text of the header."""
    first = lines["text"].head(_BEFORE_HEADER_MAX).to_list()
    found = _header(first)
    if found is not None:
        position, separator = found
        if columns:
            where = f"{path}, line {lines['line'][position]}"
            raise InputError("--columns", f"{where} names the columns already", "leave it out")
        names = _split(first[position], separator)
        while names and not names[-1]:
            names.pop()
        check_columns(f"{path}, line {lines['line'][position]}", names)
        return names, separator, position + 1, first[position]
    counted = [(n, s, len(_values(t, s))) for n, t in enumerate(first) for s in SEPARATORS
               if _is_row(_split(t, s))]  # fmt: skip
    if not counted:
        mend = f"expected what this prints: {COMMAND}"
        raise InputError(f"{path}, line 1", "has no header of sacct", mend)
    above, separator, width = counted[0]
    names = list(columns) or (list(FIELDS) if width == len(FIELDS) else [])
    where = f"{path}, line {lines['line'][above]}"
    if not names:
        mend = "name them in order, as in --columns JobID,State,..., or omit -n (--noheader)"
        raise InputError(where, f"has no header, and {width} values are not sacct's list", mend)
    if separator != "," and width != len(names):
        raise InputError(where, f"has {width} values for the {len(names)} names in --columns")
    check_columns("--columns" if columns else where, names)
    return names, separator, above, ""


def _header(lines: Sequence[str]) -> tuple[int, str] | None:
    """Returns the position and the separator of the line that names columns, above any row."""
    for position, line in enumerate(lines[:_BEFORE_HEADER_MAX]):
        if "JobID" in line:
            for separator in SEPARATORS:
                if are_columns(_split(line, separator)):
                    return position, separator
        if any(_is_row(_split(line, separator)) for separator in SEPARATORS):
            return None
    return None


def _is_row(values: Sequence[str]) -> bool:
    """True if these values are a job or a step: its id comes first, a state and a time follow."""
    if len(values) < 4 or not re.match(_JOB + r"(?:\.\S+)?$", values[0]):
        return False
    states = any(v.partition(" ")[0].rstrip("+") in STATES for v in values[1:])
    return states and any(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d|\d{9,10}$", v) for v in values[1:])


def _split(line: str, separator: str) -> list[str]:
    return [v.strip().strip('"') for v in line.strip("\r\n \ufeff").split(separator)]


def _values(line: str, separator: str) -> list[str]:
    values = _split(line, separator)
    return values[:-1] if len(values) == len(FIELDS) + 1 and not values[-1] else values


def check_columns(where: str, names: list[str]) -> None:
    """Raises InputError with the one list of columns if a needed one is missing."""
    have = set(names)
    needed = {
        "JobID": {"JobID", "JobIDRaw"},
        "Submit": {"Submit"},
        "Elapsed": {"Elapsed", "ElapsedRaw", "End"},
        "AllocTRES": {"AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES", "AllocGres", "ReqGres"},
    }
    missing = [name for name, any_of in needed.items() if not any_of & have]
    if missing:
        what = "has no column " + " and no ".join(f"'{name}'" for name in missing)
        raise InputError(where, what, f"request -o {','.join(FIELDS)}")
    for name in names:
        if names.count(name) > 1:
            raise InputError(where, f"repeats the column '{name}'")


def _by_bars(body: pl.DataFrame, names: list[str], separator: str) -> pl.DataFrame:
    """Returns line, text and values; the values are null in a line that has too few or too many."""
    text = body["text"]
    counted = text.str.count_matches(separator, literal=True)
    right = counted == len(names) - 1
    # `sacct -p` ends each line with a separator, `sacct -P` does not.
    ended = (counted == len(names)) & text.str.ends_with(separator)
    if ended.any():
        text, right = text.str.strip_suffix(separator).zip_with(ended, text), right | ended
    if not right.all():
        text = text.set(~right, None)
    split = text.str.split_exact(separator, len(names) - 1).struct.unnest()
    split.columns = names
    return pl.concat([body.select("line", "text"), split], how="horizontal")


def _by_commas(body: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """Returns line, text and values of a log whose lists have the separator inside."""
    csv.field_size_limit(LINE_LIMIT_BYTES)
    rows = [_regrouped(text, names) for text in body["text"]]
    split = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    return pl.concat([body.select("line", "text"), split], how="horizontal")


def _regrouped(text: str, names: list[str]) -> list[str | None]:
    """Returns the values of a line of commas, all None if it does not fit the columns."""
    try:
        parts = next(csv.reader([text], strict=True), [])
    except csv.Error:
        return [None] * len(names)
    if len(parts) == len(names) + 1 and not parts[-1]:
        parts.pop()
    if len(parts) == len(names):
        return [*parts]
    values: list[str | None] = []
    at = 0
    for name in names:
        if at >= len(parts):
            return [None] * len(names)
        taken = 1 + (_continued(name, parts, at) if name in _LISTS else 0)
        values.append(",".join(parts[at : at + taken]))
        at += taken
    return values if at == len(parts) else [None] * len(names)


def _continued(name: str, parts: Sequence[str], at: int) -> int:
    """Returns how many parts after the one at `at` belong to its list."""
    if name == "NodeList":
        return len(list(_open_brackets(parts, at)))
    seen = {parts[at].partition("=")[0]}
    count = 0
    # Each resource is listed once: a second `cpu=` begins the next list.
    while at + count + 1 < len(parts) and parts[at]:
        key, equals, _ = parts[at + count + 1].partition("=")
        if not equals or key in seen:
            break
        seen.add(key)
        count += 1
    return count


def _open_brackets(parts: Sequence[str], at: int) -> Iterator[str]:
    """Yields the parts after the one at `at` until its brackets are closed."""
    depth = parts[at].count("[") - parts[at].count("]")
    for part in parts[at + 1 :]:
        if depth <= 0:
            return
        depth += part.count("[") - part.count("]")
        yield part


def _refuse_damaged(
    damaged: pl.DataFrame,
    whole: pl.DataFrame,
    names: list[str],
    separator: str,
    refused: Refusals,
) -> None:
    """Notes the lines that do not split, apart by whether a job is lost with them."""
    if damaged.is_empty():
        return
    position = names.index("JobID" if "JobID" in names else "JobIDRaw")
    parts = damaged["text"].str.split(separator).list
    # The last value of a line that was cut may be cut itself.
    key = parts.get(position, null_on_oob=True).set(parts.len() <= position + 1, None)
    job = key.fill_null("").str.strip_chars()
    known = pl.Series(job.str.contains(_JOB + r"(?:\.\S+)?$"))
    step = known & job.str.contains(".", literal=True)
    elsewhere = known & ~step & job.is_in(whole[names[position]].implode())
    digits = damaged["text"].str.contains(r"^\s*\d")
    frame = damaged.select("line")
    refused.add("not a line of sacct", frame.filter(~known & ~digits))
    refused.add("damaged line of a job step", frame.filter(step))
    refused.add(DAMAGED_AGAIN, frame.filter(elsewhere))
    refused.add(DAMAGED, frame.filter((known & ~step & ~elsewhere) | (~known & digits)))
