"""Simulates one policy on one trace: builds the world, runs the loop, computes the metrics."""

from __future__ import annotations

import gc
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
import polars as pl

import dovetail.policies  # registers the policies
from dovetail.control.loop import check_needs, check_parts
from dovetail.control.loop import run as run_loop
from dovetail.core.beliefs import Forecast, Physics
from dovetail.core.errors import InputError
from dovetail.core.job import Ints
from dovetail.core.messages import Fact, Recorder
from dovetail.core.occupancy import Occupancy, shapes_on
from dovetail.core.policy import KNOWLEDGE, Policy, name_of, spell
from dovetail.core.trace import Trace
from dovetail.forecast.available import resolved
from dovetail.forecast.forecasts import parse_forecast
from dovetail.physics.beliefs.noisy import believed
from dovetail.physics.device_times import stated_times
from dovetail.physics.linear import linear_physics
from dovetail.physics.placed import placed_physics, startups_s
from dovetail.physics.sharing.interference import parse_interference
from dovetail.physics.sharing.turns import InterleaveRule
from dovetail.physics.zoo.models import Catalogue, shipped_sets
from dovetail.physics.zoo.profile_file import ProfileSet, load_profiles
from dovetail.record.log import LogWriter
from dovetail.record.metrics import (
    gpu_seconds,
    job_frame,
    nearest_rank,
    series_frame,
    span_frame,
    split_frames,
    summarize,
)
from dovetail.record.result import NO_SHARES, NO_TENANTS, RunResult
from dovetail.record.tally import Tally
from dovetail.record.tenants import has_tenants, jain_index, share_frame, tenant_frame
from dovetail.sim.scene import Scene
from dovetail.sim.world import SimWorld
from dovetail.study.inferred import with_inferred_capacity
from dovetail.study.on_cluster import on_cluster, within_qos
from dovetail.study.options import Options, adopted
from dovetail.study.uncertainty import Interval, blocks, intervals
from dovetail.version import __version__

assert dovetail.policies

SPLITS = ("size_class", "user", "account", "queue", "model")


class _Fan:
    """Passes facts on to several recorders."""

    def __init__(self, recorders: Sequence[Recorder]) -> None:
        self._recorders = recorders

    def record(self, facts: Sequence[Fact]) -> None:
        for recorder in self._recorders:
            recorder.record(facts)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disables garbage collection: the growing record of a run has no cycles.

    NOTE: the collector took 8 to 15 % of a run of 100,000 jobs.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def fitting_rows(trace: Trace, options: Options) -> Ints:
    """Returns the jobs that could run on the empty cluster."""
    empty = Occupancy(options.cluster, trace.jobs)
    shape_of, shapes = shapes_on(empty)
    fits = [options.placing.find(empty, shape) is not None for shape in shapes]
    return np.array([i for i, s in enumerate(shape_of) if fits[s]], dtype=np.int64)


def placeable(trace: Trace, options: Options) -> tuple[Trace, int]:
    """Returns the jobs of a run with its flags, and the number of jobs that can never fit.

    Raises InputError if no job is left.
    """
    if not len(trace):
        raise InputError("trace", "it contains no usable job")
    named = on_cluster(trace, options.cluster)
    trace = within_qos(adopted(named, options.adopt, options.seed), options.cluster)
    rows = fitting_rows(trace, options)
    if not len(rows):
        raise InputError("trace", "no job fits the cluster", "use a larger --cluster")
    left_out = len(trace) - len(rows)
    return (trace.take(rows) if left_out else trace), left_out


def granted(forecast: Forecast) -> frozenset[str]:
    """Returns the knowledge that a run offers: that of the forecast, and all but lengths."""
    return forecast.knows | (frozenset(KNOWLEDGE) - {"length"})


def _own_sets(options: Options) -> tuple[ProfileSet, ...]:
    return tuple(load_profiles(Path(p)) for p in options.profiles)


def _catalogue(options: Options) -> Catalogue:
    """Returns the models of the zoo and those of `--profiles`."""
    return Catalogue((*shipped_sets(), *_own_sets(options)))


