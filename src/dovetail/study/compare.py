"""Several policies on one trace, on equal terms, with intervals and the distance from the best."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context

import numpy as np
import polars as pl

from dovetail.algorithms.bounds import LowerBounds, Powers
from dovetail.core.errors import InputError
from dovetail.core.policy import parse_policy, spell
from dovetail.core.trace import Trace
from dovetail.record.result import COMPARISON_COLUMNS, Comparison, RunResult
from dovetail.study.bound import bound, objection, powers_of
from dovetail.study.options import Options
from dovetail.study.run import simulate, with_bound
from dovetail.study.uncertainty import Interval, Samples, blocks, intervals, replicates

DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Replication:
    """Which replicates to run beside the whole trace: windows of days, and seeds in each."""

    windows: int = 0
    window_s: float = 7 * DAY_S
    seeds: int = 1

    def __post_init__(self) -> None:
        if self.windows < 0 or self.seeds < 1 or self.window_s <= 0:
            raise InputError("--windows", "windows and their length must be positive")


def compare(
    trace: Trace,
    policies: Sequence[str],
    options: Options,
    *,
    baseline: str = "",
    replication: Replication | None = None,
    processes: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Returns the comparison of policies, given as text, on one trace.

    Without replication the intervals come from a block bootstrap over time within the run. The
    baseline is the first policy unless named. Uses `processes` processes (default: all cores).
    Raises InputError.
    """
    names = _distinct(policies)
    baseline = spell(parse_policy(baseline)) if baseline else names[0]
    if baseline not in names:
        raise InputError("--baseline", f"'{baseline}' is not among the policies compared")
    scenes = [(trace, options), *_replicates(trace, options, replication or Replication())]
    work = [(s, name) for s in range(len(scenes)) for name in names]
    results = _run_all(scenes, work, processes, progress)
    whole = {name: results[0, name] for name in names}
    bounds, why_not = _bounds(trace, options, names)
    judged = {n: with_bound(r, _bound_s(bounds, n)) for n, r in whole.items()}
    samples = _samples(trace, whole, results, names, len(scenes))
    means, ratios = intervals(samples, baseline, options.seed)
    notes = _notes(judged, why_not, samples, len(scenes) - 1)
    return Comparison(
        results=judged,
        baseline=baseline,
        table=_table(judged, means, ratios),
        bound=_said(bounds),
        notes=notes,
    )


def _distinct(policies: Sequence[str]) -> list[str]:
    if not policies:
        raise InputError("--policies", "name at least one policy")
    names = [spell(parse_policy(text)) for text in policies]
    for name in names:
        if names.count(name) > 1:
            raise InputError("--policies", f"'{name}' is named twice")
    return names


def _replicates(
    trace: Trace, options: Options, replication: Replication
) -> list[tuple[Trace, Options]]:
    """Returns windows of the trace, evenly spread, each with several seeds."""
    submit = trace.jobs.submit_s
    if not replication.windows:
        return []
    last = float(submit[-1]) - replication.window_s
    starts = np.linspace(float(submit[0]), max(last, float(submit[0])), replication.windows)
    made = []
    for start in starts.tolist():
        inside = (submit >= start) & (submit < start + replication.window_s)
        rows = np.flatnonzero(inside)
        if not len(rows):
            continue
        part = trace.take(rows)
        for seed in range(replication.seeds):
            made.append((part, replace(options, seed=options.seed + seed)))
    return made


_SCENES: list[tuple[Trace, Options]] = []


def _set_up(scenes: list[tuple[Trace, Options]]) -> None:
    _SCENES[:] = scenes


def _run_one(scene: int, name: str) -> RunResult:
    trace, options = _SCENES[scene]
    return simulate(trace, parse_policy(name), options, keep_spans=scene == 0)


def _run_all(
    scenes: list[tuple[Trace, Options]],
    work: list[tuple[int, str]],
    processes: int,
    progress: Callable[[int, int], None] | None,
) -> dict[tuple[int, str], RunResult]:
    processes = min(len(work), processes or os.cpu_count() or 1)
    results: dict[tuple[int, str], RunResult] = {}
    if processes == 1:
        _set_up(scenes)
        for done, (scene, name) in enumerate(work, start=1):
            results[scene, name] = _run_one(scene, name)
            if progress is not None:
                progress(done, len(work))
        return results
    # Threads of polars do not survive a fork, so workers start afresh and get the traces once.
    with ProcessPoolExecutor(processes, get_context("spawn"), _set_up, (scenes,)) as pool:
        futures = {pool.submit(_run_one, scene, name): (scene, name) for scene, name in work}
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                results[futures[future]] = future.result()
                if progress is not None:
                    progress(done, len(work))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return results


