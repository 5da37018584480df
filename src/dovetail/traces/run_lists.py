"""The runs of a job that did not end with its first one, as one text in a column of a trace.

`0+3600:NODE_FAIL 90000+1800~600` is a run of an hour from the first start on that a lost node
ended, and one of half an hour that began a day later; for ten minutes before it the job was held.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import polars as pl

from dovetail.core.job import Labels
from dovetail.core.trace import RecordedRuns

_NUMBER = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
_RUN = re.compile(rf"{_NUMBER}\+{_NUMBER}(?:~{_NUMBER})?(?::(\w+))?")
_OVERLAP_S = 1.0
"""Logs have whole seconds, so a run may begin in the second in which the last one ended."""


def run_text(begin_s: pl.Expr, length_s: pl.Expr, held_s: pl.Expr, cause: pl.Expr) -> pl.Expr:
    """Returns the text of one run; those of a job are joined by spaces."""
    held = pl.when(held_s > 0).then(pl.concat_str(pl.lit("~"), _shown(held_s)))
    why = pl.when(cause != "").then(pl.concat_str(pl.lit(":"), cause))
    parts = (_shown(begin_s), pl.lit("+"), _shown(length_s), held, why)
    return pl.concat_str(parts, ignore_nulls=True)


def _shown(seconds: pl.Expr) -> pl.Expr:
    return seconds.cast(pl.Float64).cast(pl.String).str.replace(r"\.0$", "")


def run_lists(runs: RecordedRuns | None, jobs: int) -> pl.Series:
    """Returns the text of each job, null for one whose runs are not told."""
    if runs is None:
        return pl.Series([None] * jobs, dtype=pl.String)
    frame = pl.DataFrame(
        {
            "job": runs.job,
            "begin_s": runs.begin_s,
            "length_s": runs.length_s,
            "held_s": runs.held_s,
            "cause": runs.cause.texts(),
        }
    )
    text = run_text(*(pl.col(c) for c in ("begin_s", "length_s", "held_s", "cause")))
    listed = frame.group_by("job", maintain_order=True).agg(text.str.join(" ").alias("runs"))
    rows = pl.DataFrame({"job": np.arange(jobs)})
    return rows.join(listed, on="job", how="left", maintain_order="left")["runs"]


def read_run_lists(texts: pl.Series) -> tuple[RecordedRuns | None, int]:
    """Returns the runs of a column of texts, None without any, and how many are damaged."""
    rows: list[tuple[int, float, float, float, str]] = []
    damaged = 0
    for job, text in enumerate(texts.fill_null("").to_list()):
        if not text:
            continue
        found = list(_runs(text))
        damaged += not found
        rows += [(job, *run) for run in found]
    if not rows:
        return None, damaged
    columns = list(zip(*rows, strict=True))
    begin_s, length_s, held_s = (np.array(column, np.float64) for column in columns[1:4])
    cause = Labels.of([row[4] for row in rows])
    row = np.array(columns[0], np.int64)
    return RecordedRuns(row, begin_s, length_s, held_s, cause), damaged


def _runs(text: str) -> Iterator[tuple[float, float, float, str]]:
    """Yields the runs of a text, none if it is damaged or they overlap."""
    matches = [_RUN.fullmatch(run) for run in text.split()]
    runs = [
        (float(m[1]), float(m[2]), float(m[3] or 0.0), m[4] or "") for m in matches if m is not None
    ]
    in_order = all(
        math.isfinite(later[0] + later[1] + later[2])
        and later[0] >= begin_s + length_s - _OVERLAP_S
        for (begin_s, length_s, _, _), later in pairwise(runs)
    )
    if runs and len(runs) == len(matches) and in_order and runs[0][0] == 0.0:
        yield from runs
