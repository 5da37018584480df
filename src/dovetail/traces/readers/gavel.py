"""Gavel's and Shockwave's job lists: tab separated, no header, work as a number of steps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from dovetail.core.errors import InputError
from dovetail.traces.delimited import read_delimited
from dovetail.traces.readers.format import Format, Head, ReadOptions, refuse, step_times
from dovetail.traces.rows import Refusals, Rows


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the values are, by position."""

    steps: int
    gpus: int
    arrival: int
    priority: int | None = None
    slo: int | None = None
    duration: int | None = None


_LAYOUTS = {
    7: _Layout(steps=4, arrival=5, gpus=6),
    10: _Layout(steps=5, gpus=6, priority=7, slo=8, arrival=9),
    12: _Layout(steps=5, gpus=6, priority=8, slo=9, duration=10, arrival=11),
}
"""By the number of values: Philly mapped on Gavel's jobs, Gavel's clusters, Shockwave's traces."""


def _matches(head: Head) -> bool:
    first = head.text.split(b"\n", 1)[0]
    return first.count(b"\t") + 1 in _LAYOUTS and b"(batch size" in first.split(b"\t", 1)[0]


def _read(path: Path, options: ReadOptions) -> Rows:
    """Reads run time as steps x seconds per step; only Shockwave's lists have it.

    Step times go by the whole job type, such as `LM (batch size 10)`.
    """
    width = _width(path)
    layout = _LAYOUTS[width]
    names = [str(i) for i in range(width)]
    table = read_delimited(path, "\t", header=names, quoted=False)
    types, steps, gpus = (
        table.text("0"),
        *(table.number(str(i)) for i in (layout.steps, layout.gpus)),
    )
    submit = table.number(str(layout.arrival))
    if layout.duration is None:
        duration = steps * step_times(path, options, types, gpus)
    else:
        duration = table.number(str(layout.duration))
    frame = pl.DataFrame(
        {
            "line": table.lines(),
            "job_id": table.row_ids(),
            "submit_s": submit,
            "gpus": gpus,
            "duration_s": duration,
            "iterations": steps,
            "model": types.str.replace(r" \(batch size \d+\)$", ""),
            "batch_size": types.str.extract(r"batch size (\d+)").cast(pl.Float64),
        }
    )
    if layout.priority is not None:
        frame = frame.with_columns(table.number(str(layout.priority)).alias("priority"))
    if layout.slo is not None:
        # An SLO is a multiple of the run time, counted from submission; -1 means none.
        slo = table.number(str(layout.slo))
        due = submit + slo * duration
        frame = frame.with_columns(due.set((slo <= 0).fill_null(True), None).alias("deadline_s"))
    refused = Refusals()
    unknown = duration.is_null() & steps.is_not_null() & (gpus >= 1)
    frame = refuse(frame, unknown, "no step time for the job type", refused)
    return Rows(frame, len(table), refused.counts, refused=refused.rows)


def _width(path: Path) -> int:
    from dovetail.traces.source import first_bytes

    first = next((x for x in first_bytes(path).split(b"\n") if x.strip()), b"")
    width = first.count(b"\t") + 1 if first else 0
    if width not in _LAYOUTS:
        known = ", ".join(map(str, _LAYOUTS))
        raise InputError(f"{path}, line 1", f"has {width} tab-separated values", f"known: {known}")
    return width


GAVEL = Format(
    "gavel",
    "Gavel or Shockwave .trace (tabs, no header)",
    _matches,
    _read,
    needs="step times (not for Shockwave)",
)
