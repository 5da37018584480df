"""Slurm's accounting, as `sacct -P` prints it: bars between values, steps under their jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import polars as pl

from dovetail.core.errors import InputError
from dovetail.traces.clock import Moments, moments
from dovetail.traces.readers.format import Format, Head, ReadOptions, refuse
from dovetail.traces.rows import Rows, rejected
from dovetail.traces.source import read_text_bytes

FIELDS = (
    "JobID,User,Account,Partition,JobName,State,Submit,Start,End,Elapsed,Timelimit,Priority,"
    "NNodes,AllocTRES,ReqTRES"
)
"""The fields to request: `sacct -P -a -S START -o FIELDS`."""

_GPU_ANY = r"gres/gpu=(\d+(?:\.\d+)?)"
_GPU_TYPED = r"gres/gpu:([^=,]+)=(\d+(?:\.\d+)?)"
_NOT_YET = ("RUNNING", "PENDING", "SUSPENDED", "REQUEUED", "RESIZING", "CONFIGURING", "COMPLETING")


def _matches(head: Head) -> bool:
    first = head.text.split(b"\n", 1)[0].decode("utf-8", "replace").lstrip("\ufeff")
    names = first.strip().split("|")
    return "JobID" in names and bool({"Submit", "State", "Elapsed"} & set(names))


def _read(path: Path, options: ReadOptions) -> Rows:
    """Reads one job a line: steps, arrays not started and jobs not ended are refused, counted.

    GPUs come from AllocTRES, else ReqTRES. Partition is the queue, user/JobName the recurrence.
    """
    zone = options.timezone or "UTC"
    counts: Counter[str] = Counter()
    table, read = _table(path, counts)
    table = refuse(table, table["JobID"].str.contains(".", literal=True), "job step", counts)
    waiting = table["JobID"].str.contains("[", literal=True)
    table = refuse(table, waiting, "array not started", counts)
    state = _column(table, "State").str.extract(r"^(\S*)", 1).fill_null("")
    table = refuse(table, state.is_in(list(_NOT_YET)), "not ended yet", counts)
    submitted, started = _times(table, "Submit", zone), _times(table, "Start", zone)
    elapsed = _elapsed(table, started, zone)
    frame = _canonical(table, submitted, elapsed)
    if "Start" in table.columns:
        frame = refuse(frame, started.first.is_null(), "never started", counts)
    return Rows(frame, read, counts, 0.0, submitted.offset_s(zone))


def _table(path: Path, counts: Counter[str]) -> tuple[pl.DataFrame, int]:
    """Returns the lines that split into as many values as the header; counts the others."""
    lines = pl.Series(read_text_bytes(path).decode().split("\n"), dtype=pl.String)
    lines = lines.str.strip_chars_end("\r")
    lines = lines.filter(lines.str.contains(r"\S"))
    if lines.is_empty():
        raise InputError(str(path), "is empty", "expected a header line from sacct -P")
    header = str(lines[0]).strip()
    names = header.rstrip("|").split("|")
    _check_header(path, names)
    body = lines.slice(1)
    if header.endswith("|"):
        # `sacct -p` ends each line with a bar, `sacct -P` does not.
        body = body.str.strip_suffix("|")
    whole = body.filter(body.str.count_matches("|", literal=True) == len(names) - 1)
    counts[rejected("wrong number of values in the line")] += len(body) - len(whole)
    table = whole.str.split_exact("|", len(names) - 1).struct.unnest()
    table.columns = names
    return table, len(body)


def _check_header(path: Path, names: list[str]) -> None:
    for column in ("JobID", "Submit"):
        if column not in names:
            raise InputError(f"{path}, line 1", f"has no column '{column}'", f"use -o {FIELDS}")
    if len(set(names)) < len(names):
        raise InputError(f"{path}, line 1", "repeats a column")
    if not {"Elapsed", "ElapsedRaw", "End"} & set(names):
        raise InputError(f"{path}, line 1", "has no run times", "use sacct -o with Elapsed")


def _column(table: pl.DataFrame, *names: str) -> pl.Series:
    """Returns the first of these columns that exists, else blank texts."""
    for name in names:
        if name in table.columns:
            return table[name].str.strip_chars()
    return pl.repeat("", table.height, eager=True, dtype=pl.String)


def _times(table: pl.DataFrame, column: str, zone: str) -> Moments:
    """Returns a time column; with SLURM_TIME_FORMAT=%s it holds Unix seconds already."""
    texts = _column(table, column)
    parsed = moments(texts, zone)
    seconds = texts.cast(pl.Float64, strict=False).fill_nan(None)
    known = seconds.is_null()
    return Moments(parsed.first.zip_with(known, seconds), parsed.later.zip_with(known, seconds))


def _elapsed(table: pl.DataFrame, started: Moments, zone: str) -> pl.Series:
    if "ElapsedRaw" in table.columns:
        return _column(table, "ElapsedRaw").cast(pl.Float64, strict=False)
    if "Elapsed" in table.columns:
        return _by_distinct(clock_span_s, _column(table, "Elapsed"))
    return _times(table, "End", zone).since(started)


def clock_span_s(texts: pl.Series) -> pl.Series:
    """Returns Slurm's [DAYS-]HH:MM:SS, MM:SS or DAYS-HH as seconds, null for other words."""
    frame = pl.DataFrame({"t": texts})
    groups = pl.col("t").str.extract_groups(r"^(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?$")
    units = (86400.0, 3600.0, 60.0, 1.0)
    parts = [
        groups.struct[i].cast(pl.Float64, strict=False).fill_null(0.0) * unit
        for i, unit in enumerate(units)
    ]
    matched = groups.struct[3].is_not_null()
    return frame.select(pl.when(matched).then(pl.sum_horizontal(parts)).alias("t"))["t"]


