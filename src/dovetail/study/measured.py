"""What a comparison says beside its table: the row of the record, the answers to the questions of
the first sentence, and how far the replay of the site's scheduler is from the record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from dovetail.algorithms.bounds import Powers
from dovetail.core.job import Floats
from dovetail.record.result import COMPARISON_COLUMNS, RECORDED, Comparison, RunResult
from dovetail.study.comparison_rows import ComparedRow
from dovetail.study.contrasts import Field, Ratio, contrasts, paired
from dovetail.study.on_slurm import on_slurm
from dovetail.study.parallel import ReplayInput
from dovetail.study.recorded import (
    error_of_replay,
    is_from_slurm,
    jct_of,
    record_cautions,
    recorded_run,
    with_hours,
)
from dovetail.study.run import with_bound
from dovetail.study.uncertainty import Interval, Samples, blocks, intervals

COPIED = (
    "median_jct_s",
    "p99_jct_s",
    "avg_wait_s",
    "avg_time_to_start_s",
    "makespan_s",
    "gpu_utilization",
    "x_bound",
    "preemptions",
)
"""The columns of the table that are numbers of the summary."""


@dataclass(frozen=True, slots=True)
class MeasuredRows:
    """The runs of the rows, their samples, and what follows from them, all by the name of a row."""

    rows: Mapping[str, ComparedRow]
    runs: Mapping[str, RunResult]
    samples: Samples
    means: Mapping[str, Interval]
    ratios: Mapping[str, Interval]
    baseline: str
    site: str


@dataclass(frozen=True, slots=True)
class Scenes:
    """The whole trace, its replicates, and how many of them make one unit."""

    whole: ReplayInput
    replicates: Sequence[ReplayInput]
    per_unit: int
    windowed: bool


def interval_columns(mean: Interval, ratio: Interval) -> dict[str, float | None]:
    """Returns the columns of a mean JCT and of its ratio to the baseline."""
    return {
        "avg_jct_s": mean.value,
        "low": mean.low,
        "high": mean.high,
        "ratio_to_baseline": ratio.value,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
    }


def answered(comparison: Comparison, measured: MeasuredRows, scenes: Scenes) -> Comparison:
    """Returns the comparison with its answers, and with the record if the trace has one."""
    whole = scenes.whole
    record = recorded_run(whole.trace, whole.options)
    ratio = _ratio(measured, scenes, record)
    field = Field(
        measured.rows,
        {n: m.value for n, m in measured.means.items()},
        measured.baseline,
        measured.site,
        record is not None,
    )
    found = replace(comparison, contrasts=contrasts(field, ratio))
    if is_from_slurm(whole.trace):
        found = replace(found, notes=[*on_slurm(found), *found.notes])
    if record is None:
        return found
    record = _judged(record, comparison)
    row = _record_row(record, ratio, measured, scenes)
    return replace(
        found,
        results=with_hours({RECORDED: record, **comparison.results}, whole.trace),
        table=pl.concat([row, comparison.table]),
        cautions=[*comparison.cautions, *record_cautions(record, whole.options)],
        replay_error=error_of_replay(
            whole.trace, whole.options, measured.site, record, measured.runs[measured.site]
        ),
    )


def _judged(record: RunResult, comparison: Comparison) -> RunResult:
    """Returns the record with the bound of schedules that only start jobs, if it is one of them."""
    every = comparison.bound.get("all")
    rigid = every.get(Powers().words) if isinstance(every, dict) else None
    is_whole = not record.number("incomplete") and bool(record.gpu_seconds)
    return with_bound(record, max(rigid.values()) if rigid and is_whole else None)


def _record_row(
    record: RunResult, ratio: Ratio, measured: MeasuredRows, scenes: Scenes
) -> pl.DataFrame:
    if scenes.replicates:
        samples = _with_record(measured.samples, scenes)
    else:
        submit_s, jct_s = jct_of(record, scenes.whole.options)
        samples = blocks(submit_s, {RECORDED: jct_s})
    means, _ = intervals(samples, RECORDED, scenes.whole.options.seed)
    against, _ = ratio(RECORDED, measured.baseline)
    row = {
        "policy": RECORDED,
        "kind": RECORDED,
        "forecast": None,
        **interval_columns(means[RECORDED], against),
        **{key: None if scenes.windowed else record.number(key) for key in COPIED},
        "knows": None,
        "powers": None,
    }
    return pl.DataFrame([row], schema=dict(COMPARISON_COLUMNS))


def _ratio(measured: MeasuredRows, scenes: Scenes, record: RunResult | None) -> Ratio:
    """Returns ratios over the same jobs: from blocks of time, or from the replicates."""
    options = scenes.whole.options
    if not scenes.replicates:
        results = {} if record is None else {RECORDED: record}
        return paired({**results, **measured.runs}, options)
    samples = measured.samples if record is None else _with_record(measured.samples, scenes)
    incomplete = record is not None and bool(record.number("incomplete"))

    def ratio(one: str, other: str) -> tuple[Interval, int]:
        jobs = int(samples.jobs[one].sum())
        if incomplete and RECORDED in (one, other):
            return Interval(float("nan")), jobs  # The replicates do not keep the jobs apart.
        _, ratios = intervals(samples, other, options.seed)
        return ratios[one], jobs

    return ratio


def _with_record(samples: Samples, scenes: Scenes) -> Samples:
    """Returns the samples with those of the record: its jobs that were submitted in each unit."""
    flows = [_flow(scene) for scene in scenes.replicates]
    units = np.array(flows).reshape(-1, scenes.per_unit, 2).sum(axis=1)
    silent = samples.silent | ({RECORDED} if samples.silent else set())
    return replace(
        samples,
        flow_s={RECORDED: units[:, 0], **samples.flow_s},
        jobs={RECORDED: units[:, 1], **samples.jobs},
        silent=silent,
    )


def _flow(scene: ReplayInput) -> tuple[float, float]:
    """Returns the sum and the number of the recorded JCTs of a scene."""
    record = recorded_run(scene.trace, scene.options)
    if record is None:
        return 0.0, 0.0
    jct_s: Floats = jct_of(record, scene.options)[1]
    return float(np.nansum(jct_s)), float(np.isfinite(jct_s).sum())
