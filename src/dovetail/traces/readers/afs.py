"""Philly virtual clusters as the AFS authors converted them, and their simulator's own jobs.

In the conversion, `service` is work in single-GPU seconds, so the wall time is
`service x step_time(n) / step_time(1)`; dividing by the GPUs instead is wrong by a quarter.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import polars as pl

from dovetail.traces.clock import moments, utc_offset_s
from dovetail.traces.delimited import read_delimited
from dovetail.traces.readers.format import Format, Head, ReadOptions, refuse, step_times
from dovetail.traces.rows import Rows

PHILLY_ZONE = "America/Los_Angeles"

STARTS = {
    "0e4a51": "2017-09-26 22:24:22",
    "103959": "2017-09-21 17:00:12",
    "11cb48": "2017-08-24 23:47:12",
    "2869ce": "2017-09-18 16:23:59",
    "51b7ef": "2017-11-15 23:26:02",
    "6214e9": "2017-08-14 23:27:00",
    "6c71a0": "2017-09-17 03:01:09",
    "e13805": "2017-09-15 03:38:09",
    "ed69ec": "2017-09-20 22:05:09",
    "ee9e8c": "2017-09-14 09:31:40",
}
"""Local time of each virtual cluster's first job, recovered by matching jobs with Philly's log."""

_WHOLE_S = 1e-3
"""The log has whole seconds: a wall time this near to one is that one."""

NO_STEP_TIME = "no step time for the model at that size"


def _matches_service(head: Head) -> bool:
    return head.has("app_id", "submit_time", "service", "num_jobs", "model_name")


def _read_service(path: Path, options: ReadOptions) -> Rows:
    table = read_delimited(path)
    table.need("app_id", "submit_time", "service", "num_jobs", "model_name")
    models, gpus, service = (
        table.text("model_name"),
        table.number("num_jobs"),
        table.number("service"),
    )
    alone = step_times(path, options, models, gpus.clip(1, 1))
    wall = service * step_times(path, options, models, gpus) / alone
    near = (wall - wall.round()).abs() < _WHOLE_S
    cluster = virtual_cluster(path)
    frame = pl.DataFrame(
        {
            "job_id": table.text("app_id"),
            "submit_s": table.number("submit_time"),
            "gpus": gpus,
            "duration_s": wall.round().zip_with(near, wall),
            "iterations": service / alone,
            "model": models,
            "queue": pl.repeat(cluster, len(table), eager=True, dtype=pl.String),
            "step_s": wall,
        }
    )
    counts: Counter[str] = Counter()
    unknown = wall.is_null() & service.is_not_null() & (gpus >= 1)
    frame = refuse(frame, unknown, NO_STEP_TIME, counts).drop("step_s")
    epoch = _start(cluster)
    offset = 0.0 if epoch is None else utc_offset_s(epoch, PHILLY_ZONE)
    return Rows(frame, len(table), counts, epoch, offset)


def virtual_cluster(path: Path) -> str:
    """Returns the virtual cluster that a file name such as trace_0e4a51.csv.gz tells, or ''."""
    match = re.search(r"(?<![0-9a-f])([0-9a-f]{6})(?![0-9a-f])", path.name)
    return match.group(1) if match else ""


def _start(cluster: str) -> float | None:
    if cluster not in STARTS:
        return None
    return float(moments(pl.Series([STARTS[cluster]]), PHILLY_ZONE).first[0])


def _matches_simulator(head: Head) -> bool:
    return head.has("jid", "submit_s", "model", "iterations", "req_gpus")


def _read_simulator(path: Path, options: ReadOptions) -> Rows:
    table = read_delimited(path)
    table.need("jid", "submit_s", "model", "iterations", "req_gpus")
    models, gpus, iterations = (
        table.text("model"),
        table.number("req_gpus"),
        table.number("iterations"),
    )
    duration = iterations * step_times(path, options, models, gpus)
    frame = pl.DataFrame(
        {
            "job_id": table.text("jid"),
            "submit_s": table.number("submit_s"),
            "gpus": gpus,
            "duration_s": duration,
            "iterations": iterations,
            "model": models,
            "queue": pl.repeat(virtual_cluster(path), len(table), eager=True, dtype=pl.String),
        }
    )
    if table.has("max_gpus_model"):
        frame = frame.with_columns(table.number("max_gpus_model").alias("max_gpus"))
    counts: Counter[str] = Counter()
    unknown = duration.is_null() & iterations.is_not_null() & (gpus >= 1)
    return Rows(refuse(frame, unknown, NO_STEP_TIME, counts), len(table), counts)


AFS = Format(
    "afs",
    "Philly virtual cluster, AFS/PCS conversion (CSV with `service`)",
    _matches_service,
    _read_service,
    needs="step times",
)
AFS_SIM = Format(
    "afs-sim",
    "AFS simulator jobs (CSV with jid and iterations)",
    _matches_simulator,
    _read_simulator,
    needs="step times",
)
