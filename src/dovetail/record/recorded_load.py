"""What the jobs of a log held and waited for over time, from the record alone.

A log that does not list the runs of a restarted job says how long it waited, but not when: all its
wait is drawn before its first run, which keeps every sum over time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from dovetail.core.job import Bools, Floats, Ints
from dovetail.core.trace import Recorded, RecordedRuns
from dovetail.record.metrics import series_kinds
from dovetail.record.result import SERIES_COLUMNS

ROUNDED_S = 1e-3
"""A start that differs from submission and wait by less is the same instant."""

CapacitySteps = tuple[Floats, Floats]
"""Times, and the GPUs that are present from each on; the first holds before it too."""


@dataclass(frozen=True, slots=True)
class RecordedLoad:
    """Waiting and running jobs and held GPUs over time, from the first submission to the last end.

    `t_s` are the instants of change; a value holds until the next. `capacity` is the GPUs present.
    `most_gpus` is the most that jobs held at once, of those whose hours are known for sure.
    """

    t_s: Floats
    waiting: Floats
    running: Floats
    held: Floats
    capacity: Floats
    most_gpus: int

    @property
    def frame(self) -> pl.DataFrame:
        """Returns the columns of `SERIES_COLUMNS`; what a log cannot tell is null."""
        columns = {
            "t_s": self.t_s,
            "waiting": self.waiting,
            "running": self.running,
            "held_gpus": self.held,
            "capacity_gpus": self.capacity,
        }
        frame = pl.DataFrame(columns)
        unknown = [pl.lit(None).alias(c) for c in SERIES_COLUMNS if c not in columns]
        kinds = series_kinds(self.held)
        return frame.with_columns(unknown).select(pl.col(c).cast(k) for c, k in kinds.items())

    def total(self, of: Floats) -> float:
        """Returns the integral over time of one of the columns."""
        return float((of[:-1] * np.diff(self.t_s)).sum()) if len(of) else 0.0


@dataclass(frozen=True, slots=True)
class _Spans:
    """When jobs wait (`wait_s` to `waited_s`), and when they run; `job` is the row of a run.

    `sure` tells of each run whether the log says that it was then.
    """

    wait_s: Floats
    waited_s: Floats
    job: Ints
    run_s: Floats
    end_s: Floats
    sure: Bools


def _spans(jobs: pl.DataFrame, record: Recorded) -> _Spans:
    """Returns the spans of the jobs with a complete record: `jobs` are those of `record`."""
    known = (jobs["jct_s"].is_not_null() & jobs["wait_s"].is_not_null()).to_numpy()
    rows = np.flatnonzero(known & ~record.is_listed)
    submit_s, end_s, wait_s, start_s = (
        jobs[c].fill_null(float("nan")).to_numpy()
        for c in ("submit_s", "finish_s", "wait_s", "start_s")
    )
    run_s = np.minimum(submit_s + wait_s, end_s)[rows]
    # A sum of rounded times is not the instant at which another job freed the GPUs.
    with np.errstate(invalid="ignore"):
        same = np.abs(run_s - start_s[rows]) <= ROUNDED_S
    run_s = np.where(same, start_s[rows], run_s)
    sure = same & (record.restarts[rows] == 0)
    once = _Spans(submit_s[rows], run_s, rows, run_s, end_s[rows], sure)
    if record.runs is None:
        return once
    again = _listed(record.runs, known, start_s, submit_s, end_s)
    return _Spans(
        np.concatenate([once.wait_s, again.wait_s]),
        np.concatenate([once.waited_s, again.waited_s]),
        np.concatenate([once.job, again.job]),
        np.concatenate([once.run_s, again.run_s]),
        np.concatenate([once.end_s, again.end_s]),
        np.concatenate([once.sure, again.sure]),
    )


def _listed(
    runs: RecordedRuns, known: Bools, start_s: Floats, submit_s: Floats, finish_s: Floats
) -> _Spans:
    """Returns the spans of the jobs whose runs the log lists; a hold comes before the wait."""
    kept = known[runs.job]
    job, held_s = runs.job[kept], runs.held_s[kept]
    run_s = np.minimum(start_s[job] + runs.begin_s[kept], finish_s[job])
    end_s = np.minimum(run_s + runs.length_s[kept], finish_s[job])
    first = np.append(True, job[1:] != job[:-1])[: len(job)]
    wait_s = np.where(first, submit_s[job], np.roll(end_s, 1) + held_s)
    last = np.append(first[1:], True)[: len(job)]
    # A job may have been cancelled while it waited for its next run.
    return _Spans(
        np.concatenate([np.minimum(wait_s, run_s), end_s[last]]),
        np.concatenate([run_s, finish_s[job][last]]),
        job,
        run_s,
        end_s,
        np.ones(len(job), np.bool_),
    )


def recorded_load(jobs: pl.DataFrame, record: Recorded, capacity: CapacitySteps) -> RecordedLoad:
    """Returns the load that the rows of `recorded_jobs` made, over the capacity given."""
    spans = _spans(jobs, record)
    gpus = jobs["gpus"].to_numpy()[spans.job]
    if "gpu_part" in jobs.columns:
        gpus = gpus * jobs["gpu_part"].to_numpy()[spans.job]
    times, present = capacity
    first_s, last_s = spans.wait_s.min(initial=np.inf), spans.end_s.max(initial=-np.inf)
    inside = times[(times > first_s) & (times < last_s)]
    moments = (spans.wait_s, spans.waited_s, spans.run_s, spans.end_s, inside)
    t_s, place = np.unique(np.concatenate(moments), return_inverse=True)
    at_wait, at_waited, at_run, at_end, _ = np.split(
        place, np.cumsum([len(part) for part in moments[:4]])
    )
    n = len(t_s)

    def steps(up: np.ndarray, down: np.ndarray, weights: np.ndarray | None) -> Floats:
        change = np.bincount(up, weights, n) - np.bincount(down, weights, n)
        return np.asarray(np.cumsum(change), dtype=np.float64)

    surely_held = steps(at_run[spans.sure], at_end[spans.sure], gpus[spans.sure])
    found = np.maximum(np.searchsorted(times, t_s, side="right") - 1, 0)
    return RecordedLoad(
        t_s,
        steps(at_wait, at_waited, None),
        steps(at_run, at_end, None),
        # Sums of parts are whole thousandths.
        np.round(steps(at_run, at_end, gpus), 3),
        np.asarray(present[found], dtype=np.float64),
        math.ceil(round(surely_held.max(initial=0.0), 3)),
    )