def _canonical(table: pl.DataFrame, submitted: Moments, elapsed: pl.Series) -> pl.DataFrame:
    user = _column(table, "User")
    name = _column(table, "JobName")
    tres = _tres(table)
    gpus = _gpus(table, tres)
    if "TimelimitRaw" in table.columns:
        limit = _column(table, "TimelimitRaw").cast(pl.Float64, strict=False) * 60
    else:
        limit = _by_distinct(clock_span_s, _column(table, "Timelimit"))
    return pl.DataFrame(
        {
            "job_id": _column(table, "JobID"),
            "submit_s": submitted.first,
            "gpus": gpus,
            "duration_s": elapsed,
            "time_limit_s": limit.set((limit <= 0).fill_null(False), None),
            "priority": _column(table, "Priority").cast(pl.Float64, strict=False),
            "user": user,
            "queue": _column(table, "Partition", "Account"),
            "recurrence": (user + "/" + name).set(name == "", ""),
            "status": _column(table, "State"),
            "gpu_type": _by_distinct(_gpu_type, tres),
            "cpus": _by_distinct(_cpus, tres),
            "memory_gb": _by_distinct(_gib, tres),
        }
    )


def _tres(table: pl.DataFrame) -> pl.Series:
    allocated, requested = _column(table, "AllocTRES"), _column(table, "ReqTRES")
    return allocated.zip_with(allocated != "", requested)


def _by_distinct(parse: Callable[[pl.Series], pl.Series], texts: pl.Series) -> pl.Series:
    """Returns the parsed texts, with each distinct one parsed once.

    NOTE: logs repeat few requests; importing a million rows takes 4 s this way, 8 s without.
    """
    distinct = texts.unique()
    codes = texts.cast(pl.Enum(distinct)).to_physical()
    return parse(distinct).gather(codes)


def _gpus(table: pl.DataFrame, tres: pl.Series) -> pl.Series:
    """Returns the GPUs of each job, 0 if unknown."""
    counted = _by_distinct(_gpus_of_tres, tres)
    gres = _column(table, "AllocGRES", "ReqGRES", "ReqGres", "AllocGres")
    per_node = gres.str.extract(r"gpu(?::[^:,\d][^:,]*)?:(\d+)").cast(pl.Float64, strict=False)
    nodes = _column(table, "NNodes", "AllocNodes").cast(pl.Float64, strict=False).fill_null(1.0)
    return counted.zip_with(counted.is_not_null(), per_node * nodes).fill_null(0.0)


def _gpus_of_tres(tres: pl.Series) -> pl.Series:
    """Returns the total Slurm lists, else the sum over types; null where it lists no GPU."""
    total = tres.str.extract(_GPU_ANY).cast(pl.Float64, strict=False)
    typed = tres.str.extract_all(_GPU_TYPED)
    by_type = typed.list.eval(pl.element().str.extract(_GPU_TYPED, 2).cast(pl.Float64)).list.sum()
    return total.zip_with(total.is_not_null(), by_type.set((by_type == 0).fill_null(False), None))


def _gpu_type(tres: pl.Series) -> pl.Series:
    """Returns the type if Slurm lists a single one."""
    typed = tres.str.extract_all(_GPU_TYPED)
    kinds = typed.list.eval(pl.element().str.extract(_GPU_TYPED, 1)).list
    return kinds.first().fill_null("").set((kinds.len() > 1).fill_null(False), "")


def _cpus(tres: pl.Series) -> pl.Series:
    return tres.str.extract(r"(?:^|,)cpu=(\d+)").cast(pl.Float64, strict=False)


def _gib(tres: pl.Series) -> pl.Series:
    frame = pl.DataFrame({"t": tres})
    groups = pl.col("t").str.extract_groups(r"(?:^|,)mem=([0-9.]+)([KMGTP]?)")
    unit = groups.struct[1].replace_strict(
        {"K": 2.0**-20, "M": 2.0**-10, "": 2.0**-10, "G": 1.0, "T": 2.0**10, "P": 2.0**20},
        default=None,
        return_dtype=pl.Float64,
    )
    return frame.select((groups.struct[0].cast(pl.Float64, strict=False) * unit).alias("t"))["t"]


SLURM = Format("slurm", "Slurm accounting (sacct -P, bars between values)", _matches, _read)