def build_physics(trace: Trace, options: Options) -> Physics:
    """Returns the true physics of a run."""
    interference = parse_interference(options.interference, _own_sets(options))
    speeds = {(own, other): speed for own, other, speed in options.type_speeds}
    if options.physics == "linear" or not trace.jobs.model.names:
        groups = options.cluster.node_group
        types = [options.cluster.groups[at].gpu_type for at in groups] if speeds else []
        return linear_physics(trace.jobs, interference, stated_times(types, trace.jobs, speeds))
    return placed_physics(
        trace.jobs,
        options.cluster,
        _catalogue(options),
        interference=interference,
        interleaving=InterleaveRule.parse(options.cycle),
        by_count=options.physics == "counted",
        type_speeds=speeds,
    )


def _without_model(trace: Trace, options: Options) -> int:
    """Returns how many jobs scale linearly because the physics of the run has no model of them."""
    labels = trace.jobs.model
    if options.physics == "linear" or not labels.names:
        return len(trace)
    catalogue = _catalogue(options)
    unknown = [catalogue.find(name) is None for name in labels.names]
    return sum(code < 0 or unknown[code] for code in labels.codes.tolist())


def build_scene(trace: Trace, options: Options) -> Scene:
    """Returns the scene of a simulation. Raises InputError for inconsistent options."""
    truth = build_physics(trace, options)
    startup_s: tuple[float, ...] = ()
    if options.switching.by_profile:
        startup_s = startups_s(trace.jobs, _catalogue(options))
    return Scene(
        trace=trace,
        cluster=options.cluster,
        truth=truth,
        belief=believed(truth, trace.jobs, options.belief, options.seed),
        forecast=parse_forecast(options.forecast, trace, options.seed),
        placing=options.placing,
        switching=options.switching,
        cancelled_by_clock=options.cancelled == "clock",
        capacity=options.capacity,
        coalesce_s=options.coalesce_s,
        startup_s=startup_s,
    )


def simulate(
    trace: Trace,
    policy: Policy,
    options: Options,
    *,
    log_to: Path | None = None,
    keep_spans: bool = False,
    progress: Callable[[float], None] | None = None,
) -> RunResult:
    """Returns the result of a policy on a trace. Raises InputError.

    `log_to` is the file for the event log; `keep_spans` fills `spans`, for reports and timelines.
    """
    began = perf_counter()
    options, _ = with_inferred_capacity(options, trace)
    options = replace(options, forecast=resolved(options.forecast, policy, trace.jobs))
    trace, left_out = placeable(trace, options)
    scene = build_scene(trace, options)
    check_needs(policy, granted(scene.forecast), options.without)
    check_parts(policy, trace.jobs)
    manifest = _manifest(trace, policy, options, left_out)
    part = trace.jobs.gpu_part.tolist()
    scale = [scene.truth.structure.scale(j) * part[j] for j in range(len(trace))]
    asked = trace.jobs.asked_gpus.tolist()
    tally = Tally(options.cluster, asked, trace.duration_s.tolist(), scale)
    decision_s = _play(scene, policy, manifest, tally, log_to, progress)
    jobs = job_frame(trace, tally)
    tenancy = _of_tenants(trace, options, tally, jobs)
    interval = mean_interval(jobs, options)
    summary: dict[str, float | int | str | None] = {
        "policy": spell(policy),
        **summarize(trace, tally, jobs, options.window),
        "avg_jct_low_s": interval.low,
        "avg_jct_high_s": interval.high,
        "left_out": left_out,
        "jobs_without_model": _without_model(trace, options),
        "decision_p99_ms": nearest_rank(np.array(decision_s), 0.99) * 1e3,
        "decisions": len(decision_s),
        "events": tally.facts,
        "wall_s": perf_counter() - began,
        **tenancy.summary,
    }
    return RunResult(
        manifest=manifest,
        summary=summary,
        jobs=tenancy.jobs,
        series=series_frame(tally),
        spans=span_frame(trace.jobs, tally.segments if keep_spans else ()),
        gpu_seconds=gpu_seconds(tally),
        splits=split_frames(jobs, SPLITS),
        shares=tenancy.shares,
        tenants=tenancy.tenants,
    )


class _OfTenants(NamedTuple):
    """What a run was for tenants; without any, the jobs as they are."""

    jobs: pl.DataFrame
    shares: pl.DataFrame
    tenants: pl.DataFrame
    summary: dict[str, float | int | str | None]


