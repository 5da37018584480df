"""Computes summary statistics of a trace: sizes, run times, ends, arrivals and load."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

from dovetail.core.job import Bools, Floats, Ints, JobTable, Labels
from dovetail.core.trace import ENDS, Trace
from dovetail.core.units import DAY_S, HOUR_S
from dovetail.traces.clock import wall_clock_s
from dovetail.traces.hardware import GpuTypeRow, cluster_of_log, gpu_type_rows
from dovetail.traces.loss import import_sentence
from dovetail.traces.transform import offered_load

DATED = "as the log writes its times, or UTC: no --timezone"
UNDATED = "counted from second 0, taken as a Monday 00:00"
"""The clocks of hours and weekdays where the time zone is not known."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)

CLASSES = ((1, 1), (2, 4), (5, 8), (9, 16), (17, 0))
"""Size classes as the smallest and largest number of GPUs; 0: no upper bound."""

RECURRENT_MIN = 5
"""A job is recurrent if its group has at least this many jobs."""


@dataclass(frozen=True, slots=True)
class SizeRow:
    """The jobs that request one number of GPUs: 0 for those without, below 1 for all on a part of
    one, as the mean of them.
    """

    gpus: float
    jobs: int
    jobs_share: float
    gpu_hours: float
    gpu_hours_share: float


@dataclass(frozen=True, slots=True)
class DurationRow:
    """The run times of one size class, in seconds; `quantiles_s` are at `QUANTILES`."""

    sizes: str
    jobs: int
    mean_s: float
    quantiles_s: tuple[float, ...]
    longest_s: float


@dataclass(frozen=True, slots=True)
class EndRow:
    """The jobs with one status."""

    end: str
    jobs: int
    jobs_share: float
    gpu_hours_share: float


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """Requested GPU-seconds divided by those of a cluster: the mean, and by day of submission."""

    gpus: int
    mean: float
    by_day: tuple[float, ...]
    too_large_jobs: int


LITTLE_OF_LIMIT = 0.25
"""The time limit of a job that runs for less than this share of it is of little use to backfill."""


@dataclass(frozen=True, slots=True)
class LimitSummary:
    """How much of their users' time limits jobs use: the median, and the share that uses little."""

    used_median: float
    used_little_share: float


@dataclass(frozen=True, slots=True)
class ArrivalSummary:
    """Statistics of arrivals by the clock that is named: a time zone, or `DATED` or `UNDATED`.

    `first_hour` is that of `by_hour`, counted from a Monday 00:00.
    """

    clock: str
    first_hour: int
    per_hour: float
    gap_median_s: float
    gap_variation: float
    busiest_hour_jobs: int
    by_hour_of_day: tuple[float, ...]
    by_weekday: tuple[float, ...]
    by_hour: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UtilizationRow:
    """The GPU-seconds that jobs held over those installed: of one GPU type, "" for all.

    A share is None in an hour or on a weekday that does not occur.
    """

    gpu_type: str
    installed_gpus: int
    mean: float
    by_hour_of_day: tuple[float | None, ...]
    by_weekday: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Utilization:
    """What jobs held from the first submission to the last end of a log, by its record.

    The first row is of all jobs. `incomplete_jobs` have no wait or no end, and are not counted.
    """

    from_s: float
    until_s: float
    incomplete_jobs: int
    rows: tuple[UtilizationRow, ...]


@dataclass(frozen=True, slots=True)
class Description:
    """Summary statistics of a trace."""

    name: str
    jobs: int
    users: int
    queues: int
    models: int
    recurrence_groups: int
    recurrent_share: float
    first_submit_s: float
    span_days: float
    gpu_hours: float
    gpus_mean: float
    with_deadline: int
    with_time_limit: int
    limits: LimitSummary | None
    elastic: int
    shareable: int
    sizes: tuple[SizeRow, ...]
    durations: tuple[DurationRow, ...]
    ends: tuple[EndRow, ...]
    arrivals: ArrivalSummary
    load: LoadSummary | None
    gpu_types: tuple[GpuTypeRow, ...]
    cluster: str
    """The `--cluster` that fits the log, "" if it does not tell."""
    counts: dict[str, int]
    imported: str
    """What became of the rows of the log, or that nobody knows."""
    utilization: Utilization | None = None
    """None where the log has no record of starts, or does not tell its cluster."""

    def to_dict(self) -> dict[str, object]:
        """Returns all values in JSON types; an infinite load becomes None."""
        values = asdict(self)
        if self.load is not None and math.isinf(self.load.mean):
            values["load"]["mean"] = None
        return values


