"""Compares several policies on one trace, with confidence intervals and lower bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from dovetail.algorithms.bounds import LowerBounds, Powers
from dovetail.control.loop import check_needs, check_parts
from dovetail.core.errors import InputError
from dovetail.core.job import Floats
from dovetail.core.policy import Policy, reads_limits
from dovetail.core.trace import Trace
from dovetail.core.units import DAY_S
from dovetail.forecast.available import lengths_missing
from dovetail.forecast.forecasts import parse_forecast
from dovetail.record.result import COMPARISON_COLUMNS, POLICY, Comparison, RunResult
from dovetail.study.blocked_types import blocked_types
from dovetail.study.bound import bound, judges, objection, powers_of
from dovetail.study.comparison_rows import (
    ComparedRow,
    chosen,
    compared_rows,
    told_lengths,
)
from dovetail.study.inferred import with_inferred_capacity
from dovetail.study.left_out import part_notes
from dovetail.study.measured import COPIED, MeasuredRows, Scenes, answered, interval_columns
from dovetail.study.on_cluster import on_cluster
from dovetail.study.options import Options
from dovetail.study.parallel import Flow, Progress, ReplayInput, Task, run_tasks
from dovetail.study.recorded import (
    is_from_slurm,
    jct_of,
    record_notes,
    site_cautions,
    site_of,
    with_site_policy,
)
from dovetail.study.run import granted, with_bound
from dovetail.study.tenant_notes import tenant_notes
from dovetail.study.uncertainty import Samples, blocks, intervals, replicates
from dovetail.study.unused_powers import limit_notes

Assign = Callable[[Trace, int], Trace]
"""Assigns random attributes to the jobs of a trace by seed, such as models."""


@dataclass(frozen=True, slots=True)
class Replication:
    """The replicates besides the whole trace: windows of it, and seeds for each window."""

    windows: int = 0
    window_s: float = 7 * DAY_S
    seeds: int = 1

    def __post_init__(self) -> None:
        if self.windows < 0 or not 0 < self.window_s < float("inf"):
            raise InputError("--windows", "windows and their length must be positive")
        if self.seeds < 1:
            raise InputError("--seeds", "it must be 1 or more")


def compare(
    trace: Trace,
    policies: Sequence[str],
    options: Options,
    *,
    baseline: str = "",
    site: str = "",
    replication: Replication | None = None,
    assign: Assign | None = None,
    processes: int = 0,
    keep_spans: bool = False,
    progress: Progress | None = None,
    cautions: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Comparison:
    """Returns the comparison of policies, given as texts, on one trace. Raises InputError.

    Without replication, intervals come from a block bootstrap over time within the run. The
    baseline defaults to the first policy, `site` (whose replay is held against the record of the
    trace) to Slurm's scheduler for a log of sacct, which is a row then, else the first that
    reserves, else the baseline. `processes` is the number of worker processes, 0 for one per core;
    the result does not depend on it. `keep_spans` keeps the placements over time of the best policy
    and the baseline, which a report plots. `cautions` are what the caller must say first, as of
    jobs that were left out, `notes` what it adds to ours.
    """
    whole = assign(trace, options.seed) if assign else trace
    options, inferred = with_inferred_capacity(options, whole)
    policies = policies if site or not policies else with_site_policy(policies, whole)
    rows = compared_rows(policies, options.forecast, whole.jobs)
    baseline = chosen("--baseline", baseline, rows) if baseline else next(iter(rows))
    site = chosen("--site", site, rows) if site else site_of(rows, baseline, whole)
    replication = replication or Replication()
    scenes = [ReplayInput(whole, options), *_replicates(trace, options, replication, assign)]
    _check(scenes[0], rows)
    tasks = _tasks(len(scenes), rows)
    runs, flows = run_tasks(scenes, tasks, processes, baseline if keep_spans else None, progress)
    policy_of = {name: row.policy for name, row in rows.items()}
    bounds = _bounds(whole, options, policy_of)
    runs = {n: with_bound(runs[n], _bound_s(bounds, policy_of[n])) for n in rows}
    per_unit = replication.seeds if replication.windows else 1
    compared = Scenes(scenes[0], scenes[1:], per_unit, replication.windows > 0)
    samples = _samples(runs, flows, compared)
    means, ratios = intervals(samples, baseline, options.seed)
    measured = MeasuredRows(rows, runs, samples, means, ratios, baseline, site)
    said = _notes(whole, options, runs, samples, policy_of, replication)
    told = told_lengths(options.forecast, rows, whole.jobs)
    said += [*told, *inferred, *record_notes(whole), *notes]
    comparison = Comparison(
        results=runs,
        baseline=baseline,
        table=_table(measured, windowed=compared.windowed),
        # Means of windows are not comparable with a bound of the whole trace.
        bound={} if compared.windowed else _bounds_dict(bounds),
        notes=[note for note in said if note not in cautions],
        cautions=[*cautions, *_cautions(site, rows, whole, options)],
        site=site,
    )
    return answered(comparison, measured, compared)


def _tasks(scenes: int, rows: Mapping[str, ComparedRow]) -> list[Task]:
    return [
        Task(s, row.name, row.text, row.forecast, row.kind == POLICY)
        for s in range(scenes)
        for row in rows.values()
    ]


def _cautions(
    site: str, rows: Mapping[str, ComparedRow], trace: Trace, options: Options
) -> list[str]:
    """Returns what the defaults and the policies themselves make a reader know first."""
    choosable = [row.policy for row in rows.values() if row.kind == POLICY]
    return [
        *(site_cautions(site, options.cluster) if is_from_slurm(trace) else []),
        *lengths_missing(options.forecast, choosable, trace.jobs),
        *blocked_types(trace, options.cluster, choosable),
    ]


def _check(scene: ReplayInput, rows: Mapping[str, ComparedRow]) -> None:
    """Raises InputError if a policy needs knowledge or powers that the options exclude."""
    options = scene.options
    told = {row.forecast for row in rows.values()}
    knows = {f: granted(parse_forecast(f, scene.trace, options.seed)) for f in sorted(told)}
    for row in rows.values():
        check_needs(row.policy, knows[row.forecast], options.without)
        check_parts(row.policy, scene.trace.jobs)


def _replicates(
    trace: Trace, options: Options, replication: Replication, assign: Assign | None
) -> list[ReplayInput]:
    """Returns evenly spaced, disjoint windows of the trace, each with several seeds."""
    blurred = "noisy" in options.forecast or options.belief != "exact"
    drawn = assign is not None or options.adopt or blurred
    if replication.seeds > 1 and not drawn:
        raise InputError(
            "--seeds",
            "nothing in this study is drawn by seed, so every seed gives the same",
            "use --windows, or draw something, as with --assign-models or --forecast noisy:0.5",
        )
    parts = _windows(trace, replication) if replication.windows else [trace]
    if not replication.windows and replication.seeds == 1:
        return []
    return [
        ReplayInput(assign(part, seed) if assign else part, replace(options, seed=seed))
        for part in parts
        for seed in range(options.seed, options.seed + replication.seeds)
    ]


def _windows(trace: Trace, replication: Replication) -> list[Trace]:
    submit = trace.jobs.submit_s
    count, window_s = replication.windows, replication.window_s
    span_s = float(submit[-1] - submit[0]) if len(submit) else 0.0
    if count * window_s > span_s + 1.0:
        raise InputError(
            "--windows",
            f"{count} windows of {window_s / DAY_S:g} days would overlap: "
            f"the trace lasts {span_s / DAY_S:.3g} days",
            "ask for fewer, or for shorter ones with --window-days",
        )
    starts = np.linspace(float(submit[0]), float(submit[-1]) - window_s, count)
    rows = [np.flatnonzero((submit >= s) & (submit < s + window_s)) for s in starts.tolist()]
    windows = [trace.take(inside) for inside in rows if len(inside)]
    if not windows:
        raise InputError("--windows", "no job was submitted in any of them")
    return windows


def _bounds(
    trace: Trace, options: Options, policy_of: Mapping[str, Policy]
) -> dict[Powers, LowerBounds]:
    """Returns the bounds that apply to the policies, the narrowest powers first."""
    wanted = {powers_of(p) for p in policy_of.values() if judges(p)}
    order = sorted(wanted, key=lambda p: (p.interleaving, p.sharing, p.limits, p.elastic))
    return {p: bound(trace, options, p) for p in order if not objection(trace, options, p)}


def _bound_s(bounds: Mapping[Powers, LowerBounds], policy: Policy) -> float | None:
    bound = bounds.get(powers_of(policy)) if judges(policy) else None
    return None if bound is None else bound.mean_jct_s


def _bounds_dict(bounds: Mapping[Powers, LowerBounds]) -> dict[str, object]:
    """Returns the bound of the narrowest powers, and all bounds by the text of their powers."""
    if not bounds:
        return {}
    first = next(iter(bounds.values()))
    return {
        "bound_s": first.mean_jct_s,
        "kind": f"{first.best.name}; {first.powers.words}",
        "makespan_s": first.makespan_s,
        "all": {
            powers.words: {b.name: b.mean_jct_s for b in tightest.bounds}
            for powers, tightest in bounds.items()
        },
        "looseness": {powers.words: tightest.looseness for powers, tightest in bounds.items()},
    }


def _over_time(runs: Mapping[str, RunResult], options: Options) -> Samples:
    jct = {n: jct_of(r, options) for n, r in runs.items()}
    submit = next(iter(jct.values()))[0]
    return blocks(submit, {n: jct_s for n, (_, jct_s) in jct.items()})


def _samples(
    runs: Mapping[str, RunResult], flows: Mapping[tuple[int, str], Flow], scenes: Scenes
) -> Samples:
    if scenes.replicates:
        return _over_replicates(flows, list(runs), scenes)
    return _over_time(runs, scenes.whole.options)


def _over_replicates(
    flows: Mapping[tuple[int, str], Flow], names: Sequence[str], scenes: Scenes
) -> Samples:
    """Returns one unit per window over all its seeds, which share the jobs of the window."""

    def sums(of: Callable[[Flow], float], name: str) -> Floats:
        values = np.array([of(flows[s, name]) for s in range(1, len(scenes.replicates) + 1)])
        return np.asarray(values.reshape(-1, scenes.per_unit).sum(axis=1))

    return replicates(
        {n: sums(lambda f: f.flow_s, n) for n in names},
        {n: sums(lambda f: f.jobs, n) for n in names},
    )


def _table(measured: MeasuredRows, *, windowed: bool) -> pl.DataFrame:
    """Returns the table; with windows, only the columns that also exist for windows."""
    rows = [
        {
            "policy": name,
            "kind": measured.rows[name].kind,
            "forecast": measured.rows[name].forecast,
            **interval_columns(measured.means[name], measured.ratios[name]),
            **{key: None if windowed else result.number(key) for key in COPIED},
            "knows": _known(measured.rows[name].policy),
            "powers": ", ".join(sorted(measured.rows[name].policy.powers)) or "none",
        }
        for name, result in measured.runs.items()
    ]
    return pl.DataFrame(rows, schema=dict(COMPARISON_COLUMNS))


def _known(policy: Policy) -> str:
    limits = {"time limits"} if reads_limits(policy) else set()
    return ", ".join(sorted(policy.knows | limits)) or "nothing"


def _notes(
    trace: Trace,
    options: Options,
    runs: Mapping[str, RunResult],
    samples: Samples,
    policy_of: Mapping[str, Policy],
    replication: Replication,
) -> list[str]:
    """Returns the notes that qualify the numbers of the table."""
    first = next(iter(runs.values()))
    notes = [_about_intervals(samples, replication)]
    notes += _unbounded(trace, options, policy_of)
    left_out = first.number("left_out") or 0
    if left_out:
        notes.append(f"{left_out:,.0f} jobs can never fit this cluster and were left out.")
    linear = first.number("jobs_without_model") or 0
    powers = {name: policy.powers for name, policy in policy_of.items()}
    notes += part_notes(trace.jobs)
    notes += limit_notes(trace, options, powers, len(trace) - int(linear))
    notes += _cut_short(runs)
    notes += tenant_notes(
        on_cluster(trace, options.cluster).jobs, options.cluster, policy_of.values()
    )
    if any(run.gpu_seconds.get("slowdown", 0.0) < 0 for run in runs.values()):
        notes.append(
            "GPU-time slowed is below zero where sharing, or fewer GPUs than asked for, did more "
            "with less."
        )
    if linear and any("resize" in p.powers for p in policy_of.values()):
        notes.append(f"{linear:,.0f} jobs have no model and scale linearly.")
    return notes


def _unbounded(trace: Trace, options: Options, policy_of: Mapping[str, Policy]) -> list[str]:
    """Returns why no bound judges some policies; names them unless it is all."""
    whys: dict[str, list[str]] = {}
    for name, policy in policy_of.items():
        if why := objection(trace, options, powers_of(policy)):
            whys.setdefault(why, []).append(name.partition(":")[0])
    few = len(policy_of)
    return [
        f"No bound{'' if len(names) == few else ' for ' + ', '.join(dict.fromkeys(names))}: {why}."
        for why, names in sorted(whys.items())
    ]


def _cut_short(runs: Mapping[str, RunResult]) -> list[str]:
    """Returns a note on policies under which more jobs reach their time limit than under others.

    Such a job ends before its work is done, which shortens the policy's mean.
    """
    cut = {name: int(run.number("timed_out") or 0) for name, run in runs.items()}
    fewest = min(cut.values())
    more = {name.partition(":")[0]: n - fewest for name, n in cut.items() if n > fewest}
    if not more:
        return []
    words = ", ".join(f"{jobs:,} more under {name}" for name, jobs in more.items())
    return [
        f"Jobs that run slower reach their time limit before their work is done: {words} than "
        "under the policy with the fewest, which shortens its mean."
    ]


def _about_intervals(samples: Samples, replication: Replication) -> str:
    if len(samples.silent) == len(samples.flow_s):
        return f"No intervals: {samples.why_not}."
    if samples.resampled:
        text = (
            f"95 % intervals: bootstrap over {samples.units} blocks of "
            f"{samples.unit_s / DAY_S:.2g} days, paired."
        )
        if samples.silent:
            whom = ", ".join(
                name.partition(":")[0] for name in samples.flow_s if name in samples.silent
            )
            text += f" None for {whom}: {samples.why_not}."
        return text
    units = "windows" if replication.windows else "seeds on the same jobs"
    return (
        f"Means and 95 % intervals are over {samples.units} {units}, paired; all else is of "
        "the whole trace."
    )
