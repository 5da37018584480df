"""The record of a log as a row of a comparison, and the replay of the site's scheduler beside it.

The row has the jobs of the runs, so that all rows are paired. It is never a policy that could be
chosen: it is what happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from dovetail.core.cluster import Cluster
from dovetail.core.job import Floats
from dovetail.core.policy import name_of, parse_policy, reserves
from dovetail.core.trace import Trace
from dovetail.core.units import DAY_S, HOUR_S
from dovetail.record.free_gpus import Side, TypedCapacity
from dovetail.record.metrics import span_frame, split_frame, split_frames
from dovetail.record.recorded import (
    complete,
    recorded_gpu_seconds,
    recorded_jobs,
    recorded_summary,
)
from dovetail.record.recorded_load import CapacitySteps, recorded_load
from dovetail.record.replay_error import ReplayError, replay_error
from dovetail.record.restarts import restart_causes
from dovetail.record.result import POLICY, RECORDED, WEEKDAYS, RunResult
from dovetail.study.comparison_rows import ComparedRow
from dovetail.study.options import Options
from dovetail.study.run import SPLITS, mean_interval, placeable
from dovetail.traces.clock import wall_clock_s
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
    load = recorded_load(jobs, trace.recorded, capacity_steps(options))
    interval = mean_interval(jobs, options)
    ended = jobs["jct_s"].is_not_null().to_numpy()
    work_gpu_s = float((trace.duration_s * trace.jobs.asked_gpus)[ended].sum())
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
            **recorded_summary(jobs, restart_causes(trace.recorded), load, options.window),
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
        splits=split_frames(jobs, SPLITS),
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


INTERRUPTIONS = {
    "preemptions": "by preemption",
    "node_failures": "with a failed node",
    "requeues": "by a requeue",
    "restarts_untold": "for a reason that it does not tell",
}
"""The keys of a record's summary that count lost GPUs, and their words."""


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


def interrupted(trace: Trace) -> list[str]:
    """Returns why jobs of the log lost their GPUs before their end, if not by preemption alone."""
    if trace.recorded is None:
        return []
    causes = restart_causes(trace.recorded).of(np.ones(len(trace), np.bool_))
    counts = {words: causes[key] or 0 for key, words in INTERRUPTIONS.items()}
    if sum(counts.values()) == counts["by preemption"]:
        return []
    parts = ", ".join(f"{n:,} {words}" for words, n in counts.items() if n)
    return [
        f"Jobs of the log lost their GPUs {sum(counts.values()):,} times before their end: "
        f"{parts}. Only those by preemption count as preemptions of the record."
    ]


def unlisted(trace: Trace) -> list[str]:
    """Returns how the record draws jobs that restarted, if the log does not list their runs."""
    record = trace.recorded
    if record is None:
        return []
    jobs = int(((record.restarts > 0) & ~record.is_listed).sum())
    if not jobs:
        return []
    return [
        f"The log does not list the runs of {jobs:,} restarted job{'s' * (jobs != 1)}: over time "
        "the record draws the wait first and the GPUs held at the end, so it may exceed the GPUs "
        "that there are."
    ]


def record_notes(trace: Trace) -> list[str]:
    """Returns what is said of the record below a comparison."""
    return [*held_back(trace), *interrupted(trace), *unlisted(trace)]