def describe(trace: Trace, gpus: int | None = None) -> Description:
    """Returns the statistics of a trace with at least one job; `gpus` is the cluster size."""
    jobs = trace.jobs
    hours = jobs.asked_gpus * trace.duration_s / HOUR_S
    submit = jobs.submit_s
    types = gpu_type_rows(trace)
    groups = np.bincount(jobs.recurrence.codes + 1, minlength=1)[1:]
    return Description(
        name=trace.name,
        jobs=len(trace),
        users=_distinct(jobs.user),
        queues=_distinct(jobs.queue),
        models=_distinct(jobs.model),
        recurrence_groups=int((groups > 0).sum()),
        recurrent_share=float(groups[groups >= RECURRENT_MIN].sum() / len(trace)),
        first_submit_s=float(submit[0]),
        span_days=float(submit[-1] - submit[0]) / DAY_S,
        gpu_hours=float(hours.sum()),
        gpus_mean=float(jobs.asked_gpus.mean()),
        with_deadline=int(np.isfinite(jobs.deadline_s).sum()),
        with_time_limit=int(np.isfinite(jobs.time_limit_s).sum()),
        limits=_limits(trace),
        elastic=int(jobs.elastic.sum()),
        shareable=int(jobs.shareable.sum()),
        sizes=_sizes(trace, hours),
        durations=_durations(trace),
        ends=_ends(trace, hours),
        arrivals=_arrivals(submit, clock_s(trace, submit), _clock(trace)),
        load=None if gpus is None else _load(trace, gpus),
        gpu_types=types,
        cluster=cluster_of_log(trace),
        counts=dict(trace.counts if trace.imported is None else trace.imported.counts),
        imported=import_sentence(trace),
    )


def _limits(trace: Trace) -> LimitSummary | None:
    """Returns how much of their limits jobs use, None if no job has one."""
    limits_s = trace.jobs.time_limit_s
    has = np.isfinite(limits_s) & (limits_s > 0)
    if not has.any():
        return None
    used = trace.duration_s[has] / limits_s[has]
    return LimitSummary(float(np.median(used)), float((used < LITTLE_OF_LIMIT).mean()))


def sizes_of(jobs: JobTable) -> Floats:
    """Returns the size of each job: the GPUs it asks for, rounded up from 1 on."""
    asked = jobs.asked_gpus
    return np.where(asked < 1, asked, np.ceil(asked))


def class_rows(gpus: Floats, low: int, high: int) -> Bools:
    """Returns which jobs are of the size class `low` to `high` GPUs (0: no upper end)."""
    return (gpus >= low) & ((gpus <= high) if high else True)


def class_name(low: int, high: int) -> str:
    """Returns the class as text: 1, 2-4, 17+."""
    return f"{low}+" if not high else str(low) if low == high else f"{low}-{high}"


def _distinct(labels: Labels) -> int:
    codes = np.unique(labels.codes)
    return int((codes >= 0).sum())


def _sizes(trace: Trace, hours: Floats) -> tuple[SizeRow, ...]:
    asked = sizes_of(trace.jobs)
    parts = (asked > 0) & (asked < 1)
    if parts.any():
        asked[parts] = asked[parts].mean()
    sizes, inverse, jobs = np.unique(asked, return_inverse=True, return_counts=True)
    per_size, total = np.bincount(inverse.ravel(), weights=hours), float(hours.sum()) or 1.0
    return tuple(
        SizeRow(int(g) if g == int(g) else g, int(n), float(n / len(trace)), float(h), h / total)
        for g, n, h in zip(sizes.tolist(), jobs, per_size.tolist(), strict=True)
    )


