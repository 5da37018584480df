"""Philly virtual clusters as the AFS authors converted them, and their simulator's own jobs.

In the conversion, `service` is work in single-GPU seconds, so the wall time is
`service x step_time(n) / step_time(1)`; dividing by the GPUs instead is wrong by a quarter.
"""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from dovetail.traces.clock import moments, utc_offset_s
from dovetail.traces.delimited import read_delimited
from dovetail.traces.readers.format import Format, ReadOptions, has_columns, refuse, step_times
from dovetail.traces.rows import Refusals, Rows

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
_SERVICE = {
    "job_id": "app_id",
    "submit_s": "submit_time",
    "gpus": "num_jobs",
    "model": "model_name",
}
_SIMULATOR = {
    "job_id": "jid",
    "submit_s": "submit_s",
    "model": "model",
    "iterations": "iterations",
    "gpus": "req_gpus",
}


def _read_service(path: Path, options: ReadOptions) -> Rows:
    table = read_delimited(path)
    frame = pl.DataFrame(table.canonical(_SERVICE))
    service, models, gpus = table.number("service"), frame["model"], frame["gpus"]
    alone = step_times(path, options, models, gpus.clip(1, 1))
    wall = service * step_times(path, options, models, gpus) / alone
    near = (wall - wall.round()).abs() < _WHOLE_S
    cluster = _virtual_cluster(path)
    frame = frame.with_columns(
        wall.round().zip_with(near, wall).alias("duration_s"),
        (service / alone).alias("iterations"),
        pl.lit(cluster).alias("queue"),
    )
    refused = Refusals()
    frame = refuse(
        frame, wall.is_null() & service.is_not_null() & (gpus >= 1), NO_STEP_TIME, refused
    )
    epoch = _start(cluster)
    offset = 0.0 if epoch is None else utc_offset_s(epoch, PHILLY_ZONE)
    return Rows(frame, len(table), refused.counts, epoch, offset, refused.rows)


def _virtual_cluster(path: Path) -> str:
    """Returns the virtual cluster in a file name such as trace_0e4a51.csv.gz, or ''."""
    match = re.search(r"(?<![0-9a-f])([0-9a-f]{6})(?![0-9a-f])", path.name)
    return match.group(1) if match else ""


def _start(cluster: str) -> float | None:
    if cluster not in STARTS:
        return None
    return float(moments(pl.Series([STARTS[cluster]]), PHILLY_ZONE).first[0])


def _read_simulator(path: Path, options: ReadOptions) -> Rows:
    table = read_delimited(path)
    frame = pl.DataFrame(table.canonical(_SIMULATOR, {"max_gpus": "max_gpus_model"}))
    iterations, gpus = frame["iterations"], frame["gpus"]
    duration = iterations * step_times(path, options, frame["model"], gpus)
    frame = frame.with_columns(
        duration.alias("duration_s"), pl.lit(_virtual_cluster(path)).alias("queue")
    )
    refused = Refusals()
    unknown = duration.is_null() & iterations.is_not_null() & (gpus >= 1)
    frame = refuse(frame, unknown, NO_STEP_TIME, refused)
    return Rows(frame, len(table), refused.counts, refused=refused.rows)


AFS = Format(
    "afs",
    "Philly virtual cluster, AFS/PCS conversion (CSV with `service`)",
    has_columns(*_SERVICE.values(), "service"),
    _read_service,
    needs="step times",
)
AFS_SIM = Format(
    "afs-sim",
    "AFS simulator jobs (CSV with jid and iterations)",
    has_columns(*_SIMULATOR.values()),
    _read_simulator,
    needs="step times",
)
