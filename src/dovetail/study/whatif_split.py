"""The waits of each change by queue, account, user or size: who gains from it, and who pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from dovetail.core.errors import InputError
from dovetail.core.job import Bools
from dovetail.core.trace import Trace
from dovetail.record.metrics import nearest_rank, size_class
from dovetail.report.waits_by import SPLITS
from dovetail.study.cells import CellOutcome
from dovetail.study.changes import GridCell

SPLIT_COLUMNS: Mapping[str, type[pl.DataType]] = {
    "change": pl.String,
    "name": pl.String,
    "jobs": pl.Int64,
    "avg_wait_s": pl.Float64,
    "median_wait_s": pl.Float64,
    "p90_wait_s": pl.Float64,
}
"""The columns of `Whatif.split`; of several draws of the jobs, each is the mean over them."""


def split_of(
    trace: Trace,
    by: str,
    cells: Sequence[GridCell],
    outcomes: Sequence[CellOutcome],
    counted: Bools,
) -> pl.DataFrame:
    """Returns the waits of the `counted` jobs by name, that with most jobs first.

    Names are those of the log, also where a change puts jobs into other queues.
    """
    texts = np.array(_names(trace, by))
    names, jobs = np.unique(texts[counted], return_counts=True)
    order = np.argsort(-jobs, kind="stable")
    rows = [
        {"change": cell.label, "name": str(names[at]), "jobs": int(jobs[at]), **waits}
        for cell, outcome in zip(cells, outcomes, strict=True)
        for at in order.tolist()
        for waits in [_waits(outcome, counted & (texts == names[at]))]
    ]
    return pl.DataFrame(rows, schema=dict(SPLIT_COLUMNS))


def check_named(trace: Trace, by: str) -> None:
    """Raises InputError if the jobs have no such names."""
    if by and not any(_names(trace, by)):
        raise InputError("--by", f"the jobs of the trace name no {by}", "as in --by size")


def _names(trace: Trace, by: str) -> list[str]:
    if SPLITS[by] == "size_class":
        return size_class(trace.jobs.asked_gpus)
    texts: list[str] = getattr(trace.jobs, by).texts()
    return texts


def _waits(outcome: CellOutcome, rows: Bools) -> dict[str, float]:
    found = []
    for draw in outcome.each:
        wait_s = draw.wait_s[rows & np.isfinite(draw.wait_s)]
        if len(wait_s):
            middle, high = nearest_rank(wait_s, 0.5), nearest_rank(wait_s, 0.9)
            found.append((float(wait_s.mean()), float(middle), float(high)))
    if not found:
        return {}
    mean, median, p90 = np.mean(found, axis=0).tolist()
    return {"avg_wait_s": mean, "median_wait_s": median, "p90_wait_s": p90}