def _durations(trace: Trace) -> tuple[DurationRow, ...]:
    rows = [_duration_row("all", trace.duration_s)]
    asked = sizes_of(trace.jobs)
    for name, chosen in (("0", asked == 0), ("<1", (asked > 0) & (asked < 1))):
        if chosen.any():
            rows.append(_duration_row(name, trace.duration_s[chosen]))
    for low, high in CLASSES:
        chosen = trace.duration_s[class_rows(asked, low, high)]
        if len(chosen):
            rows.append(_duration_row(class_name(low, high), chosen))
    return tuple(rows)


def _duration_row(name: str, seconds: Floats) -> DurationRow:
    quantiles_s = tuple(np.quantile(seconds, QUANTILES).tolist())
    mean_s, longest_s = float(seconds.mean()), float(seconds.max())
    return DurationRow(name, len(seconds), mean_s, quantiles_s, longest_s)


def _ends(trace: Trace, hours: Floats) -> tuple[EndRow, ...]:
    jobs = np.bincount(trace.end, minlength=len(ENDS))
    held = np.bincount(trace.end, weights=hours, minlength=len(ENDS))
    share = held / (float(hours.sum()) or 1.0)
    return tuple(
        EndRow(end, int(jobs[i]), float(jobs[i] / len(trace)), float(share[i]))
        for i, end in enumerate(ENDS)
        if jobs[i]
    )


def clock_s(trace: Trace, times_s: Floats) -> Floats:
    """Returns times of a trace in seconds since a Monday 00:00 on the clocks of its site."""
    origin = trace.imported
    epoch_s, zone = (None, "") if origin is None else (origin.epoch_s, origin.zone)
    return wall_clock_s(times_s, epoch_s, zone)


def _clock(trace: Trace) -> str:
    """Returns the clock of hours and weekdays as a text."""
    origin = trace.imported
    if origin is None or origin.epoch_s is None:
        return UNDATED
    return origin.zone or DATED


def _arrivals(submit: Floats, on_clock_s: Floats, clock: str) -> ArrivalSummary:
    hour = (on_clock_s // HOUR_S).astype(np.int64)
    first_hour = int(hour.min())
    by_hour = np.bincount(hour - first_hour)
    gaps = np.diff(submit)
    hours = np.arange(first_hour, first_hour + len(by_hour))
    day_hours, week_hours = hours % 24, hours // 24 % 7
    mean_gap = float(gaps.mean()) if len(gaps) else 0.0
    return ArrivalSummary(
        clock=clock,
        first_hour=first_hour,
        per_hour=len(submit) / len(by_hour),
        gap_median_s=float(np.median(gaps)) if len(gaps) else 0.0,
        gap_variation=float(gaps.std() / mean_gap) if mean_gap else 0.0,
        busiest_hour_jobs=int(by_hour.max()),
        by_hour_of_day=_mean_by(by_hour, day_hours, 24),
        by_weekday=_mean_by(by_hour, week_hours, 7),
        by_hour=tuple(by_hour.tolist()),
    )


def _mean_by(jobs: Ints, kind: Ints, kinds: int) -> tuple[float, ...]:
    """Returns jobs an hour for each kind of hour, 0 for a kind that does not occur."""
    total = np.bincount(kind, weights=jobs, minlength=kinds)
    hours = np.bincount(kind, minlength=kinds)
    return tuple((total / np.maximum(hours, 1)).tolist())


def gpu_seconds_by_day(trace: Trace) -> Floats:
    """Returns the requested GPU-seconds by day of submission, counted from the first one."""
    day = ((trace.jobs.submit_s - trace.jobs.submit_s[0]) // DAY_S).astype(np.int64)
    return np.bincount(day, weights=trace.jobs.asked_gpus * trace.duration_s).astype(np.float64)


def _load(trace: Trace, gpus: int) -> LoadSummary:
    by_day = gpu_seconds_by_day(trace) / (gpus * DAY_S)
    too_large = int((trace.jobs.min_gpus > gpus).sum())
    return LoadSummary(gpus, offered_load(trace, gpus), tuple(by_day.tolist()), too_large)