def _of_tenants(trace: Trace, options: Options, tally: Tally, jobs: pl.DataFrame) -> _OfTenants:
    if not has_tenants(options.cluster):
        return _OfTenants(jobs, NO_SHARES, NO_TENANTS, {})
    reclaims = [tally.reclaims.get(job, 0) for job in range(len(trace))]
    jobs = jobs.with_columns(pl.Series("reclaims", reclaims, dtype=pl.Int64))
    shares = share_frame(options.cluster, trace.jobs, tally)
    tenants = tenant_frame(jobs, shares)
    summary: dict[str, float | int | str | None]
    summary = {"reclaims": sum(reclaims), "jain_index": jain_index(tenants)}
    return _OfTenants(jobs, shares, tenants, summary)


def _play(
    scene: Scene,
    policy: Policy,
    manifest: dict[str, object],
    tally: Tally,
    log_to: Path | None,
    progress: Callable[[float], None] | None,
) -> list[float]:
    """Runs the loop with a tally and optionally a log; returns the time of each decision."""
    decision_s: list[float] = []
    with ExitStack() as stack:
        recorders: list[Recorder] = [tally]
        writer = None
        if log_to is not None:
            file = stack.enter_context(log_to.open("w", encoding="utf-8"))
            writer = LogWriter(file, scene.trace, scene.truth, manifest)
            recorders.append(writer)
        recorder = recorders[0] if len(recorders) == 1 else _Fan(recorders)
        world = SimWorld(scene, policy, recorder)
        with _no_garbage_collection():
            run_loop(world, policy, decision_s=decision_s, progress=progress)
        if writer is not None:
            writer.close()
    return decision_s


def mean_interval(jobs: pl.DataFrame, options: Options) -> Interval:
    """Returns the mean JCT of the counted jobs with its interval, from blocks of time."""
    submit = jobs["submit_s"].to_numpy()
    jct = jobs["jct_s"].cast(pl.Float64).to_numpy().copy()
    jct[~options.window.rows(submit)] = np.nan
    means, _ = intervals(blocks(submit, {"run": jct}), "run", options.seed)
    return means["run"]


def _manifest(trace: Trace, policy: Policy, options: Options, left_out: int) -> dict[str, object]:
    return {
        "version": __version__,
        "policy": spell(policy),
        "name": name_of(policy),
        "knows": sorted(policy.knows),
        "powers": sorted(policy.powers),
        "trace": {
            "name": trace.name,
            "jobs": len(trace),
            "left_out": left_out,
            "counts": dict(sorted(trace.counts.items())),
            "work_gpu_s": float((trace.duration_s * trace.jobs.asked_gpus).sum()),
            **({} if trace.imported is None else {"import": asdict(trace.imported)}),
        },
        **options.manifest(),
    }


@contextmanager
def whole_directory(target: Path) -> Iterator[Path]:
    """Yields a new folder that is renamed to `target` on success.

    Raises InputError if the target exists or cannot be written.
    """
    if target.exists():
        raise InputError(str(target), "it exists already", "choose another -o or remove it")
    part = target.with_name(f".{target.name}.part-{os.getpid()}")
    try:
        part.mkdir(parents=True)
        yield part
        part.rename(target)
    except OSError as error:
        raise InputError(str(target), f"cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_tables(result: RunResult, folder: Path) -> None:
    """Writes `summary.json` and `jobs.csv`."""
    summary = {**result.summary, "gpu_seconds": result.gpu_seconds, "manifest": result.manifest}
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    result.jobs.write_csv(folder / "jobs.csv")
    if len(result.tenants):
        result.tenants.write_csv(folder / "tenants.csv")
        result.shares.write_csv(folder / "shares.csv")


def with_bound(result: RunResult, bound_s: float | None) -> RunResult:
    """Returns the result with the bound on the mean JCT and the ratio to it."""
    average = result.summary["avg_jct_s"]
    ratio = average / bound_s if bound_s and isinstance(average, float) else None
    if ratio is not None and 1 - 1e-6 < ratio < 1:
        ratio = 1.0  # The linear program is accurate to a few parts in ten million.
    return replace(result, summary={**result.summary, "bound_s": bound_s, "x_bound": ratio})
