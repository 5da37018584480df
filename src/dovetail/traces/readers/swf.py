"""The Standard Workload Format of the Parallel Workloads Archive; processors are read as GPUs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import polars as pl

from dovetail.core.errors import InputError
from dovetail.traces.readers.format import Format, Head, ReadOptions, refuse
from dovetail.traces.rows import Refusals, Rows, adjusted
from dovetail.traces.source import read_text_bytes

FIELDS = 18
_ENDS = {0.0: "failed", 1.0: "completed", 5.0: "cancelled"}
_PARTIAL = (2.0, 3.0, 4.0)
"""Statuses of the parts of a job that was checkpointed: the whole job has a line of its own."""


def _matches(head: Head) -> bool:
    text = head.text.decode("utf-8", "replace")
    if head.path.name.removesuffix(".gz").endswith(".swf"):
        return True
    lines = [x for x in text.splitlines() if x.strip()]
    data = [x for x in lines if not x.lstrip().startswith(";")]
    return (
        bool(lines)
        and lines[0].lstrip().startswith(";")
        and (not data or len(data[0].split()) == FIELDS)
    )


def _read(path: Path, options: ReadOptions) -> Rows:
    """Reads allocated processors (else requested ones) as GPUs, and counts the rows so read.

    With `gpus_per_node` processors are counted by whole nodes, of MaxProcs / MaxNodes each.
    """
    text = read_text_bytes(path).decode()
    values = _numbers(path, text)
    col = {i + 1: values[f"f{i}"].set(values[f"f{i}"] == -1, None) for i in range(FIELDS)}
    user = _named("u", col[12])
    processors = col[5].zip_with((col[5] > 0).fill_null(False), col[8])
    gpus, unit = processors, "processors read as GPUs"
    if options.gpus_per_node:
        per_node = _processors_per_node(path, text)
        gpus = (processors / per_node).ceil() * options.gpus_per_node
        unit = "GPUs from nodes, at --gpus-per-node each"
    frame = pl.DataFrame(
        {
            "job_id": col[1].cast(pl.Int64, strict=False).cast(pl.String),
            "submit_s": col[2],
            "gpus": gpus,
            "line": values["line"],
            "duration_s": col[4],
            "start_s": col[2] + col[3],
            "end_s": col[2] + col[3] + col[4],
            "wait_s": col[3],
            "time_limit_s": col[9].set((col[9] <= 0).fill_null(False), None),
            "user": user,
            "recurrence": (user + _named("/app", col[14])).set(col[14].is_null(), ""),
            "queue": _named("q", col[15]),
            "status": col[11].replace_strict(_ENDS, default="", return_dtype=pl.String),
        }
    )
    partial = col[11].is_in(list(_PARTIAL)).fill_null(False)
    refused = Refusals(Counter({adjusted(unit): int((~partial).sum())}))
    frame = refuse(frame, partial, "part of a checkpointed job", refused)
    match = re.search(r"^\s*;\s*UnixStartTime:\s*(\d{1,12})", text, re.MULTILINE)
    epoch = float(match.group(1)) if match else 0.0
    return Rows(frame, values.height, refused.counts, epoch or None, refused=refused.rows)


def _processors_per_node(path: Path, text: str) -> float:
    """Returns the processors of a node, from the header comments. Raises InputError."""
    given = {
        name: re.search(rf"^\s*;\s*{name}:\s*(\d{{1,9}})", text, re.MULTILINE)
        for name in ("MaxNodes", "MaxProcs")
    }
    counts = {name: float(match.group(1)) for name, match in given.items() if match}
    if len(counts) < len(given) or not 1 <= counts["MaxNodes"] <= counts["MaxProcs"]:
        raise InputError(
            str(path),
            "does not give MaxNodes and MaxProcs in its header comments",
            "add the lines '; MaxNodes: N' and '; MaxProcs: N', or omit --gpus-per-node",
        )
    return counts["MaxProcs"] / counts["MaxNodes"]


def _numbers(path: Path, text: str) -> pl.DataFrame:
    """Returns the values of every line that is not blank and no comment. Raises InputError."""
    lines = pl.DataFrame({"text": text.split("\n")}).with_row_index("line", offset=1)
    bare = pl.col("text").str.replace(r";.*$", "").str.replace_all(r"\s+", " ").str.strip_chars(" ")
    lines = lines.with_columns(bare.alias("text")).filter(pl.col("text") != "")
    if lines.is_empty():
        names = [f"f{i}" for i in range(FIELDS)]
        return pl.DataFrame(schema={"line": pl.Int64} | dict.fromkeys(names, pl.Float64))
    counts = lines["text"].str.count_matches(" ", literal=True) + 1
    wrong = counts != FIELDS
    if wrong.any():
        first = int(wrong.arg_max() or 0)
        where = f"{path}, line {lines['line'][first]}"
        raise InputError(where, f"has {counts[first]} values, {FIELDS} expected")
    words = lines["text"].str.split_exact(" ", FIELDS - 1).struct.unnest()
    values = words.select(pl.all().cast(pl.Float64, strict=False))
    for field, column in enumerate(values.columns):
        if values[column].null_count():
            first = int(values[column].is_null().arg_max() or 0)
            where = f"{path}, line {lines['line'][first]}, field {field + 1}"
            raise InputError(where, f"'{words[column][first][:40]}' is not a number")
    values.columns = [f"f{i}" for i in range(FIELDS)]
    return values.fill_nan(None).with_columns(lines["line"].cast(pl.Int64))


def _named(prefix: str, numbers: pl.Series) -> pl.Series:
    text = prefix + numbers.cast(pl.Int64, strict=False).cast(pl.String)
    return text.fill_null("")


SWF = Format("swf", "Standard Workload Format (processors read as GPUs)", _matches, _read)