def by_hour(jobs: pl.DataFrame, clock_s: Floats) -> dict[str, pl.DataFrame]:
    """Returns the job metrics by the hour of the day and the weekday of the submission.

    `clock_s` has the submissions in seconds since a Monday's midnight on the clocks of the site.
    """
    hours = (clock_s % DAY_S // HOUR_S).astype(np.int64).tolist()
    days = (clock_s // DAY_S % 7).astype(np.int64).tolist()
    named = jobs.with_columns(
        pl.Series("hour", [f"{hour:02}" for hour in hours], pl.String),
        pl.Series("weekday", [WEEKDAYS[day] for day in days], pl.String),
    )
    return {by: split_frame(named, by).sort("group") for by in ("hour", "weekday")}


def with_hours(results: Mapping[str, RunResult], trace: Trace) -> dict[str, RunResult]:
    """Returns the results with the splits by hour and weekday, by the clocks of the site."""
    origin = trace.imported
    epoch_s, zone = (None, "") if origin is None else (origin.epoch_s, origin.zone)
    found = {}
    for name, result in results.items():
        clock_s = wall_clock_s(result.jobs["submit_s"].to_numpy(), epoch_s, zone)
        found[name] = replace(result, splits={**result.splits, **by_hour(result.jobs, clock_s)})
    return found


SLURM = "slurm"
"""The name of the log format of sacct, and of the policy that is Slurm's scheduler."""


def is_from_slurm(trace: Trace) -> bool:
    """True if the trace has the record of a cluster that Slurm runs."""
    return (
        trace.recorded is not None
        and trace.imported is not None
        and set(trace.imported.format.split(", ")) == {SLURM}
    )


def site_policy(trace: Trace) -> str:
    """Returns the policy that a site probably runs: Slurm's for a log of sacct."""
    return SLURM if is_from_slurm(trace) else "backfill"


def with_site_policy(policies: Sequence[str], trace: Trace) -> Sequence[str]:
    """Returns the policies, and that of the site if the log tells it: Slurm's for sacct."""
    if not is_from_slurm(trace) or any(name_of(parse_policy(p)) == SLURM for p in policies):
        return policies
    return [*policies, SLURM]


def site_cautions(site: str, cluster: Cluster) -> list[str]:
    """Returns what must be said first of a site whose slurm.conf nobody gave."""
    if parse_policy(site) != parse_policy(SLURM) or cluster.queues or cluster.qos:
        return []
    return [
        "No slurm.conf was given, so the scheduler of the site is slurm with Slurm's defaults; "
        "`dovetail cluster slurm.conf` makes the site's own."
    ]


def site_of(rows: Mapping[str, ComparedRow], baseline: str, trace: Trace) -> str:
    """Returns the policy that stands for the site's scheduler if none is named.

    It is Slurm's for a log of sacct, else the first that reserves, as backfill does, else the
    baseline.
    """
    if is_from_slurm(trace):
        own = [r.name for r in rows.values() if r.kind == POLICY and name_of(r.policy) == SLURM]
        if own:
            return own[0]
    planners = (r.name for r in rows.values() if r.kind == POLICY and reserves(r.policy))
    return next(planners, baseline)


def error_of_replay(
    trace: Trace, options: Options, site: str, record: RunResult, replayed: RunResult
) -> ReplayError | None:
    """Returns how far the replay of the site's scheduler is from the record."""
    kept, _ = placeable(trace, options)
    types = dict(zip(kept.jobs.job_id, kept.jobs.gpu_type.texts(), strict=True))
    return replay_error(
        site,
        Side(record.jobs, record.series).wanting(types),
        Side(replayed.jobs, replayed.series).wanting(types),
        kept.jobs.reservation.texts(),
        typed_capacity(options),
    )


def typed_capacity(options: Options) -> TypedCapacity:
    """Returns the GPUs of each type over time; no types if the cluster names none."""
    clusters = [options.cluster]
    times = [float("-inf")]
    for at_s, changes in options.capacity:
        clusters.append(clusters[-1].with_nodes(changes))
        times.append(at_s)
    names = dict.fromkeys(g.gpu_type for g in options.cluster.groups if g.gpu_type)
    present = {name: [_gpus_of(c, name) for c in clusters] for name in names}
    return TypedCapacity(np.array(times), {n: np.array(g, np.float64) for n, g in present.items()})


def _gpus_of(cluster: Cluster, gpu_type: str) -> int:
    nodes = range(cluster.nodes)
    return sum(cluster.capacity_of(n) for n in nodes if cluster.group_of(n).gpu_type == gpu_type)


def jct_of(result: RunResult, options: Options) -> tuple[Floats, Floats]:
    """Returns the submissions and JCTs of the counted jobs, NaN for a job without an end."""
    submit_s = result.jobs["submit_s"].to_numpy()
    rows = options.window.rows(submit_s)
    return submit_s[rows], result.jobs["jct_s"].cast(pl.Float64).to_numpy()[rows]
