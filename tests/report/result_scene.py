"""Builds results to draw: a small honest scheduler, so that frames agree with each other."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl

from dovetail.record.result import (
    COMPARISON_COLUMNS,
    JOB_COLUMNS,
    POLICY,
    RECORDED,
    SERIES_COLUMNS,
    SPAN_COLUMNS,
    SPLIT_COLUMNS,
    Comparison,
    RunResult,
)

HOSTILE = "<script>alert('x')</script>\"&lt;%s' onload=alert(1)"
SIZES = (1, 1, 1, 1, 2, 2, 4, 8, 16)
SWITCH_S = 30.0


def size_class(gpus: int) -> str:
    return "1" if gpus == 1 else "2-4" if gpus <= 4 else "5-8" if gpus <= 8 else ">8"


def workload(jobs: int, seed: int = 1, users: int = 12) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    gpus = random.choice(SIZES, jobs)
    return pl.DataFrame(
        {
            "job_id": [f"j{i}" for i in range(jobs)],
            "submit_s": np.cumsum(random.exponential(260.0, jobs)),
            "gpus": gpus,
            "duration_s": np.exp(random.normal(8.0, 1.6, jobs)) + 5.0,
            "user": [f"user{u:02d}" for u in random.integers(0, users, jobs)],
            "model": [("resnet50", "bert", "gpt2")[m] for m in random.integers(0, 3, jobs)],
            "size_class": [size_class(int(g)) for g in gpus],
        }
    )


def schedule(jobs: pl.DataFrame, nodes: int, per_node: int, shortest_first: bool) -> RunResult:
    """Runs the workload without preemption; jobs may spread over any free GPUs."""
    rows = jobs.to_dicts()
    key: Callable[[int], tuple[float, ...]] = (
        (lambda i: (rows[i]["duration_s"], i)) if shortest_first else (lambda i: (float(i),))
    )
    free, waiting, running = [per_node] * nodes, [], []
    spans: list[tuple[object, ...]] = []
    series: list[tuple[object, ...]] = []
    start: dict[int, float] = {}
    arrivals = list(range(len(rows)))[::-1]
    while arrivals or running:
        soonest = rows[arrivals[-1]]["submit_s"] if arrivals else np.inf
        now = min(soonest, running[0][0] if running else np.inf)
        while running and running[0][0] == now:
            for node, gpus in heapq.heappop(running)[2]:
                free[node] += gpus
        while arrivals and rows[arrivals[-1]]["submit_s"] == now:
            waiting.append(arrivals.pop())
        waiting.sort(key=key)
        while waiting and rows[waiting[0]]["gpus"] <= sum(free):
            job = waiting.pop(0)
            start[job], placed = now, []
            end = now + SWITCH_S + rows[job]["duration_s"]
            left = rows[job]["gpus"]
            for node in range(nodes):
                take = min(left, free[node])
                if take:
                    free[node] -= take
                    left -= take
                    placed.append((node, take))
                    name = rows[job]["job_id"]
                    spans.append((name, node, take, now, now + SWITCH_S, 0.0, "switch", None))
                    spans.append((name, node, take, now + SWITCH_S, end, 1.0, "run", None))
            heapq.heappush(running, (end, job, placed))
        held = nodes * per_node - sum(free)
        asked = sum(rows[j]["gpus"] for j in waiting)
        blocked = asked / max(1, held)
        series.append(
            (
                now,
                len(waiting),
                len(running),
                held,
                nodes * per_node,
                held / (nodes * per_node),
                blocked,
            )
        )
    return finished(
        jobs, start, spans, series, nodes, per_node, "sjf" if shortest_first else "fifo"
    )


def finished(jobs, start, spans, series, nodes, per_node, policy) -> RunResult:  # type: ignore[no-untyped-def]
    starts = np.array([start[i] for i in range(len(jobs))])
    frame = jobs.with_columns(
        pl.Series("start_s", starts),
        time_to_start_s=pl.Series(starts) - pl.col("submit_s"),
        finish_s=pl.Series(starts) + SWITCH_S + pl.col("duration_s"),
        queue=pl.lit("main"),
        account=pl.lit(""),
        recurrence=pl.lit(""),
        end=pl.lit("completed"),
        preemptions=pl.lit(0, pl.Int64),
        service_gpu_s=pl.col("duration_s") * pl.col("gpus"),
    ).with_columns(jct_s=pl.col("finish_s") - pl.col("submit_s"), wait_s=pl.col("time_to_start_s"))
    frame = frame.with_columns(slowdown=pl.col("jct_s") / pl.col("duration_s"))
    frame = frame.select([pl.col(c).cast(t) for c, t in JOB_COLUMNS.items()])
    makespan = float(frame["finish_s"].max() or 0.0) - float(frame["submit_s"].min() or 0.0)
    capacity = makespan * nodes * per_node
    useful = float(frame["service_gpu_s"].sum())
    switching = float((frame["gpus"] * SWITCH_S).sum())
    idle = capacity - useful - switching
    return RunResult(
        manifest={
            "policy": policy,
            "options": {"placement": "none", "switching": "per-start"},
            "trace": {"name": "made-up", "jobs": len(frame)},
            "cluster": {
                "nodes": nodes,
                "gpus": nodes * per_node,
                "groups": [
                    {"name": "all", "nodes": nodes, "gpus_per_node": per_node, "gpu_type": "v100"}
                ],
            },
            "seed": 1,
            "version": "0.1.0",
        },
        summary={
            "policy": policy,
            "jobs": len(frame),
            "finished": len(frame),
            "avg_jct_s": frame["jct_s"].mean(),
            "median_jct_s": frame["jct_s"].median(),
            "p99_jct_s": frame["jct_s"].quantile(0.99, "higher"),
            "avg_wait_s": frame["wait_s"].mean(),
            "avg_time_to_start_s": frame["time_to_start_s"].mean(),
            "makespan_s": makespan,
            "gpu_utilization": (useful + switching) / capacity if capacity else None,
            "bound_s": frame["service_gpu_s"].mean(),
            "x_bound": None,
            "preemptions": 0,
        },
        jobs=frame,
        series=pl.DataFrame(series, schema=dict(SERIES_COLUMNS), orient="row"),
        spans=pl.DataFrame(spans, schema=dict(SPAN_COLUMNS), orient="row"),
        gpu_seconds={
            "useful": useful,
            "slowdown": 0.0,
            "switching": switching,
            "idle_waiting": idle * 0.4,
            "idle_empty": idle * 0.6,
            "down": 0.0,
        },
        splits={k: split(frame, k) for k in ("size_class", "user", "account", "queue", "model")},
    )


def split(frame: pl.DataFrame, by: str) -> pl.DataFrame:
    return (
        frame.group_by(pl.col(by).alias("group"))
        .agg(
            pl.len().alias("jobs"),
            pl.col("jct_s").mean().alias("avg_jct_s"),
            pl.col("jct_s").median().alias("median_jct_s"),
            pl.col("jct_s").quantile(0.99, "higher").alias("p99_jct_s"),
            pl.col("wait_s").mean().alias("avg_wait_s"),
            pl.col("time_to_start_s").mean().alias("avg_time_to_start_s"),
            pl.col("wait_s").median().alias("median_wait_s"),
            pl.col("wait_s").quantile(0.9, "higher").alias("p90_wait_s"),
        )
        .sort("group")
        .select([pl.col(c).cast(t) for c, t in SPLIT_COLUMNS.items()])
    )


def run_result(jobs: int = 300, seed: int = 1, shortest_first: bool = False) -> RunResult:
    return schedule(workload(jobs, seed), 4, 8, shortest_first)


def empty_result(policy: str = "fifo") -> RunResult:
    none = {"group": pl.String}
    return RunResult(
        manifest={"policy": policy, "cluster": {"nodes": 0, "gpus": 0, "groups": []}},
        summary={"policy": policy, "jobs": 0, "finished": 0, "avg_jct_s": None},
        jobs=pl.DataFrame(schema=dict(JOB_COLUMNS)),
        series=pl.DataFrame(schema=dict(SERIES_COLUMNS)),
        spans=pl.DataFrame(schema=dict(SPAN_COLUMNS)),
        gpu_seconds={},
        splits={"size_class": pl.DataFrame(schema={**none, **dict(SPLIT_COLUMNS)})},
    )


def comparison_of(
    results: dict[str, RunResult],
    baseline: str,
    bound_s: float | None = None,
    notes: list[str] | None = None,
    spread: float = 0.1,
) -> Comparison:
    """Returns a comparison whose intervals are `spread` either side of each mean."""
    base_s = results[baseline].number("avg_jct_s")
    rows = []
    for name, result in results.items():
        mean_s = result.number("avg_jct_s")
        ratio = mean_s / base_s if mean_s and base_s else None
        row = {c: result.summary.get(c) for c in COMPARISON_COLUMNS}
        row["kind"] = RECORDED if name == RECORDED else POLICY
        row |= {
            "policy": name,
            "low": mean_s * (1 - spread) if mean_s else None,
            "high": mean_s * (1 + spread) if mean_s else None,
            "ratio_to_baseline": ratio,
            "ratio_low": ratio * (1 - spread) if ratio and name != baseline else ratio,
            "ratio_high": ratio * (1 + spread) if ratio and name != baseline else ratio,
            "x_bound": mean_s / bound_s if mean_s and bound_s else None,
            "knows": "length" if "s" in name[:1] else "nothing",
            "powers": "preempt" if "srtf" in name else "none",
        }
        rows.append(row)
    table = pl.DataFrame(rows, schema=dict(COMPARISON_COLUMNS), orient="row")
    bound: dict[str, object] = {"bound_s": bound_s, "kind": "single machine, preemptive"}
    return Comparison(results, baseline, table, bound if bound_s else {}, notes or [])


def pair(jobs: int = 300, seed: int = 1) -> Comparison:
    """Returns FIFO and SJF on the same workload."""
    results = {"fifo": run_result(jobs, seed), "sjf": run_result(jobs, seed, shortest_first=True)}
    mean_s = results["sjf"].number("avg_jct_s") or 1.0
    return comparison_of(results, "fifo", mean_s * 0.8)


def hostile_pair() -> Comparison:
    """Returns a comparison in which every name looks like a script."""
    comparison = pair(60)
    results = {}
    for name, run in comparison.results.items():
        jobs = run.jobs.with_columns(
            pl.lit(HOSTILE).alias("user"),
            pl.lit(HOSTILE).alias("model"),
            (pl.lit(HOSTILE) + pl.col("job_id")).alias("job_id"),
        )
        # Groups stay apart: no two of a real run have one name.
        hostile = (pl.lit(HOSTILE) + pl.col("group")).alias("group")
        splits = {key: split.with_columns(hostile) for key, split in run.splits.items()}
        manifest = {**run.manifest, "trace": {"name": HOSTILE, "jobs": 60}}
        results[name + HOSTILE] = replace(run, jobs=jobs, splits=splits, manifest=manifest)
    return comparison_of(results, "fifo" + HOSTILE, 100.0, [HOSTILE])


def with_record(comparison: Comparison, slower: float = 1.25) -> Comparison:
    """Returns the comparison with a first row `recorded`: the baseline's jobs, all slower."""
    base = comparison.results[comparison.baseline]
    later = pl.col("avg_jct_s", "avg_wait_s") * slower
    record = replace(
        base,
        manifest={**base.manifest, "policy": "recorded"},
        summary={**base.summary, "avg_wait_s": (base.number("avg_wait_s") or 0.0) * slower},
        jobs=base.jobs.with_columns(pl.col("jct_s", "wait_s") * slower),
        spans=base.spans.clear(),
        gpu_seconds={},
        splits={key: frame.with_columns(later) for key, frame in base.splits.items()},
    )
    return comparison_of({"recorded": record, **comparison.results}, comparison.baseline, 100.0)
