"""The record of a log as a run: jobs, the numbers of a summary, the use of the cluster.

A job counts if the log names its end and its wait (without a wait and without restarts: its start).
"""

from __future__ import annotations

import numpy as np
import polars as pl

from dovetail.core.job import Bools, Floats
from dovetail.core.trace import ENDS, Recorded, Trace
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.record.metrics import Window, nearest_rank, size_class, with_parts
from dovetail.record.recorded_load import RecordedLoad
from dovetail.record.restarts import RestartCauses, restart_causes


def recorded_wait_s(record: Recorded, submit_s: Floats) -> Floats:
    """Returns the wait of each job since `submit_s`, NaN where the log does not tell it."""
    to_start_s = np.where(record.restarts == 0, record.start_s - submit_s, np.nan)
    wait_s = record.wait_s - record.held_s(submit_s)
    return np.where(np.isfinite(wait_s), wait_s, to_start_s)


def held_again_s(record: Recorded) -> Floats:
    """Returns how long each job was held before runs that were not its first."""
    if record.runs is None:
        return np.zeros(len(record))
    return np.bincount(record.runs.job, record.runs.held_s, len(record)).astype(np.float64)


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
    causes = restart_causes(record)
    told = (causes.untold == 0) | (causes.untold < record.restarts)
    frame = pl.DataFrame(
        {
            "job_id": jobs.job_id,
            "submit_s": submit_s,
            "start_s": start_s,
            "finish_s": np.where(known, record.end_s, np.nan),
            "jct_s": jct_s,
            "time_to_start_s": np.where(np.isfinite(start_s), start_s - submit_s, jct_s),
            "wait_s": np.where(known, wait_s, np.nan),
            "service_gpu_s": np.where(
                known, (jct_s - wait_s - held_again_s(record)) * jobs.asked_gpus, np.nan
            ),
            "slowdown": jct_s / trace.duration_s,
            "preemptions": pl.Series(causes.preemptions).set(pl.Series(~told), None),
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


def recorded_summary(
    jobs: pl.DataFrame, causes: RestartCauses, load: RecordedLoad, window: Window
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
        **causes.of(jobs["jct_s"].is_not_null().to_numpy()),
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
