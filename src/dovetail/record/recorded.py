"""The record of a log as a run: jobs, the cluster over time, and the numbers of a summary.

A job counts if the log names its end and its wait (without a wait and without restarts: its start).
The log says how long a restarted job waited, but not when: over time all its wait is drawn before
its first run, which keeps every sum over time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from dovetail.core.job import Bools, Floats
from dovetail.core.trace import ENDS, Recorded, Trace
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.record.metrics import Window, nearest_rank, series_kinds, size_class, with_parts
from dovetail.record.result import SERIES_COLUMNS

ROUNDED_S = 1e-3
"""A start that differs from submission and wait by less is the same instant."""

CapacitySteps = tuple[Floats, Floats]
"""Times, and the GPUs that are present from each on; the first holds before it too."""


def recorded_wait_s(record: Recorded, submit_s: Floats) -> Floats:
    """Returns the wait of each job since `submit_s`, NaN where the log does not tell it."""
    to_start_s = np.where(record.restarts == 0, record.start_s - submit_s, np.nan)
    wait_s = record.wait_s - record.held_s(submit_s)
    return np.where(np.isfinite(wait_s), wait_s, to_start_s)


def complete(record: Recorded, submit_s: Floats) -> Bools:
    """Returns which jobs have a record with an end and a wait that agree."""
    wait_s = recorded_wait_s(record, submit_s)
    jct_s = record.end_s - submit_s
    slack_s = RELATIVE_TOLERANCE * np.maximum(np.abs(record.end_s), 1.0)
    with np.errstate(invalid="ignore"):
        return np.asarray((wait_s >= -slack_s) & (jct_s >= wait_s - slack_s))


def recorded_jobs(trace: Trace, record: Recorded) -> pl.DataFrame:
    """Returns one row per job with the columns of `jobs.csv`; an incomplete record has no times."""
    jobs = trace.jobs
    submit_s, known = jobs.submit_s, complete(record, jobs.submit_s)
    jct_s = np.where(known, record.end_s - submit_s, np.nan)
    wait_s = np.clip(recorded_wait_s(record, submit_s), 0.0, np.where(known, jct_s, 0.0))
    start_s = np.where(known, record.start_s, np.nan)
    frame = pl.DataFrame(
        {
            "job_id": jobs.job_id,
            "submit_s": submit_s,
            "start_s": start_s,
            "finish_s": np.where(known, record.end_s, np.nan),
            "jct_s": jct_s,
            "time_to_start_s": np.where(np.isfinite(start_s), start_s - submit_s, jct_s),
            "wait_s": np.where(known, wait_s, np.nan),
            "service_gpu_s": np.where(known, (jct_s - wait_s) * jobs.asked_gpus, np.nan),
            "slowdown": jct_s / trace.duration_s,
            "preemptions": record.restarts,
            "gpus": jobs.gpus,
            "user": jobs.user.texts(),
            "account": jobs.account.texts(),
            "queue": jobs.queue.texts(),
            "recurrence": jobs.recurrence.texts(),
            "model": jobs.model.texts(),
            "end": [ENDS[code] for code in trace.end.tolist()],
            "size_class": size_class(jobs.asked_gpus),
        }
    )
    return with_parts(frame, jobs).fill_nan(None)


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


def recorded_load(jobs: pl.DataFrame, capacity: CapacitySteps) -> RecordedLoad:
    """Returns the load that the rows of `recorded_jobs` made, over the capacity given."""
    known = jobs.drop_nulls(["jct_s", "wait_s"])
    submit_s, end_s = known["submit_s"].to_numpy(), known["finish_s"].to_numpy()
    run_s = np.minimum(submit_s + known["wait_s"].to_numpy(), end_s)
    start_s = known["start_s"].fill_null(float("nan")).to_numpy()
    # A sum of rounded times is not the instant at which another job freed the GPUs.
    with np.errstate(invalid="ignore"):
        same = np.abs(run_s - start_s) <= ROUNDED_S
    run_s = np.where(same, start_s, run_s)
    gpus = known["gpus"].to_numpy()
    if "gpu_part" in known.columns:
        gpus = gpus * known["gpu_part"].to_numpy()
    times, present = capacity
    inside = times[(times > submit_s.min(initial=np.inf)) & (times < end_s.max(initial=-np.inf))]
    t_s, place = np.unique(np.concatenate([submit_s, run_s, end_s, inside]), return_inverse=True)
    at_submit, at_run, at_end, _ = np.split(place, np.cumsum([len(known)] * 3))
    n = len(t_s)

    def steps(up: np.ndarray, down: np.ndarray, weights: np.ndarray | None) -> Floats:
        change = np.bincount(up, weights, n) - np.bincount(down, weights, n)
        return np.asarray(np.cumsum(change), dtype=np.float64)

    sure = same & (known["preemptions"].to_numpy() == 0)
    surely_held = steps(at_run[sure], at_end[sure], gpus[sure])
    found = np.maximum(np.searchsorted(times, t_s, side="right") - 1, 0)
    return RecordedLoad(
        t_s,
        steps(at_submit, at_run, None),
        steps(at_run, at_end, None),
        # Sums of parts are whole thousandths.
        np.round(steps(at_run, at_end, gpus), 3),
        np.asarray(present[found], dtype=np.float64),
        math.ceil(round(surely_held.max(initial=0.0), 3)),
    )


def recorded_summary(
    jobs: pl.DataFrame, load: RecordedLoad, window: Window
) -> dict[str, float | int | str | None]:
    """Returns the keys of a summary; what a log cannot tell is None."""
    counted = jobs.filter(pl.Series(window.rows(jobs["submit_s"].to_numpy()), dtype=pl.Boolean))
    done = counted.drop_nulls("jct_s")
    jct_s = done["jct_s"].to_numpy()
    span_s = float(load.t_s[-1] - load.t_s[0]) if len(load.t_s) else 0.0
    capacity, held = load.total(load.capacity), load.total(load.held)
    ended = jobs.drop_nulls("jct_s")

    def mean(column: str) -> float | None:
        return float(done[column].to_numpy().mean()) if len(done) else None

    def over_time(total: float) -> float | None:
        return total / span_s if span_s > 0 else None

    return {
        "jobs": len(jobs),
        "counted_jobs": len(counted),
        "finished": len(ended),
        "timed_out": int((ended["end"] == "timeout").sum()),
        "cancelled": int((ended["end"] == "cancelled").sum()),
        "avg_jct_s": mean("jct_s"),
        "median_jct_s": float(np.median(jct_s)) if len(jct_s) else None,
        "p99_jct_s": nearest_rank(jct_s, 0.99) if len(jct_s) else None,
        "avg_wait_s": mean("wait_s"),
        "avg_time_to_start_s": mean("time_to_start_s"),
        "total_flow_s": float(jct_s.sum()) if len(jct_s) else None,
        "makespan_s": span_s,
        "gpu_utilization": held / capacity if capacity else None,
        "cluster_throughput": over_time(len(ended) * 3600.0),
        "avg_queue_length": over_time(load.total(load.waiting)),
        "max_queue_length": int(load.waiting.max(initial=0)),
        "preemptions": int(ended["preemptions"].sum()),
    }


def recorded_gpu_seconds(
    work_gpu_s: float, load: RecordedLoad, installed_gpus: int
) -> dict[str, float]:
    """Returns the use of the capacity; empty if the record holds more than the cluster has.

    `work_gpu_s` is the work of the jobs that ended; what they held beyond it counts as slowdown.
    """
    held, busy = load.total(load.held), load.waiting > 0
    idle = load.total(load.capacity) - held
    if idle < 0 or load.most_gpus > installed_gpus:
        return {}
    free = np.maximum(load.capacity - load.held, 0.0)
    idle_waiting = min(load.total(np.where(busy, free, 0.0)), idle)
    useful = min(work_gpu_s, held)
    slowdown = held - useful
    return {
        "useful": useful,
        "slowdown": slowdown if slowdown > RELATIVE_TOLERANCE * held else 0.0,
        "switching": 0.0,
        "idle_waiting": idle_waiting,
        "idle_empty": idle - idle_waiting,
        "down": load.total(installed_gpus - load.capacity),
    }
