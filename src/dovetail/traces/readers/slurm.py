"""Slurm's accounting, as `sacct -P` prints it: steps under their jobs, a row for each requeue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from dovetail.core.units import HOUR_S
from dovetail.traces.assemble import held_note
from dovetail.traces.canonical import is_parquet, trace_name
from dovetail.traces.clock import REPEATED_HOUR, SKIPPED_HOUR, Moments, moments
from dovetail.traces.gpu_types import with_types_of_places
from dovetail.traces.readers.format import Format, Head, ReadOptions, refuse
from dovetail.traces.readers.sacct_lines import DAMAGED_AGAIN, are_columns, is_sacct, whole_rows
from dovetail.traces.readers.sacct_parquet import stored_rows
from dovetail.traces.readers.sacct_requeues import REQUEUE_DELAY_S, one_row_a_job
from dovetail.traces.readers.sacct_values import (
    by_distinct,
    clock_span_s,
    column,
    cpus,
    gib,
    gpu_count,
    gpu_types,
)
from dovetail.traces.rows import Refusals, Rows, adjusted

NOT_ENDED, NOT_STARTED = "not ended yet", "not started yet"
TYPE_OF_PLACE = "GPU type as of the other jobs on its nodes or in its partition"
SEVERAL_TYPES = "several GPU types in a job, any is taken"
COMPONENT = "component of a heterogeneous job, a job of its own"
PAST_LIMIT = "time limit raised to what the job ran past it"
ELAPSED_COUNTS = "end moved to start + Elapsed, from which it differed"
NO_ZONE = (
    "no time zone was given, so the times of the log are read as UTC. If they are local times, "
    "give the zone to dovetail trace import, as in --timezone Europe/Berlin: without it, hours of "
    "the day and times over a change of clocks are wrong."
)
NO_STATE = "the log has no column State, so every job that has an end counts as completed."

_UNFINISHED = (
    *("RUNNING", "PENDING", "SUSPENDED", "REQUEUED", "RESIZING", "CONFIGURING", "COMPLETING"),
    *("REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD", "STAGE_OUT", "SIGNALING"),
    "STOPPED",
)
_CUT_SHORT = ("REQUEUED", "RESIZING", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
"""States of a row that is over if another row of the job follows."""
_ROUNDED_S = 2.0


def _matches(head: Head) -> bool:
    if head.parquet:
        return are_columns(head.columns)
    # UTF-16 arrives as UTF-8, and a file may be cut within its last character.
    return is_sacct(head.text.decode("utf-8-sig", "replace").split("\n"), head.path)


def _read(path: Path, options: ReadOptions) -> Rows:
    return _join([path], options)


def _join(paths: Sequence[Path], options: ReadOptions) -> Rows:
    """Reads one job for each id: steps, and jobs that never ran or have not ended, are refused.

    GPUs come from AllocTRES, else ReqTRES. Partition is the queue, user/JobName the recurrence.
    Priority is not read: it is what the site's weights made of the job by the end of its wait, and
    as the wish of its user it would tell every policy the order of the record.
    Suspended jobs keep their GPUs, so that time is neither run time (Slurm's Elapsed) nor waiting.
    A job whose rows are in several files is one job.
    """
    zone = options.timezone or "UTC"
    refused = Refusals()
    logs = [_read_log(path, options, zone, refused, several=len(paths) > 1) for path in paths]
    frame = pl.concat([log.frame for log in logs]).with_row_index("at")
    dateless = frame["submit_s"].is_null()
    if dateless.any():
        again = frame["job_id"].is_in(frame.filter(~dateless)["job_id"].implode())
        frame = refuse(frame, dateless & again, DAMAGED_AGAIN, refused)
    frame = _ended_jobs(one_row_a_job(frame, refused), refused)
    frame = _admitted(frame, refused.counts)
    parts = frame["job_id"].str.contains("+", literal=True)
    refused.counts[adjusted(COMPONENT)] += int(parts.sum())
    frame, filled = with_types_of_places(frame)
    refused.counts[adjusted(TYPE_OF_PLACE)] += filled
    several = frame["gpu_type"].str.contains("|", literal=True)
    refused.counts[adjusted(SEVERAL_TYPES)] += int(several.sum())
    frame = frame.with_columns(frame["gpu_type"].set(several, ""))
    assumed = [note for log in logs for note in log.notes]
    held = (held_note(frame), _held_again_note(frame["held_again_s"]))
    notes = tuple(dict.fromkeys(note for note in (*assumed, *held) if note))
    offset_s = min(logs, key=lambda log: log.first_s).offset_s
    read = sum(log.read for log in logs)
    return Rows(frame, read, refused.counts, 0.0, offset_s, refused.rows, notes)


@dataclass(frozen=True, slots=True)
class _Log:
    """The rows of one file with times, how many it has, and what was assumed of it."""

    frame: pl.DataFrame
    read: int
    first_s: float
    offset_s: float
    notes: tuple[str, ...]


def _read_log(
    path: Path, options: ReadOptions, zone: str, refused: Refusals, *, several: bool
) -> _Log:
    """Returns the rows that are not steps. With several files, each row names its own."""
    own = Refusals()
    if is_parquet(path):
        table, read = stored_rows(path, options.columns, own)
    else:
        table, read = whole_rows(path, options.columns, own)
    if "JobID" not in table.columns:
        table = table.rename({"JobIDRaw": "JobID"})
    table = refuse(table, table["JobID"].str.contains(".", literal=True), "job step", own)
    waiting = table["JobID"].str.contains("[", literal=True)
    table = refuse(table, waiting, "array not started", own)
    submitted = _times(table, "Submit", zone)
    frame = _timed(_canonical(table), table, submitted, zone, own.counts)
    frame = frame.with_columns(pl.lit(trace_name(path)).alias("source"))
    if several:
        file = pl.lit(str(path)).alias("file")
        frame, own.rows[:] = frame.with_columns(file), [r.with_columns(file) for r in own.rows]
        frame = frame.sort("submit_s", maintain_order=True)
    refused.counts.update(own.counts)
    refused.rows.extend(own.rows)
    dates = table["Submit"].head(1000).str.contains(r"T\d\d:\d\d:\d\d\s*$")
    local = not options.timezone and bool(dates.any())
    notes = (NO_ZONE if local else "", "" if "State" in table.columns else NO_STATE)
    first_s = float(submitted.first.fill_null(np.inf).to_numpy().min(initial=np.inf))
    return _Log(frame, read, first_s, submitted.offset_s(zone), notes)


def _held_again_note(held_s: pl.Series) -> str:
    """Returns how many requeued jobs were held before a later run, and how long, "" if none."""
    held_s = held_s.filter(held_s > 0)
    if held_s.is_empty():
        return ""
    return (
        f"{len(held_s):,} requeued jobs were held before a later run (Eligible over "
        f"{REQUEUE_DELAY_S:g} s after the requeue), for {float(held_s.sum()) / HOUR_S:,.1f} h in "
        "all: that is no waiting in the record, but part of the JCT."
    )


def _ended_jobs(frame: pl.DataFrame, refused: Refusals) -> pl.DataFrame:
    """Returns the jobs that ran and ended, with their waiting time."""
    open_, ran = ~frame["ended"], frame["duration_s"].fill_null(0) > 0
    frame = refuse(frame, open_ & ~ran & (frame["state"] != "RUNNING"), NOT_STARTED, refused)
    frame = refuse(frame, ~frame["ended"], NOT_ENDED, refused)
    # A job that was cancelled while it waited has no start, or (older Slurm) no node.
    idle = (frame["duration_s"] == 0) & (frame["nodes"] == "") & (frame["state"] == "CANCELLED")
    if frame["start_s"].null_count() < frame.height or not frame["duration_s"].is_null().all():
        timeless = frame["start_s"].is_null() & ~(frame["duration_s"].fill_null(0) > 0)
        frame = refuse(frame, idle.fill_null(False) | timeless, "never started", refused)
    no_wait_s = pl.col("duration_s") + pl.col("suspended_s") + pl.col("held_again_s")
    return frame.with_columns((pl.col("end_s") - pl.col("submit_s") - no_wait_s).alias("wait_s"))


def _admitted(frame: pl.DataFrame, counts: Counter[str]) -> pl.DataFrame:
    """Returns the jobs with limits that admit what they ran.

    Slurm ends a job up to a minute after its limit, or later with OverTimeLimit; a replay that
    took the limit to the second would end it before its work is done.
    """
    past = (frame["duration_s"] > frame["time_limit_s"]).fill_null(False)
    counts[adjusted(PAST_LIMIT)] += int(past.sum())
    return frame.with_columns(frame["time_limit_s"].zip_with(~past, frame["duration_s"]))


def _times(table: pl.DataFrame, name: str, zone: str) -> Moments:
    """Returns a time column; with SLURM_TIME_FORMAT=%s it holds Unix seconds already."""
    if name not in table.columns:
        nothing = pl.repeat(None, table.height, eager=True, dtype=pl.Float64)
        return Moments(nothing, nothing)
    texts = column(table, name)
    parsed = moments(texts, zone)
    seconds = texts.cast(pl.Float64, strict=False).fill_nan(None)
    if seconds.null_count() == len(seconds):
        return parsed
    known = seconds.is_null()
    first, later = (s.zip_with(known, seconds) for s in (parsed.first, parsed.later))
    return Moments(first, later, parsed.skipped)


def _timed(
    frame: pl.DataFrame, table: pl.DataFrame, submitted: Moments, zone: str, counts: Counter[str]
) -> pl.DataFrame:
    """Returns the frame with times. Elapsed and Suspended decide between the passes of an hour."""
    started, ended = _times(table, "Start", zone), _times(table, "End", zone)
    counts[adjusted(REPEATED_HOUR)] += submitted.repeated
    counts[adjusted(SKIPPED_HOUR)] += submitted.skipped + started.skipped + ended.skipped
    elapsed, suspended = _spans(table, "Elapsed"), _spans(table, "Suspended")
    start = _passes(started, submitted, ended, elapsed + suspended.fill_null(0.0))
    end = ended.after(start)
    if elapsed.is_null().all():
        elapsed = end - start - suspended.fill_null(0.0)
    planned = start + elapsed + suspended.fill_null(0.0)
    # Without the column Suspended, a longer stay is taken for suspension.
    off = (end - planned).abs() > _ROUNDED_S if "Suspended" in table.columns else end < planned - 2
    off = off.fill_null(False)
    repeated = (ended.first != ended.later).fill_null(False)
    counts[adjusted(ELAPSED_COUNTS)] += int((off & ~repeated).sum())
    end = end.zip_with(~(off | repeated), planned)
    stayed = (end - start - elapsed).clip(0)
    return frame.with_columns(
        submitted.first.alias("submit_s"),
        _times(table, "Eligible", zone).after(submitted.first).alias("eligible_s"),
        start.alias("start_s"),
        end.alias("end_s"),
        elapsed.alias("duration_s"),
        (suspended if "Suspended" in table.columns else stayed).fill_null(0.0).alias("suspended_s"),
    )


def _passes(started: Moments, submitted: Moments, ended: Moments, ran_s: pl.Series) -> pl.Series:
    """Returns the starts: in an hour that occurs twice, the pass that fits the end best."""
    start = started.after(submitted.first)
    if not started.repeated:
        return start
    first_off = pl.min_horizontal((started.first + ran_s - e).abs() for e in _both(ended))
    later_off = pl.min_horizontal((started.later + ran_s - e).abs() for e in _both(ended))
    later = pl.select(later_off < first_off).to_series().fill_null(False)
    return started.later.zip_with(later, start)


def _both(times: Moments) -> tuple[pl.Series, pl.Series]:
    return times.first, times.later


def _spans(table: pl.DataFrame, name: str) -> pl.Series:
    if f"{name}Raw" in table.columns:
        return column(table, f"{name}Raw").cast(pl.Float64, strict=False)
    if name not in table.columns:
        return pl.repeat(None, table.height, eager=True, dtype=pl.Float64)
    return by_distinct(clock_span_s, column(table, name))


def _canonical(table: pl.DataFrame) -> pl.DataFrame:
    """Returns all columns but the times."""
    user, name, state = (column(table, c) for c in ("User", "JobName", "State"))
    allocated, requested = column(table, "AllocTRES"), column(table, "ReqTRES")
    tres = allocated.zip_with(allocated != "", requested)
    nodes = column(table, "NodeList")
    word = state.str.extract(r"^(\S*)", 1).fill_null("").str.strip_suffix("+")
    ids = table["JobID"].str.strip_chars()
    if "TimelimitRaw" in table.columns:
        limit = column(table, "TimelimitRaw").cast(pl.Float64, strict=False) * 60
    else:
        limit = by_distinct(clock_span_s, column(table, "Timelimit"))
    return pl.DataFrame(
        {
            "line": table["line"],
            "job_id": ids,
            "gpus": gpu_count(table, tres),
            "time_limit_s": limit.set((limit <= 0).fill_null(False), None),
            "user": user,
            "account": column(table, "Account"),
            "qos": column(table, "QOS"),
            "reservation": column(table, "Reservation"),
            "queue": column(table, "Partition", "Account"),
            "recurrence": (user + "/" + name).set(name == "", ""),
            "status": state,
            "state": word,
            "ended": ~word.is_in(list(_UNFINISHED)),
            "cut": word.is_in(list(_CUT_SHORT)),
            "cluster": column(table, "Cluster"),
            "restarts": column(table, "Restarts").cast(pl.Float64, strict=False),
            "nodes": nodes.set(nodes.str.contains(" ", literal=True), ""),
            "gpu_type": gpu_types(table, tres),
            "cpus": by_distinct(cpus, tres),
            "memory_gb": by_distinct(gib, tres),
        }
    )


SLURM = Format(
    "slurm",
    "Slurm accounting (sacct -P, or its columns in Parquet)",
    _matches,
    _read,
    _join,
    parquet=None,
)
