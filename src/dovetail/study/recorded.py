"""The record of a log as a row of a comparison, and the replay of the site's scheduler beside it.

The row has the jobs of the runs, so that all rows are paired. It is never a policy that could be
chosen: it is what happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from dovetail.core.job import Floats
from dovetail.core.policy import reserves
from dovetail.core.trace import Trace
from dovetail.core.units import DAY_S, HOUR_S
from dovetail.record.metrics import span_frame, split_frame
from dovetail.record.recorded import (
    CapacitySteps,
    complete,
    recorded_gpu_seconds,
    recorded_jobs,
    recorded_load,
    recorded_summary,
)
from dovetail.record.replay_error import ReplayError, Side, replay_error
from dovetail.record.result import POLICY, RECORDED, RunResult
from dovetail.study.comparison_rows import ComparedRow
from dovetail.study.options import Options
from dovetail.study.run import SPLITS, mean_interval, placeable
from dovetail.version import __version__


def recorded_run(trace: Trace, options: Options) -> RunResult | None:
    """Returns the record of the jobs that a run on the cluster has, None if there is none."""
    if trace.recorded is None or not complete(trace.recorded, trace.jobs.submit_s).any():
        return None
    trace, left_out = placeable(trace, options)
    assert trace.recorded is not None
    jobs = recorded_jobs(trace, trace.recorded)
    if not jobs["jct_s"].count():
        return None
    load = recorded_load(jobs, capacity_steps(options))
    interval = mean_interval(jobs, options)
    ended = jobs["jct_s"].is_not_null().to_numpy()
    work_gpu_s = float((trace.duration_s * trace.jobs.gpus)[ended].sum())
    return RunResult(
        manifest={
            "version": __version__,
            "policy": RECORDED,
            "name": RECORDED,
            "knows": [],
            "powers": [],
            "trace": {"name": trace.name, "jobs": len(trace), "left_out": left_out},
            **options.manifest(),
            "forecast": None,
        },
        summary={
            "policy": RECORDED,
            **recorded_summary(jobs, load, options.window),
            "avg_jct_low_s": interval.low,
            "avg_jct_high_s": interval.high,
            "left_out": left_out,
            "incomplete": len(jobs) - int(ended.sum()),
            "held_gpus_most": load.most_gpus,
        },
        jobs=jobs,
        series=load.frame,
        spans=span_frame(trace.jobs, ()),
        gpu_seconds=recorded_gpu_seconds(work_gpu_s, load, options.cluster.installed_gpus),
        splits={by: split_frame(jobs, by) for by in SPLITS},
    )


def capacity_steps(options: Options) -> CapacitySteps:
    """Returns the GPUs that are present over time: all but those of nodes that are down."""
    cluster = options.cluster
    times, gpus = [float("-inf")], [cluster.gpus]
    for at_s, changes in options.capacity:
        cluster = cluster.with_nodes(changes)
        times.append(at_s)
        gpus.append(cluster.gpus)
    return np.array(times), np.array(gpus, dtype=np.float64)


def record_cautions(record: RunResult, options: Options) -> list[str]:
    """Returns what qualifies every comparison with the record."""
    texts = []
    most, gpus = int(record.number("held_gpus_most") or 0), options.cluster.installed_gpus
    if most > gpus:
        each = max(options.cluster.installed)
        fits = f"--cluster {-(-most // each)}x{each} has enough"
        texts.append(
            f"The log holds up to {most:,} GPUs at once and the cluster given has {gpus:,}: the "
            f"replays are of a smaller cluster than the log ({fits})."
        )
    incomplete = int(record.number("incomplete") or 0)
    if incomplete:
        texts.append(
            f"{incomplete:,} of {len(record.jobs):,} jobs have no complete record (an end and a "
            "wait): they are left out wherever a policy is compared with the record."
        )
    return texts


def held_back(trace: Trace) -> list[str]:
    """Returns what a comparison leaves as it was: when jobs that were held became eligible."""
    if trace.recorded is None:
        return []
    held_s = trace.recorded.held_s(trace.jobs.submit_s)
    held = int((held_s > 0).sum())
    if not held:
        return []
    return [
        f"{held:,} of {len(trace):,} jobs were held after their submission, "
        f"{float(held_s.sum()) / HOUR_S:,.1f} h in all: every row counts from when a job became "
        "eligible. The log does not say what a job waited for, so no policy makes it eligible "
        "sooner."
    ]


def by_hour(jobs: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Returns the job metrics by the hour of the day and the weekday of the submission.

    They are those of the clock of the trace, whose second 0 is a Monday's midnight where it came
    from dates.
    """
    hours = (pl.col("submit_s") % DAY_S / HOUR_S).floor().cast(pl.Int64)
    days = (pl.col("submit_s") / DAY_S).floor().cast(pl.Int64) % 7
    named = jobs.with_columns(
        hours.cast(pl.String).str.zfill(2).alias("hour"), days.cast(pl.String).alias("weekday")
    )
    return {by: split_frame(named, by).sort("group") for by in ("hour", "weekday")}


def with_hours(results: Mapping[str, RunResult]) -> dict[str, RunResult]:
    """Returns the results with the splits by hour and weekday."""
    return {
        name: replace(result, splits={**result.splits, **by_hour(result.jobs)})
        for name, result in results.items()
    }


def site_of(rows: Mapping[str, ComparedRow], baseline: str) -> str:
    """Returns the policy that stands for the site's scheduler if none is named.

    It is the first that reserves, as the backfill of Slurm does, else the baseline.
    """
    planners = (r.name for r in rows.values() if r.kind == POLICY and reserves(r.policy))
    return next(planners, baseline)


def error_of_replay(
    trace: Trace, options: Options, site: str, record: RunResult, replayed: RunResult
) -> ReplayError | None:
    """Returns how far the replay of the site's scheduler is from the record."""
    kept, _ = placeable(trace, options)
    return replay_error(
        site,
        Side(record.jobs, record.series),
        Side(replayed.jobs, replayed.series),
        kept.jobs.reservation.texts(),
    )


def jct_of(result: RunResult, options: Options) -> tuple[Floats, Floats]:
    """Returns the submissions and JCTs of the counted jobs, NaN for a job without an end."""
    submit_s = result.jobs["submit_s"].to_numpy()
    rows = options.window.rows(submit_s)
    return submit_s[rows], result.jobs["jct_s"].cast(pl.Float64).to_numpy()[rows]
