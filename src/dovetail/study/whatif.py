"""Answers what-if questions: many settings on one trace, each paired with the base.

Means and shares are over the jobs that run whole in every row: those that fit every cluster and
that no time limit cuts. Otherwise a row that kills or leaves out its longest jobs would look best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from dovetail.control.loop import check_needs
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.job import Bools, Floats
from dovetail.core.policy import Policy, name_of, parse_policy, spell
from dovetail.core.trace import ENDS, TIMEOUT, Trace
from dovetail.core.units import HOUR_S, MINUTE_S
from dovetail.forecast.available import lengths_words, resolved
from dovetail.forecast.forecasts import parse_forecast
from dovetail.record.metrics import nearest_rank
from dovetail.study.cells import CellOutcome, CellRunner, Premise, scene_of
from dovetail.study.changes import GridCell, check_queues
from dovetail.study.demand import widened
from dovetail.study.options import Options
from dovetail.study.parallel import Progress
from dovetail.study.prices import GpuPrices
from dovetail.study.quotas import bound_above
from dovetail.study.run import granted
from dovetail.study.spot_effect import spot_effect, spot_note
from dovetail.study.uncertainty import Interval, Samples, blocks, intervals
from dovetail.study.whatif_notes import (
    assumptions,
    cautions,
    replay_caution,
    stop_notes,
    unused_gpus,
)
from dovetail.study.whatif_split import check_named, split_of

SOON_S = 10 * MINUTE_S
"""A one-GPU job that starts within this time is one that its owner waits for at the desk."""
LEFT_OUT_MAX = 0.01
"""The share of jobs or GPU-hours left out that the first line must say."""

WHATIF_COLUMNS: Mapping[str, type[pl.DataType]] = {
    "change": pl.String,
    "policy": pl.String,
    "nodes": pl.Int64,
    "gpus": pl.Int64,
    "avg_jct_s": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "ratio_to_base": pl.Float64,
    "ratio_low": pl.Float64,
    "ratio_high": pl.Float64,
    "avg_wait_s": pl.Float64,
    "p90_wait_s": pl.Float64,
    "one_gpu_jobs_in_10_min": pl.Float64,
    "gpu_utilization": pl.Float64,
    "cut_jobs": pl.Int64,
    "cut_jobs_gpu_h": pl.Float64,
    "cut_jobs_held_gpu_h": pl.Float64,
    "left_out_jobs": pl.Int64,
    "left_out_gpu_h": pl.Float64,
    "preemptions": pl.Int64,
    "spot_jobs": pl.Int64,
    "spot_stops": pl.Int64,
    "spot_stopped_gpu_h": pl.Float64,
    "spot_ratio_to_base": pl.Float64,
    "others_ratio_to_base": pl.Float64,
    "cost_per_month": pl.Float64,
    "extra_cost_per_month": pl.Float64,
    "cost_per_gpu_h_used": pl.Float64,
    "cost_per_gpu_h_useful": pl.Float64,
}
"""The columns of `Whatif.table`, one row per cell, the base first.

