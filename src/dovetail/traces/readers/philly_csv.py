"""Philly as the Pollux authors converted it: local times, durations, GPUs and virtual cluster."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl

from dovetail.traces.clock import moments
from dovetail.traces.delimited import read_delimited
from dovetail.traces.readers.afs import PHILLY_ZONE
from dovetail.traces.readers.format import Format, Head, ReadOptions
from dovetail.traces.rows import Rows, adjusted

REPEATED_HOUR = "local time in an hour that happened twice, read as its first pass"


def _matches(head: Head) -> bool:
    return head.has("timestamp", "duration", "num_gpus", "cluster")


def _read(path: Path, options: ReadOptions) -> Rows:
    """Reads local times; ids are row numbers from 0, because the file has none."""
    table = read_delimited(path)
    table.need("timestamp", "duration", "num_gpus", "cluster")
    zone = options.timezone or PHILLY_ZONE
    times = moments(table.text("timestamp"), zone)
    frame = pl.DataFrame(
        {
            "job_id": pl.int_range(len(table), eager=True).cast(pl.String),
            "submit_s": times.first,
            "gpus": table.number("num_gpus"),
            "duration_s": table.number("duration"),
            "queue": table.text("cluster"),
        }
    )
    counts = Counter({adjusted(REPEATED_HOUR): times.repeated})
    return Rows(frame, len(table), counts, 0.0, times.offset_s(zone))


PHILLY_CSV = Format(
    "philly-csv", "Philly, Pollux conversion (CSV, US Pacific local times)", _matches, _read
)