def _bounds(
    trace: Trace, options: Options, names: Sequence[str]
) -> tuple[dict[Powers, LowerBounds], str]:
    why_not = objection(trace, options)
    if why_not:
        return {}, why_not
    wanted = {powers_of(parse_policy(name)) for name in names}
    order = sorted(wanted, key=lambda p: (p.sharing, p.elastic))
    return {powers: bound(trace, options, powers) for powers in order}, ""


def _bound_s(bounds: dict[Powers, LowerBounds], name: str) -> float | None:
    found = bounds.get(powers_of(parse_policy(name)))
    return None if found is None else found.mean_jct_s


def _said(bounds: dict[Powers, LowerBounds]) -> dict[str, object]:
    """Returns the bound of the narrowest powers first, then all of them by their words."""
    if not bounds:
        return {}
    first = next(iter(bounds.values()))
    return {
        "bound_s": first.mean_jct_s,
        "kind": f"{first.best.name} ({first.powers.words})",
        "makespan_s": first.makespan_s,
        "all": {
            powers.words: {b.name: b.mean_jct_s for b in found.bounds}
            for powers, found in bounds.items()
        },
    }


def _samples(
    trace: Trace,
    whole: dict[str, RunResult],
    results: dict[tuple[int, str], RunResult],
    names: Sequence[str],
    scenes: int,
) -> Samples:
    if scenes > 1:
        flow = {n: np.array([_flow(results[s, n]) for s in range(1, scenes)]) for n in names}
        jobs = {n: np.array([_finished(results[s, n]) for s in range(1, scenes)]) for n in names}
        return replicates(flow, jobs)
    frames = {n: r.jobs for n, r in whole.items()}
    submit = next(iter(frames.values()))["submit_s"].to_numpy()
    return blocks(submit, {n: f["jct_s"].cast(pl.Float64).to_numpy() for n, f in frames.items()})


def _flow(result: RunResult) -> float:
    return result.number("total_flow_s") or 0.0


def _finished(result: RunResult) -> float:
    return float(result.jobs["jct_s"].len() - result.jobs["jct_s"].null_count())


def _table(
    results: dict[str, RunResult], means: dict[str, Interval], ratios: dict[str, Interval]
) -> pl.DataFrame:
    rows = []
    for name, result in results.items():
        policy = parse_policy(name)
        rows.append(
            {
                "policy": name,
                "avg_jct_s": means[name].value,
                "low": means[name].low,
                "high": means[name].high,
                "ratio_to_baseline": ratios[name].value,
                "ratio_low": ratios[name].low,
                "ratio_high": ratios[name].high,
                **{
                    key: result.number(key)
                    for key in (
                        "median_jct_s",
                        "p99_jct_s",
                        "avg_queue_s",
                        "makespan_s",
                        "gpu_utilization",
                        "x_bound",
                        "preemptions",
                    )
                },
                "knows": ", ".join(sorted(policy.knows)) or "nothing",
                "powers": ", ".join(sorted(policy.powers)) or "none",
            }
        )
    return pl.DataFrame(rows, schema=dict(COMPARISON_COLUMNS))


def _notes(
    results: dict[str, RunResult], why_not: str, samples: Samples, replicated: int
) -> list[str]:
    first = next(iter(results.values()))
    notes = []
    if replicated:
        notes.append(
            f"Means and intervals over {replicated} replicates, paired; other columns and "
            "pictures are of the whole trace."
        )
    elif samples.enough:
        units = len(next(iter(samples.flow_s.values())))
        notes.append(f"95 % intervals: block bootstrap over {units} blocks of time, paired.")
    if not samples.enough:
        notes.append("The trace is too short for intervals: fewer than eight blocks of time.")
    if why_not:
        notes.append(f"No bound: {why_not}.")
    left_out = first.number("left_out") or 0
    if left_out:
        notes.append(f"{left_out:.0f} jobs can never fit this cluster and were left out.")
    linear = first.number("jobs_without_model") or 0
    if linear:
        notes.append(f"{linear:.0f} jobs have no model and scale linearly.")
    return notes