`low` and `high` bound `avg_jct_s`, `ratio_low` and `ratio_high` bound `ratio_to_base`, at 95 %.
`cut_jobs_gpu_h` are the GPU-hours that these jobs take in the log, `cut_jobs_held_gpu_h` those that
they hold here until they are killed. `spot_stopped_gpu_h` is what stops cost spot jobs. Costs are
null without prices, what spot is without a spot tier.
"""


@dataclass(frozen=True)
class Whatif:
    """The rows of a grid, and what decides and limits them: the `first` notes before all.

    `split` has the waits by name, if they were asked for.
    """

    table: pl.DataFrame
    notes: tuple[str, ...]
    first: int
    split: pl.DataFrame | None = None


def check_cells(premise: Premise, cells: Sequence[GridCell]) -> None:
    """Raises InputError before anything runs, if a cell cannot be simulated."""
    trace, options = premise.trace, premise.options
    if not len(trace):
        raise InputError("trace", "it contains no usable job")
    check_queues(trace, cells)
    sizes = {tuple((g.nodes, g.gpus_per_node) for g in c.setting.cluster.groups) for c in cells}
    if options.capacity and len(sizes) > 1:
        raise InputError(
            "--capacity",
            "the file names nodes by number, and other clusters have other numbers",
            "leave --capacity out, or keep the cluster as it is",
        )
    knows: dict[tuple[float | None, str], frozenset[str]] = {}
    base = cells[0].setting.cluster
    for cell in cells:
        jobs, policy, own = scene_of(premise, cell.setting)
        _check_heeded(cell, base, policy)
        limit_s, told = cell.setting.limit_s, resolved(own.forecast, policy, jobs.jobs)
        if (limit_s, told) not in knows:
            knows[limit_s, told] = granted(parse_forecast(told, jobs, options.seed))
        check_needs(policy, knows[limit_s, told], options.without)


def _check_heeded(cell: GridCell, base: Cluster, policy: Policy) -> None:
    """Raises InputError for a guarantee that the policy would ignore."""
    promised = {q.name: q.guaranteed for q in cell.setting.cluster.queues}
    changed = promised != {q.name: q.guaranteed for q in base.queues} and any(promised.values())
    if changed and name_of(policy) != "tenancy":
        raise InputError(
            "--guarantee",
            f"{name_of(policy)} heeds no guarantee",
            f"put tenants around it: --policies tenancy:inner={name_of(policy)}",
        )


def whatif(
    premise: Premise,
    cells: Sequence[GridCell],
    prices: GpuPrices | None = None,
    *,
    processes: int = 0,
    progress: Progress | None = None,
    by: str = "",
) -> Whatif:
    """Returns the table of the cells, of which the first is the base. Raises InputError.

    `processes` is the number of worker processes, 0 for one per core; the result does not depend
    on it. `by` splits the waits: one of `SPLITS`.
    """
    check_named(premise.trace, by)
    check_cells(premise, cells)
    with CellRunner(premise, processes, [c.setting.policy for c in cells]) as runner:
        outcomes = runner.run(cells, progress)
    return tabulate(premise, cells, outcomes, prices, by)


def tabulate(
    premise: Premise,
    cells: Sequence[GridCell],
    outcomes: Sequence[CellOutcome],
    prices: GpuPrices | None,
    by: str = "",
) -> Whatif:
    """Returns the table of outcomes."""
    trace, options = premise.trace, premise.options
    counted = _whole(trace, options, cells, outcomes)
    samples = _samples(trace, cells, outcomes, counted)
    means, ratios = intervals(samples, cells[0].label, options.seed)
    for cell, outcome in zip(cells, outcomes, strict=True):
        if outcome.draws:
            own = [_mean_jct(draw, counted) for draw in outcome.draws]
            # Every draw is paired with the same base, so its ratios differ as its means do.
            means[cell.label] = widened(means[cell.label], own)
            ratios[cell.label] = widened(ratios[cell.label], own)
    effects = [spot_effect(premise, cells, outcomes, at) for at in range(len(cells))]
    rows = [
        {
            **_setting_columns(cell),
            **_interval_columns(means[cell.label], ratios[cell.label]),
            **_waits(trace, outcome, counted),
            **_missing(trace, outcome),
            "preemptions": int(outcome.stops.sum()),
            **(effect.columns() if effect is not None else {}),
            **_costs(cell.setting.cluster, cells[0].setting.cluster, outcome, prices),
        }
        for cell, outcome, effect in zip(cells, outcomes, effects, strict=True)
    ]
    table = pl.DataFrame(rows, schema=dict(WHATIF_COLUMNS))
    notes, first = _notes(premise, cells, outcomes, table, samples, int(counted.sum()))
    pairs = zip(cells, effects, strict=True)
    spots = tuple(spot_note(premise, cell, found) for cell, found in pairs if found is not None)
    split = split_of(trace, by, cells, outcomes, counted) if by else None
    return Whatif(table, (*notes, *spots), first, split)


def _whole(
    trace: Trace, options: Options, cells: Sequence[GridCell], outcomes: Sequence[CellOutcome]
) -> Bools:
    """Returns the jobs that count: in the window, and whole in every row. Raises InputError."""
    counted = options.window.rows(trace.jobs.submit_s)
    for cell, outcome in zip(cells, outcomes, strict=True):
        if outcome.left_out.all():
            raise InputError(
                "whatif", f"no job fits the cluster of '{cell.label}'", "use a larger --cluster"
            )
        counted = counted & ~outcome.left_out & ~outcome.cut & np.isfinite(outcome.jct_s)
    if not counted.any():
        raise InputError(
            "whatif", "no job runs whole in every row", "ask for smaller changes, one at a time"
        )
    return np.asarray(counted)


def _samples(
    trace: Trace, cells: Sequence[GridCell], outcomes: Sequence[CellOutcome], counted: Bools
) -> Samples:
    submit_s = trace.jobs.submit_s[counted]
    pairs = zip(cells, outcomes, strict=True)
    return blocks(submit_s, {cell.label: outcome.jct_s[counted] for cell, outcome in pairs})


def _setting_columns(cell: GridCell) -> dict[str, object]:
    setting = cell.setting
    return {
        "change": cell.label,
        "policy": spell(parse_policy(setting.policy)),
        "nodes": setting.cluster.nodes,
        "gpus": setting.cluster.installed_gpus,
    }


def _interval_columns(mean: Interval, ratio: Interval) -> dict[str, float | None]:
    return {
        "avg_jct_s": mean.value,
        "low": mean.low,
        "high": mean.high,
        "ratio_to_base": ratio.value,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
    }


def _mean_jct(outcome: CellOutcome, counted: Bools) -> float:
    return float(np.nanmean(outcome.jct_s[counted]))


def _waits(trace: Trace, outcome: CellOutcome, counted: Bools) -> dict[str, float | None]:
    """Returns the waits of the counted jobs, each the mean over the draws of the cell."""
    single = counted & (trace.jobs.asked_gpus == 1)
    wait_s, soon = [], []
    for draw in outcome.each:
        has = np.isfinite(draw.wait_s)
        wait_s.append(draw.wait_s[counted & has])
        soon.append(draw.time_to_start_s[single & has] <= SOON_S)
    return {
        "avg_wait_s": float(np.mean([one.mean() for one in wait_s])),
        "p90_wait_s": float(np.mean([nearest_rank(one, 0.9) for one in wait_s])),
        "one_gpu_jobs_in_10_min": (
            float(np.mean([one.mean() for one in soon])) if all(map(len, soon)) else None
        ),
        "gpu_utilization": outcome.gpu_utilization,
    }


def number_of(number: int, noun: str) -> str:
    """Returns `1 job`, `2,000 jobs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:,.1f}"


def gpu_hours(trace: Trace, rows: Bools) -> float:
    """Returns the GPU-hours of work of some jobs, as the log has them."""
    work: Floats = (trace.duration_s * trace.jobs.asked_gpus)[rows]
    return float(work.sum()) / HOUR_S


def _missing(trace: Trace, outcome: CellOutcome) -> dict[str, float]:
    return {
        "cut_jobs": int(outcome.cut.sum()),
        "cut_jobs_gpu_h": gpu_hours(trace, outcome.cut),
        "cut_jobs_held_gpu_h": outcome.cut_held_gpu_s / HOUR_S,
        "left_out_jobs": int(outcome.left_out.sum()),
        "left_out_gpu_h": gpu_hours(trace, outcome.left_out),
    }


def _costs(
    cluster: Cluster, base: Cluster, outcome: CellOutcome, prices: GpuPrices | None
) -> dict[str, float | None]:
    """Returns what the cluster costs a month, and per GPU-hour held and per useful one."""
    if prices is None:
        return {}
    spent = prices.cluster_per_h(cluster) * outcome.lasted_s
    per_month = prices.cluster_per_month(cluster)
    return {
        "cost_per_month": per_month,
        "extra_cost_per_month": per_month - prices.cluster_per_month(base),
        "cost_per_gpu_h_used": spent / outcome.held_gpu_s if outcome.held_gpu_s else None,
        "cost_per_gpu_h_useful": spent / outcome.useful_gpu_s if outcome.useful_gpu_s else None,
    }


def _notes(
    premise: Premise,
    cells: Sequence[GridCell],
    outcomes: Sequence[CellOutcome],
    table: pl.DataFrame,
    samples: Samples,
    counted: int,
) -> tuple[tuple[str, ...], int]:
    """Returns the notes, and how many of them come before the table."""
    trace = premise.trace
    notes = [
        *left_out_warnings(trace, table),
        *unused_gpus(premise, cells),
        premise_sentence(premise, cells),
        *cautions(premise, cells),
        *assumptions(premise, cells),
        *replay_caution(trace, outcomes[0]),
    ]
    first = len(notes)
    base = cells[0].setting.cluster
    for cell in cells[1:]:
        bounds = bound_above(base, cell.setting.cluster)
        notes += [f"'{cell.label}': {text}, so it cannot use it all." for text in bounds]
    if counted < len(trace):
        notes.append(
            f"Means, waits and shares are over the {counted:,} of {len(trace):,} jobs that run "
            "whole in every row; GPUs held and costs are over all."
        )
    notes += cut_notes(premise, list(zip(cells, outcomes, strict=True)))
    notes += stop_notes(cells, outcomes)
    if samples.silent:
        whom = ", ".join(cell.label for cell in cells if cell.label in samples.silent)
        # The rest of the reason is advice for `compare`.
        notes.append(f"No interval for {whom}: {samples.why_not.partition(';')[0]}.")
    if len(samples.silent) < len(samples.flow_s):
        notes.append(
            f"95 % intervals: bootstrap over {samples.units} blocks of "
            f"{samples.unit_s / 86400:.2g} days, paired with '{cells[0].label}'."
        )
    return tuple(notes), first


def cluster_words(cluster: Cluster) -> str:
    """Returns a cluster as `13x4:a100 + 7x4:v100`."""
    sizes = (f"{g.size}{f':{g.gpu_type}' if g.gpu_type else ''}" for g in cluster.groups)
    return " + ".join(sizes)


def premise_sentence(premise: Premise, cells: Sequence[GridCell]) -> str:
    """Returns what all answers rest on: users do not react, the defaults in force, the limits."""
    setting = cells[0].setting
    cluster = cluster_words(setting.cluster)
    name = spell(parse_policy(setting.policy)).partition(":")[0]
    others = any(cell.setting.demand != 1 for cell in cells)
    rows = "every row of the log's demand" if others else "every row"
    base, jobs = parse_policy(setting.policy), premise.trace.jobs
    lengths = lengths_words(base, premise.options.forecast, jobs)
    text = (
        f"Users do not react: the same {len(premise.trace):,} jobs are submitted at the same times "
        f"in {rows}. Base: {name} on {cluster}, job lengths: {lengths}."
    )
    if premise.defaults:
        text += f" By default: {', '.join(premise.defaults)}."
    limits = {cell.setting.limit_s for cell in cells} - {None, float("inf")}
    return " ".join(
        [text, *(_limited(premise, limit_s) for limit_s in sorted(filter(None, limits)))]
    )


def _limited(premise: Premise, limit_s: float) -> str:
    """Returns what a time limit does to the jobs that run longer in the log."""
    trace = premise.trace
    longer = np.minimum(trace.duration_s, trace.jobs.time_limit_s) > limit_s
    hours = _hours(gpu_hours(trace, longer))
    fate = "keep their own limits" if premise.exempt else "are killed at it and not resubmitted"
    return (
        f"A limit of {limit_s / HOUR_S:g} h: {number_of(int(longer.sum()), 'longer job')} of "
        f"{hours} GPU-hours {fate}{'' if premise.exempt else ', as Slurm does'}."
        f"{_limits_before(trace, limit_s)}"
    )


def _limits_before(trace: Trace, limit_s: float) -> str:
    """Returns how many jobs had a longer time limit or none, "" if limits say nothing."""
    own_s = trace.jobs.time_limit_s
    without = int(np.isinf(own_s).sum())
    more = int((own_s > limit_s).sum()) - without
    if not more and (not without or without == len(trace)):
        return ""
    return (
        f" {number_of(more, 'job')} had a longer limit and {without:,} none of their own: Slurm "
        "may refuse or hold the former until their users ask for less, here all are submitted."
    )


def left_out_warnings(trace: Trace, table: pl.DataFrame) -> list[str]:
    """Returns which rows leave jobs out, as a warning where it is more than may be ignored."""
    rows_of: dict[tuple[int, float], list[str]] = {}
    for change, jobs, hours in table.select(
        "change", "left_out_jobs", "left_out_gpu_h"
    ).iter_rows():
        rows_of.setdefault((jobs, hours), []).append(change)
    whole_h = gpu_hours(trace, np.ones(len(trace), bool))
    warnings = []
    for (jobs, hours), changes in rows_of.items():
        if not jobs:
            continue
        whom = "Every row" if len(changes) == len(table) else "; ".join(changes)
        text = (
            f"{whom}: {number_of(jobs, 'job')} ({jobs / len(trace):.1%} of the jobs, "
            f"{hours / whole_h:.1%} of the GPU-hours) can never fit, left out"
        )
        if max(jobs / len(trace), hours / whole_h) > LEFT_OUT_MAX:
            text = f"WARNING: {text} (use a --cluster with the sizes and types that they ask for)"
        warnings.append(f"{text}.")
    return warnings


def cut_notes(premise: Premise, rows: Sequence[tuple[GridCell, CellOutcome]]) -> list[str]:
    """Returns what time limits do to longer jobs: how many are killed, and after which work."""
    trace, notes = premise.trace, []
    for cell, outcome in rows:
        limit_s, cut = cell.setting.limit_s, outcome.cut
        if cut.any():
            notes.append(
                f"'{cell.label}' would kill {number_of(int(cut.sum()), 'job')}, after "
                f"{_hours(outcome.cut_held_gpu_s / HOUR_S)} of their "
                f"{_hours(gpu_hours(trace, cut))} GPU-hours."
            )
        elif (
            premise.exempt and limit_s is not None and (longer := trace.duration_s > limit_s).any()
        ):
            notes.append(
                f"'{cell.label}' does not apply to {number_of(int(longer.sum()), 'longer job')} of "
                f"{_hours(gpu_hours(trace, longer))} GPU-hours, which keep their own limits."
            )
    lifted = any(cell.setting.limit_s == float("inf") for cell, _ in rows)
    ended = int((trace.end == TIMEOUT).sum())
    if lifted and ended:
        notes.append(
            f"{number_of(ended, 'job')} ended by a limit in the log ({ENDS[TIMEOUT]}): how long it "
            "takes without one is not known, so each ends as it did."
        )
    return notes
