"""Builds a `Trace` from canonical columns: counts and rejects invalid rows, and sorts the rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from dovetail.core.cluster import GIB
from dovetail.core.errors import InputError, nearest
from dovetail.core.job import LABELS, NO_LABEL, Bools, Floats, Ints, JobTable, Labels
from dovetail.core.trace import ENDS, Recorded, Trace
from dovetail.core.units import HOUR_S
from dovetail.traces.rows import (
    FLAGS,
    NUMBERS,
    REFUSED,
    REQUIRED,
    TEXTS,
    Refusals,
    Rows,
    adjusted,
    refused_rows,
    rejected,
)
from dovetail.traces.run_lists import read_run_lists

SECONDS_MAX = 1e9
"""The longest plausible duration or limit: 31 years."""

SUBMIT_MAX_S = 1e11
"""The latest plausible submission: Unix times in seconds are below 1e10, in ms above 1e12."""

GPUS_MAX = 1_000_000
"""The most plausible GPUs of a job: a larger value is from the wrong column."""

KEEP, REJECT, AS_ONE_GPU, ROUND_UP = "keep", "reject", "as-one-gpu", "round-up"
CPU_ONLY = (KEEP, REJECT, AS_ONE_GPU)
"""What can become of jobs without GPU."""
FRACTIONS = (KEEP, ROUND_UP)
"""What can become of parts of a GPU."""
EVENED_OUT = "parts of a GPU evened out over a job's GPUs"

OUT_OF_ORDER = "out of order, sorted by submission"

_STATUS = {
    "completed": ("", "completed", "complete", "pass", "passed", "terminated", "succeeded"),
    "failed": ("failed", "fail", "node_fail", "out_of_memory", "boot_fail", "error"),
    "cancelled": ("cancelled", "canceled", "killed", "revoked", "preempted", "stopped"),
    "timeout": ("timeout", "deadline"),
}
STATUS_OF = {word: end for end, words in _STATUS.items() for word in words}
"""Maps the status words of all logs to `core.trace.ENDS`."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The trace of all usable rows, and the rejected rows: columns of `REFUSED`, perhaps `file`.

    `notes` are sentences on what a reader assumed.
    """

    trace: Trace
    refused: pl.DataFrame
    notes: tuple[str, ...] = ()


def assemble(rows: Rows, name: str, where: str) -> Trace:
    """Returns the trace of all usable rows. Raises InputError if no row is usable."""
    return assembled(rows, name, where).trace


def assembled(
    rows: Rows, name: str, where: str, *, cpu_only: str = "", fractions: str = KEEP
) -> Imported:
    """Returns the trace of all usable rows, sorted by (submission, id), and the rejected rows.

    `cpu_only` is the treatment of jobs without GPU: `keep`, `reject` or `as-one-gpu`; by default
    they are kept where they ran on the machines of the others. `fractions` of a GPU are kept, or
    `round-up` gives whole ones. In the counts of the trace, read = usable + all rejected + all
    joined. Raises InputError if no row is usable.
    """
    for option, word, known in (
        ("--cpu-only", cpu_only, ("", *CPU_ONLY)),
        ("--fractions", fractions, FRACTIONS),
    ):
        if word not in known:
            raise InputError(option, f"unknown word '{word}'", nearest(word, known))
    refusals = Refusals(Counter({"read": rows.read}), list(rows.refused))
    counts = refusals.counts
    counts.update(rows.counts)
    frame = _complete(rows.frame)
    frame = _without_gpu(frame, counts, cpu_only or (KEEP if rows.beside_gpus else ""))
    frame = _reject(frame, refusals)
    frame = _in_parts(frame, counts, fractions)
    frame = _repair(frame, counts)
    frame = _in_order(frame, refusals)
    counts["usable"] = frame.height
    if not frame.height:
        raise InputError(where, _nothing_usable(counts))
    trace = _trace(frame, name, {k: v for k, v in counts.items() if v})
    trace = replace(trace, imported=rows.imported)
    refused = pl.concat([REFUSED.to_frame(), *refusals.rows], how="diagonal")
    return Imported(trace, refused, rows.notes)


def _nothing_usable(counts: Counter[str]) -> str:
    reasons = ", ".join(
        f"{n} {k.removeprefix('rejected: ')}" for k, n in counts.items() if ":" in k and n
    )
    if not counts["read"]:
        return "contains no jobs"
    return f"none of its {counts['read']} rows are usable" + (f": {reasons}" if reasons else "")


def _complete(frame: pl.DataFrame) -> pl.DataFrame:
    """Returns the frame with all canonical columns, each of its type."""

    def column(name: str, kind: type[pl.DataType], missing: object) -> pl.Expr:
        known = pl.col(name).cast(kind) if name in frame.columns else pl.lit(None, kind)
        if kind is pl.Float64:
            return known.fill_nan(None).alias(name)
        return known.fill_null(pl.lit(missing)).alias(name)

    return frame.select(
        *(column(c, pl.Float64, None) for c in (*REQUIRED[1:], *NUMBERS)),
        *(column(c, pl.String, "") for c in ("job_id", *TEXTS)),
        *(column(c, pl.Boolean, c == "preemptible") for c in FLAGS),
        *(c for c in ("line", "file") if c in frame.columns),
    )


def _without_gpu(frame: pl.DataFrame, counts: Counter[str], cpu_only: str) -> pl.DataFrame:
    """Returns the frame with jobs without GPU as they are to be treated: 0 GPUs are rejected.

    One that is kept has one worker with no part of a GPU.
    """
    if not cpu_only:
        return frame
    none = (frame["gpus"] == 0) | (frame["gpu_part"] == 0).fill_null(False)
    if cpu_only == AS_ONE_GPU:
        counts[adjusted("CPU-only job given one GPU")] += int(none.sum())
    worker = pl.lit(0.0 if cpu_only == REJECT else 1.0)
    part = pl.lit(0.0 if cpu_only == KEEP else None, pl.Float64)
    one = pl.lit(none.fill_null(False))
    return frame.with_columns(
        pl.when(one).then(worker).otherwise("gpus").alias("gpus"),
        pl.when(one).then(part).otherwise("gpu_part").alias("gpu_part"),
    )


def _in_parts(frame: pl.DataFrame, counts: Counter[str], fractions: str) -> pl.DataFrame:
    """Returns the rows with whole GPUs and the part of each that is asked for, in thousandths.

    What is no whole number of GPUs is divided evenly over as many as it needs.
    """
    gpus, part = pl.col("gpus"), pl.col("gpu_part")
    wrong = (part < 0) | (part > 1) | part.is_infinite()
    counts[adjusted("gpu_part out of range, left out")] += int(
        frame.select(wrong.fill_null(False).sum()).item()
    )
    frame = frame.with_columns(pl.when(wrong).then(None).otherwise(part).alias("gpu_part"))
    whole = gpus.ceil()
    uneven = part.is_null() & (gpus != whole)
    frame = frame.with_columns(
        pl.when(uneven).then(gpus / whole).otherwise(part.fill_null(1.0)).alias("gpu_part"),
        (uneven & (gpus > 1)).alias("uneven"),
        whole.alias("gpus"),
    )
    in_part = (part > 0) & (part < 1)
    if fractions == KEEP:
        counts[adjusted(EVENED_OUT)] += int(frame["uneven"].sum())
        least = pl.max_horizontal(part.round(3), pl.lit(0.001))
        kept = pl.when(in_part).then(least).otherwise(part)
    else:
        counts[adjusted("fraction of a GPU rounded up")] += int(frame.select(in_part.sum()).item())
        kept = pl.when(in_part).then(1.0).otherwise(part)
    none = part == 0
    return frame.drop("uneven").with_columns(
        kept.alias("gpu_part"),
        # A job without GPU has one worker, on a node with or without GPUs.
        *(pl.when(none).then(1.0).otherwise(c).alias(c) for c in ("gpus", "min_gpus", "max_gpus")),
        pl.when(none).then(pl.lit("")).otherwise("gpu_type").alias("gpu_type"),
    )


def _reject(frame: pl.DataFrame, refusals: Refusals) -> pl.DataFrame:
    """Returns the valid rows; counts each other row under the first reason that applies."""
    submit, gpus, duration = pl.col("submit_s"), pl.col("gpus"), pl.col("duration_s")
    reasons = {
        "no job id": pl.col("job_id") == "",
        "no submission time": submit.is_null(),
        "submission not finite": submit.is_infinite(),
        "negative submission": submit < 0,
        "absurd submission": submit > SUBMIT_MAX_S,
        "no GPU count": gpus.is_null(),
        "GPU count not finite": gpus.is_infinite(),
        "no GPU": gpus == 0,
        "negative GPU count": gpus < 0,
        "absurd GPU count": gpus > GPUS_MAX,
        "no duration": duration.is_null(),
        "duration not finite": duration.is_infinite(),
        "zero duration": duration == 0,
        "negative duration": duration < 0,
        "absurd duration": duration > SECONDS_MAX,
    }
    reason = pl.coalesce(
        *(pl.when(test).then(pl.lit(i, pl.Int32)) for i, test in enumerate(reasons.values()))
    )
    codes = frame.select(reason.alias("code"))["code"]
    if codes.null_count() == frame.height:
        return frame
    names = list(reasons)
    for code, n in sorted(codes.drop_nulls().value_counts().iter_rows()):
        refusals.counts[rejected(names[code])] += n
    reason = pl.lit(codes).replace_strict(dict(enumerate(names)), return_dtype=pl.String)
    refusals.rows.append(refused_rows(frame, reason).drop_nulls("reason"))
    return frame.filter(codes.is_null())


def _repair(frame: pl.DataFrame, counts: Counter[str]) -> pl.DataFrame:
    """Returns the rows with invalid optional values removed and counted."""
    tests = {
        "iterations": (pl.col("iterations") <= 0) | pl.col("iterations").is_infinite(),
        "batch_size": (pl.col("batch_size") < 0) | (pl.col("batch_size") > 2**53),
        "priority": pl.col("priority").is_infinite(),
        "time_limit_s": pl.col("time_limit_s") <= 0,
        "restart_s": (pl.col("restart_s") < 0) | pl.col("restart_s").is_infinite(),
        "deadline_s": pl.col("deadline_s") <= pl.max_horizontal("submit_s", "eligible_s"),
        "cpus": (pl.col("cpus") < 0) | pl.col("cpus").is_infinite(),
        "memory_gb": (pl.col("memory_gb") < 0) | pl.col("memory_gb").is_infinite(),
        "eligible_s": (pl.col("eligible_s") < pl.col("submit_s"))
        | (pl.col("eligible_s") > pl.col("start_s"))
        | pl.col("eligible_s").is_infinite(),
        "start_s": (pl.col("start_s") < pl.col("submit_s")) | pl.col("start_s").is_infinite(),
        "end_s": (pl.col("end_s") < pl.col("submit_s")) | pl.col("end_s").is_infinite(),
        "wait_s": (pl.col("wait_s") < 0) | pl.col("wait_s").is_infinite(),
        "restarts": (pl.col("restarts") < 0) | pl.col("restarts").is_infinite(),
        "min_gpus": (pl.col("min_gpus") < 1) | (pl.col("min_gpus") > pl.col("gpus")),
        "max_gpus": (pl.col("max_gpus") < pl.col("gpus")) | (pl.col("max_gpus") > GPUS_MAX),
    }
    bad = frame.select(test.fill_null(False).alias(c) for c, test in tests.items())
    for column in tests:
        if n := int(bad[column].sum()):
            counts[adjusted(f"{column} out of range, left out")] += n
            frame = frame.with_columns(frame[column].set(bad[column], None))
    return frame.with_columns(
        pl.col("min_gpus").ceil(), pl.col("max_gpus").floor(), pl.col("batch_size").round()
    )


def _in_order(frame: pl.DataFrame, refusals: Refusals) -> pl.DataFrame:
    """Returns the first row of each id and when it arrives, sorted by (arrival, id).

    A job arrives when it may be scheduled: once it is submitted and nothing holds it any more.
    """
    first = frame["job_id"].is_first_distinct()
    if not first.all():
        refusals.add("duplicate id", frame.filter(~first))
        frame = frame.filter(first)
    numeric = bool(frame["job_id"].str.contains(r"^-?[0-9]{1,18}$").all())
    key = pl.col("job_id").cast(pl.Int64) if numeric else pl.col("job_id")
    frame = frame.with_columns(pl.max_horizontal("submit_s", "eligible_s").alias("arrival_s"))
    # Logs are in order of submission, canonical files in order of arrival.
    unsorted = min(late(frame["submit_s"]), late(frame["arrival_s"]))
    refusals.counts[adjusted(OUT_OF_ORDER)] += unsorted
    return frame.sort(pl.col("arrival_s"), key, pl.col("job_id"))


def held_note(frame: pl.DataFrame) -> str:
    """Returns how many GPU jobs of a log were held after submission, how long, "" if none."""
    jobs = frame.filter(pl.col("gpus") > 0)
    held_s = (jobs["eligible_s"] - jobs["submit_s"]).drop_nulls()
    held_s = held_s.filter(held_s > 0)
    if held_s.is_empty():
        return ""
    return (
        f"{len(held_s):,} of {jobs.height:,} jobs were held after their submission for "
        f"{float(held_s.sum()) / HOUR_S:,.1f} h in all (dependencies, holds, begin times, limits "
        "of arrays): their waits, and all replays, count from when they became eligible."
    )


def late(submit_s: pl.Series) -> int:
    """Returns the number of rows with an earlier submission than the row above."""
    return 0 if submit_s.is_sorted() else int((submit_s.diff() < 0).sum())


def labels(column: pl.Series) -> Labels:
    """Returns a text column as labels; empty text is a missing value."""
    values = column.set(column == "", None)
    names = values.drop_nulls().unique().sort()
    if names.is_empty():
        return Labels.none(len(column))
    codes = values.cast(pl.Enum(names)).to_physical().cast(pl.Int32).fill_null(NO_LABEL)
    return Labels(codes.to_numpy().astype(np.int32), tuple(names.to_list()))


def _floats(column: pl.Series, missing: float) -> Floats:
    return np.array(column.fill_null(missing).to_numpy(), dtype=np.float64)


def _counts(column: pl.Series, missing: pl.Series | int) -> Ints:
    filled = (
        column.fill_null(missing)
        if isinstance(missing, int)
        else column.zip_with(column.is_not_null(), missing)
    )
    return np.array(filled.to_numpy(), dtype=np.int64)


def _flags(column: pl.Series) -> Bools:
    return np.array(column.to_numpy(), dtype=np.bool_)


def _trace(frame: pl.DataFrame, name: str, counts: dict[str, int]) -> Trace:
    gpus = frame["gpus"]
    jobs = JobTable.build(
        frame["job_id"].to_list(),
        _floats(frame["arrival_s"], 0.0),
        _counts(gpus, 1),
        min_gpus=_counts(frame["min_gpus"], gpus),
        max_gpus=_counts(frame["max_gpus"], gpus),
        gpu_part=_floats(frame["gpu_part"], 1.0),
        priority=_floats(frame["priority"], 0.0),
        batch_size=_counts(frame["batch_size"], 0),
        cpus=_floats(frame["cpus"], 0.0),
        memory_bytes=_floats(frame["memory_gb"], 0.0) * GIB,
        time_limit_s=_floats(frame["time_limit_s"], np.inf),
        deadline_s=_floats(frame["deadline_s"], np.inf),
        restart_s=_floats(frame["restart_s"], 0.0),
        **{c: _flags(frame[c]) for c in FLAGS},
        **{c: labels(frame[c]) for c in LABELS},
    )
    end, unknown = _ends(frame["status"])
    if unknown:
        counts = {**counts, adjusted("unknown status read as completed"): unknown}
    iterations = _floats(frame["iterations"], np.nan)
    record, damaged = _recorded(frame)
    if damaged:
        counts = {**counts, adjusted("runs that cannot be read, left out"): damaged}
    return Trace(
        jobs,
        _floats(frame["duration_s"], np.nan),
        iterations,
        end,
        name,
        counts,
        record,
    )


def _recorded(frame: pl.DataFrame) -> tuple[Recorded | None, int]:
    """Returns what the log says of starts and ends, and how many lists of runs are damaged.

    The record is None if the log never names a start.
    """
    if frame["start_s"].null_count() == frame.height:
        return None, 0
    runs, damaged = read_run_lists(frame["runs"].set(frame["start_s"].is_null(), ""))
    held = (frame["arrival_s"] > frame["submit_s"]).any()
    record = Recorded(
        _floats(frame["start_s"], np.nan),
        _floats(frame["end_s"], np.nan),
        _floats(frame["wait_s"], np.nan),
        _counts(frame["restarts"], 0),
        labels(frame["nodes"]),
        None if frame["eligible_s"].is_null().all() else _floats(frame["eligible_s"], np.nan),
        _floats(frame["submit_s"], 0.0) if held else None,
        runs,
    )
    return record, damaged


def _ends(status: pl.Series) -> tuple[np.ndarray[tuple[int], np.dtype[np.int8]], int]:
    """Returns the code of each end, and the number of unknown texts."""
    # Slurm writes "CANCELLED by 1000": the first word decides.
    words = status.str.to_lowercase().str.strip_chars().str.extract(r"^(\S*)", 1).fill_null("")
    codes = {word: ENDS.index(end) for word, end in STATUS_OF.items()}
    known = words.replace_strict(codes, default=None, return_dtype=pl.Int8)
    unknown = known.null_count()
    return np.array(known.fill_null(0).to_numpy(), dtype=np.int8), unknown
