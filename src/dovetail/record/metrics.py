"""Computes the metrics of a run from its tally: `jobs.csv`, the summary and the splits.

Definitions (DESIGN section 5): JCT = finish - submission. Waiting = all
time without GPUs, also after a preemption; time to start = submission to first start.
Makespan = last finish - first submission. QL, CE and BI are averages over time from the first
submission to the last finish (AFS section 2.2). p99 is the nearest rank. GPU utilization =
GPU-seconds held (a shared GPU once) over capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from dovetail.core.job import Floats, JobTable
from dovetail.core.trace import Trace
from dovetail.core.units import NEVER_S, RELATIVE_TOLERANCE
from dovetail.record.result import SERIES_COLUMNS, SPAN_COLUMNS
from dovetail.record.tally import Segment, Tally

SIZE_CLASSES = ((1, "1"), (4, "2-4"), (8, "5-8"), (32, "9-32"), (2**31, "33+"))
"""GPU-count classes: (largest count, name). Jobs over 4 GPUs are the papers' large ones."""
NO_GPU, LESS_THAN_ONE = "0", "<1"
"""The classes of jobs without GPU, and of jobs on less than one GPU."""


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a run whose submissions the job metrics count.

    `warm_up_s` after the first submission and `drain_s` before the last one are excluded, so that
    the empty cluster at the start and the short queue at the end do not bias the metrics.
    """

    warm_up_s: float = 0.0
    drain_s: float = 0.0

    def rows(self, submit_s: Floats) -> np.ndarray:
        """Returns which jobs count."""
        if not len(submit_s):
            return np.zeros(0, bool)
        low, high = submit_s[0] + self.warm_up_s, submit_s[-1] - self.drain_s
        return np.asarray((submit_s >= low) & (submit_s <= high))


def nearest_rank(values: Floats, q: float) -> float:
    """Returns the q-quantile by nearest rank: the smallest value with at least q below or at it."""
    ordered = np.sort(values)
    return float(ordered[max(0, int(np.ceil(q * len(ordered))) - 1)])


def size_class(gpus: np.ndarray) -> list[str]:
    """Returns the size class of each number of GPUs asked for, parts counted as parts."""
    tops = np.array([0, np.nextafter(1, 0), *(top for top, _ in SIZE_CLASSES)])
    names = [NO_GPU, LESS_THAN_ONE, *(name for _, name in SIZE_CLASSES)]
    return [names[i] for i in np.searchsorted(tops, gpus).tolist()]


def job_frame(trace: Trace, tally: Tally) -> pl.DataFrame:
    """Returns one row per job with the columns of `jobs.csv`."""
    jobs = trace.jobs
    submit, finish = jobs.submit_s, np.array(tally.finish_s)
    start = np.array(tally.start_s)
    ended = np.where(np.isfinite(finish), finish, np.nan)
    jct = ended - submit
    # A job that was cancelled while it waited never started: it waited all its life.
    to_start = np.where(np.isfinite(start), start - submit, jct)
    frame = pl.DataFrame(
        {
            "job_id": jobs.job_id,
            "submit_s": submit,
            "start_s": np.where(np.isfinite(start), start, np.nan),
            "finish_s": ended,
            "jct_s": jct,
            "time_to_start_s": to_start,
            "wait_s": jct - np.array(tally.running_s),
            "service_gpu_s": np.array(tally.service_gpu_s),
            "slowdown": jct / trace.duration_s,
            "preemptions": np.array(tally.preemptions, dtype=np.int64),
            "gpus": jobs.gpus,
            "user": jobs.user.texts(),
            "account": jobs.account.texts(),
            "queue": jobs.queue.texts(),
            "recurrence": jobs.recurrence.texts(),
            "model": jobs.model.texts(),
            "end": tally.how,
            "size_class": size_class(jobs.asked_gpus),
        }
    )
    return with_parts(frame, jobs).fill_nan(None)


def with_parts(frame: pl.DataFrame, jobs: JobTable) -> pl.DataFrame:
    """Returns the rows of `jobs.csv` with the part of a GPU, if some job asks for one."""
    return frame.with_columns(gpu_part=pl.Series(jobs.gpu_part)) if jobs.has_parts else frame


def series_frame(tally: Tally) -> pl.DataFrame:
    """Returns the state of the cluster over time, a step function."""
    columns = dict(zip(SERIES_COLUMNS, tally.columns, strict=True))
    kinds = series_kinds(columns["held_gpus"])
    return pl.DataFrame(columns, schema_overrides=kinds, strict=False)


def series_kinds(held_gpus: Floats) -> dict[str, type[pl.DataType]]:
    """Returns the types of `SERIES_COLUMNS`: jobs that hold parts of GPUs make no whole numbers."""
    kinds = dict(SERIES_COLUMNS)
    if (held_gpus % 1).any():
        kinds["held_gpus"] = pl.Float64
    return kinds


def span_frame(jobs: JobTable, segments: Sequence[Segment]) -> pl.DataFrame:
    """Returns one row per stay of a job on GPUs of a node, switching separate from running."""
    rows: list[tuple[object, ...]] = []
    for job, placement, start_s, from_s, end_s, progress_s, _ in segments:
        ids = placement.gpu_ids
        name = jobs.job_id[job]
        moving = min(from_s, end_s)
        rate = progress_s / (end_s - moving) if end_s > moving else 0.0
        if not placement.gpu_part:
            continue
        for i, (node, gpus) in enumerate(placement.spans):
            gpu_ids = list(ids[i]) if ids else None
            if moving > start_s:
                rows.append((name, node, gpus, start_s, moving, 0.0, "switch", gpu_ids))
            if end_s > moving:
                rows.append((name, node, gpus, moving, end_s, rate, "run", gpu_ids))
    frame = pl.DataFrame(rows, schema=dict(SPAN_COLUMNS), orient="row")
    if not jobs.has_parts:
        return frame
    parts = pl.DataFrame({"job_id": jobs.job_id, "gpu_part": jobs.gpu_part})
    return frame.join(parts, on="job_id", how="left", maintain_order="left")


def split_frame(jobs: pl.DataFrame, by: str) -> pl.DataFrame:
    """Returns the job metrics by the values of one column, largest group first."""
    finished = jobs.filter(pl.col("jct_s").is_not_null() & (pl.col(by) != ""))
    jct, wait = pl.col("jct_s"), pl.col("wait_s")
    return (
        finished.group_by(pl.col(by).alias("group"))
        .agg(
            pl.len().cast(pl.Int64).alias("jobs"),
            jct.mean().alias("avg_jct_s"),
            jct.median().alias("median_jct_s"),
            jct.sort().get(((pl.len() * 99 + 99) // 100 - 1).cast(pl.Int64)).alias("p99_jct_s"),
            wait.mean().alias("avg_wait_s"),
            pl.col("time_to_start_s").mean().alias("avg_time_to_start_s"),
            wait.median().alias("median_wait_s"),
            wait.sort().get(((pl.len() * 9 + 9) // 10 - 1).cast(pl.Int64)).alias("p90_wait_s"),
        )
        .sort(["jobs", "group"], descending=[True, False])
    )


def split_frames(jobs: pl.DataFrame, by: Sequence[str]) -> dict[str, pl.DataFrame]:
    """Returns the split by each column, and by queue and size if jobs are in several queues."""
    frames = {column: split_frame(jobs, column) for column in by}
    if jobs.filter(pl.col("queue") != "")["queue"].n_unique() > 1:
        both = pl.concat_str("queue", "size_class", separator=": ").alias("queue_size")
        named = jobs.filter(pl.col("queue") != "").with_columns(both)
        frames["queue_size"] = split_frame(named, "queue_size")
    return frames


def gpu_seconds(tally: Tally) -> dict[str, float]:
    """Returns the use of the GPU-seconds of the installed capacity; the values add up to it.

    useful: progress times requested GPUs. slowdown: what was held beyond that while running
    (negative where sharing or smaller shares did more with less). switching: GPUs held without
    progress, and GPUs prepared for a job that trains without them meanwhile.
    """
    sums = tally.integrals
    gpus, done = tally.gpus, tally.done_s
    useful = sum(d * g for d, g in zip(done, gpus, strict=True))
    switching = sum(
        s.placement.held_gpus * (min(s.from_s, s.end_s) - s.start_s)
        + s.preparing * (s.end_s - min(s.from_s, s.end_s))
        for s in tally.segments
        if s.from_s > s.start_s or s.preparing
    )
    slowdown = sums["held"] - useful - switching
    return {
        "useful": useful,
        # What rounding leaves of a sum of many terms is not a slowdown.
        "slowdown": slowdown if abs(slowdown) > RELATIVE_TOLERANCE * sums["held"] else 0.0,
        "switching": switching,
        "idle_waiting": sums["idle_waiting"],
        "idle_empty": sums["idle_empty"],
        "down": sums["down"],
    }


def fairness(trace: Trace, tally: Tally, jobs: pl.DataFrame) -> float | None:
    """Returns the p99 of finish-time fairness: JCT over the time with a 1/N share (Themis).

    N is the mean number of jobs present over the job's life. Scaling below the request counts
    as linear, so the ideal is never better than what the cluster could give.
    """
    finish = jobs["finish_s"].to_numpy()
    ended = np.isfinite(finish)
    if not ended.any():
        return None
    t, waiting, running, *_ = tally.columns
    present = waiting + running
    area = np.concatenate([[0.0], np.cumsum(np.diff(t) * present[:-1])])

    def until(x: Floats) -> Floats:
        i = np.clip(np.searchsorted(t, x, side="right") - 1, 0, len(t) - 1)
        return np.asarray(area[i] + present[i] * (x - t[i]))

    submit = trace.jobs.submit_s
    # A job shorter than a step of the clock ends as it comes.
    jct = np.where(ended, np.maximum(finish - submit, 1e-9), 1.0)
    mean_present = np.maximum((until(np.where(ended, finish, submit)) - until(submit)) / jct, 1.0)
    share = tally.installed_gpus / mean_present
    asked = np.where(trace.jobs.asked_gpus > 0, trace.jobs.asked_gpus, share)
    ideal = trace.duration_s * asked / np.minimum(asked, share)
    return nearest_rank((jct / ideal)[ended], 0.99)


def summarize(
    trace: Trace, tally: Tally, jobs: pl.DataFrame, window: Window
) -> dict[str, float | int | str | None]:
    """Returns the summary of a run; an undefined number is None."""
    counted = jobs.filter(pl.Series(window.rows(trace.jobs.submit_s), dtype=pl.Boolean))
    done = counted.filter(pl.col("jct_s").is_not_null())
    jct = done["jct_s"].to_numpy()
    span_s = _span_s(trace, tally)
    sums = tally.integrals
    capacity = sums["capacity"]
    deadline = trace.jobs.deadline_s
    with_deadline = np.isfinite(deadline)
    finish = np.array(tally.finish_s)

    def over_time(total: float) -> float | None:
        return total / span_s if span_s > 0 else None

    return {
        "jobs": len(trace),
        "counted_jobs": len(counted),
        "finished": len(jobs) - int(jobs["finish_s"].null_count()),
        "timed_out": tally.how.count("timeout"),
        "cancelled": tally.how.count("cancelled"),
        "avg_jct_s": float(jct.mean()) if len(jct) else None,
        "median_jct_s": float(np.median(jct)) if len(jct) else None,
        "p99_jct_s": nearest_rank(jct, 0.99) if len(jct) else None,
        "avg_wait_s": _mean(done["wait_s"]),
        "avg_time_to_start_s": _mean(done["time_to_start_s"]),
        "total_flow_s": float(jct.sum()) if len(jct) else None,
        "makespan_s": span_s,
        "gpu_utilization": sums["held"] / capacity if capacity else None,
        "resource_utilization": None,
        "cluster_efficiency": tally.integrals_efficiency / capacity if capacity else None,
        "cluster_throughput": over_time((len(jobs) - int(jobs["finish_s"].null_count())) * 3600.0),
        "avg_queue_length": over_time(sums["waiting"]),
        "max_queue_length": int(tally.columns[1].max(initial=0)),
        "avg_blocking_index": over_time(sums["blocking"]),
        "finish_time_fairness": fairness(trace, tally, jobs),
        "preemptions": sum(tally.preemptions),
        "resizes": sum(tally.resizes),
        "migrations": tally.moves,
        "deadline_met": int((finish[with_deadline] <= deadline[with_deadline]).sum())
        if with_deadline.any()
        else None,
        "deadline_jobs": int(with_deadline.sum()),
    }


def _mean(column: pl.Series) -> float | None:
    value = column.mean()
    return float(value) if isinstance(value, int | float) else None


def _span_s(trace: Trace, tally: Tally) -> float:
    finishes: Sequence[float] = [f for f in tally.finish_s if f < NEVER_S]
    if not finishes:
        return 0.0
    return float(max(finishes) - trace.jobs.submit_s[0])
