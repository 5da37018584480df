"""Philly: the official `cluster_job_log`, a JSON list, and the conversion by the Pollux authors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from dovetail.core.errors import InputError
from dovetail.traces.clock import REPEATED_HOUR, moments
from dovetail.traces.delimited import read_delimited
from dovetail.traces.json_list import json_entries
from dovetail.traces.readers.afs import PHILLY_ZONE
from dovetail.traces.readers.format import Format, Head, ReadOptions, has_columns
from dovetail.traces.rows import Rows, adjusted
from dovetail.traces.run_lists import run_text

_LEFT_OUT = "attempt without start or end, left out"
_DIFFER = "attempts with different GPU counts, largest kept"


def _matches_json(head: Head) -> bool:
    return head.text.lstrip().startswith(b"[") and b'"attempts"' in head.text


def _read_json(path: Path, options: ReadOptions) -> Rows:
    """Reads run time as the sum over attempts that have a start and an end."""
    zone = options.timezone or PHILLY_ZONE
    jobs, attempts = _tables(path)
    start, end = moments(attempts["start"], zone), moments(attempts["end"], zone)
    timed = attempts.with_columns(
        end.since(start).alias("duration_s"),
        start.first.alias("start_s"),
        (start.first + end.since(start)).alias("end_s"),
    ).with_columns(
        # An attempt without both times is no run.
        pl.when(pl.col("duration_s").is_not_null()).then(pl.col("start_s", "end_s", "nodes"))
    )
    per_job = timed.group_by("job").agg(
        # A job none of whose attempts has both times ran for a time we do not know.
        pl.when(pl.col("duration_s").count() > 0)
        .then(pl.col("duration_s").sum())
        .alias("duration_s"),
        pl.col("start_s").min(),
        pl.col("end_s").max(),
        (pl.col("duration_s").count() - 1).cast(pl.Float64).alias("restarts"),
        _run_list().alias("runs"),
        pl.col("nodes").drop_nulls().last(),
        pl.col("gpus").max(),
        (pl.col("gpus").n_unique() > 1).alias("differ"),
        pl.col("duration_s").null_count().alias("untimed"),
    )
    submitted = moments(jobs["submitted"], zone)
    frame = jobs.with_columns(submitted.first.alias("submit_s")).join(
        per_job, on="job", how="left", maintain_order="left"
    )
    spent = pl.col("end_s") - pl.col("submit_s") - pl.col("duration_s")
    frame = frame.with_columns(spent.alias("wait_s"))
    counts = Counter(
        {
            adjusted(REPEATED_HOUR): submitted.repeated,
            adjusted(_LEFT_OUT): int(frame["untimed"].sum()),
            adjusted(_DIFFER): int(frame["differ"].sum()),
        }
    )
    columns = frame.select(
        *("line", "job_id", "submit_s", "gpus", "duration_s", "user", "queue", "status"),
        *("start_s", "end_s", "wait_s", "restarts", "nodes", "runs"),
    )
    return Rows(columns, len(jobs), counts, 0.0, submitted.offset_s(zone))


def _run_list() -> pl.Expr:
    """Returns the attempts of a job with several; the log does not say why one ended."""
    begin_s = pl.col("start_s") - pl.col("start_s").min()
    text = run_text(begin_s, pl.col("duration_s"), pl.lit(0.0), pl.lit(""))
    timed = text.sort_by("start_s").filter(pl.col("start_s").is_not_null().sort_by("start_s"))
    return pl.when(timed.len() > 1).then(timed.str.join(" ")).otherwise(pl.lit(""))


def _tables(path: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns one row a job and one row an attempt."""
    jobs: list[tuple[int, int, str, str, str, str, str]] = []
    attempts: list[tuple[int, str, str, float, str]] = []
    for number, (line, entry) in enumerate(json_entries(path)):
        if not isinstance(entry, dict):
            raise InputError(f"{path}, line {line}", "an entry is not a JSON object")
        fields = [_text(entry.get(k)) for k in ("jobid", "submitted_time", "user", "vc", "status")]
        jobs.append((number, line, fields[0], fields[1], fields[2], fields[3], fields[4]))
        for attempt in _sequence(entry.get("attempts")):
            if isinstance(attempt, dict):
                start, end = _text(attempt.get("start_time")), _text(attempt.get("end_time"))
                attempts.append((number, start, end, *_gpus_and_nodes(attempt)))
    names = ["job", "line", "job_id", "submitted", "user", "queue", "status"]
    schema = {n: pl.Int64 if n in ("job", "line") else pl.String for n in names}
    times = {"job": pl.Int64, "start": pl.String, "end": pl.String, "gpus": pl.Float64}
    times["nodes"] = pl.String
    return (
        pl.DataFrame(jobs, schema=schema, orient="row"),
        pl.DataFrame(attempts, schema=times, orient="row"),
    )


def _gpus_and_nodes(attempt: dict[str, object]) -> tuple[float, str]:
    machines = [d for d in _sequence(attempt.get("detail")) if isinstance(d, dict)]
    gpus = sum(len(_sequence(machine.get("gpus"))) for machine in machines)
    return float(gpus), ",".join(filter(None, (_text(machine.get("ip")) for machine in machines)))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


_COLUMNS = {"gpus": "num_gpus", "duration_s": "duration", "queue": "cluster"}


def _read_csv(path: Path, options: ReadOptions) -> Rows:
    """Reads local times; ids are row numbers from 0, because the file has none."""
    table = read_delimited(path)
    columns = table.canonical(_COLUMNS)
    zone = options.timezone or PHILLY_ZONE
    times = moments(table.text("timestamp"), zone)
    frame = pl.DataFrame([table.row_ids(), times.first.alias("submit_s"), *columns])
    counts = Counter({adjusted(REPEATED_HOUR): times.repeated})
    return Rows(frame, len(table), counts, 0.0, times.offset_s(zone))


PHILLY_JSON = Format("philly-json", "Philly cluster_job_log (JSON)", _matches_json, _read_json)
PHILLY_CSV = Format(
    "philly-csv",
    "Philly, Pollux conversion (CSV, US Pacific local times)",
    has_columns(*_COLUMNS.values(), "timestamp"),
    _read_csv,
)
