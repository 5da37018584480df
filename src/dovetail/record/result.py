"""The result of a run: the values that tables, plots, reports and timelines show.

Nothing here computes; the folds over the log fill it in. Times are seconds on the trace's own
clock, which `RunResult.origin_s` maps to zero in pictures, and a missing number is null, never
an invented one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from dovetail.record.replay_error import ReplayError

GPU_SECOND_KINDS = ("useful", "slowdown", "switching", "idle_waiting", "idle_empty", "down")
"""The uses of GPU-seconds, in the order in which plots stack them.

useful: work at full speed; slowdown: what neighbours and the network cost (below zero where
sharing or smaller shares did more with less); switching: starts,
restarts, resizes; idle_waiting: idle while jobs wait; idle_empty: idle, no job waits; down:
the node was away.
"""

JOB_COLUMNS: Mapping[str, type[pl.DataType]] = {
    "job_id": pl.String,
    "submit_s": pl.Float64,
    "start_s": pl.Float64,
    "finish_s": pl.Float64,
    "jct_s": pl.Float64,
    "time_to_start_s": pl.Float64,
    "wait_s": pl.Float64,
    "service_gpu_s": pl.Float64,
    "slowdown": pl.Float64,
    "preemptions": pl.Int64,
    "gpus": pl.Int64,
    "user": pl.String,
    "account": pl.String,
    "queue": pl.String,
    "recurrence": pl.String,
    "model": pl.String,
    "end": pl.String,
    "size_class": pl.String,
}
"""The columns of `RunResult.jobs`; a job that never finished has null `finish_s` and `jct_s`.

Where jobs ask for parts of GPUs, or for none, `gpu_part` has the part of each of their GPUs.
"""

SERIES_COLUMNS: Mapping[str, type[pl.DataType]] = {
    "t_s": pl.Float64,
    "waiting": pl.Int64,
    "running": pl.Int64,
    "held_gpus": pl.Int64,
    "capacity_gpus": pl.Int64,
    "cluster_efficiency": pl.Float64,
    "blocking_index": pl.Float64,
}
"""The columns of `RunResult.series`, a step function: a row holds until the next.

`held_gpus` is Float64 where jobs hold parts of GPUs.
"""

SPAN_COLUMNS: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "job_id": pl.String,
    "node": pl.Int64,
    "gpus": pl.Int64,
    "start_s": pl.Float64,
    "end_s": pl.Float64,
    "rate": pl.Float64,
    "kind": pl.String,
    "gpu_ids": pl.List(pl.Int64),
}
"""The columns of `RunResult.spans`: one row per run segment and node.

`kind` is 'run' or 'switch'; `gpu_ids` is null when the placement named no GPUs. Where jobs ask for
parts of GPUs, `gpu_part` has the part held of each; jobs without GPU have no row.
"""

SPLIT_COLUMNS: Mapping[str, type[pl.DataType]] = {
    "group": pl.String,
    "jobs": pl.Int64,
    "avg_jct_s": pl.Float64,
    "median_jct_s": pl.Float64,
    "p99_jct_s": pl.Float64,
    "avg_wait_s": pl.Float64,
    "avg_time_to_start_s": pl.Float64,
    "median_wait_s": pl.Float64,
    "p90_wait_s": pl.Float64,
}
"""The columns of every frame in `RunResult.splits`."""

SHARE_COLUMNS: Mapping[str, type[pl.DataType]] = {
    "t_s": pl.Float64,
    "until_s": pl.Float64,
    "level": pl.String,
    "tenant": pl.String,
    "deserved_gpus": pl.Float64,
    "asked_gpus": pl.Float64,
    "held_gpus": pl.Float64,
}
"""The columns of `RunResult.shares`: means over periods; `level` is 'queue' or 'account'."""

TENANT_COLUMNS: Mapping[str, type[pl.DataType]] = {
    "level": pl.String,
    "tenant": pl.String,
    "jobs": pl.Int64,
    "deserved_gpus": pl.Float64,
    "asked_gpus": pl.Float64,
    "held_gpus": pl.Float64,
    "avg_wait_s": pl.Float64,
    "avg_time_to_start_s": pl.Float64,
    "preemptions": pl.Int64,
    "reclaims": pl.Int64,
}
"""The columns of `RunResult.tenants`; `reclaims` are the preemptions that gave lent GPUs back."""
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
"""The groups of the split by weekday."""
RECORDED = "recorded"
"""The name of the row of what happened on the cluster that wrote the log."""
POLICY, IF_KNOWN = "policy", "if known"
KNOWN_SUFFIX = ", known"
"""What the name of a row ends with whose policy is told true lengths, beside the same policy."""
KINDS = (RECORDED, POLICY, IF_KNOWN)
"""The kinds of rows of a comparison, in the order of its table: what happened; policies with what a
site would have; the same policies if lengths were known."""

COMPARISON_COLUMNS: Mapping[str, type[pl.DataType]] = {
    "policy": pl.String,
    "kind": pl.String,
    "forecast": pl.String,
    "avg_jct_s": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "ratio_to_baseline": pl.Float64,
    "ratio_low": pl.Float64,
    "ratio_high": pl.Float64,
    "median_jct_s": pl.Float64,
    "p99_jct_s": pl.Float64,
    "avg_wait_s": pl.Float64,
    "avg_time_to_start_s": pl.Float64,
    "makespan_s": pl.Float64,
    "gpu_utilization": pl.Float64,
    "x_bound": pl.Float64,
    "preemptions": pl.Float64,
    "knows": pl.String,
    "powers": pl.String,
}
"""The columns of `Comparison.table`, one row per policy and what it is told of lengths.

`kind` is one of `KINDS`; `forecast` is what the row was told of lengths, null for the record.

`low`, `high` bound `avg_jct_s` (s) and `ratio_low`, `ratio_high` bound `ratio_to_baseline`
(this policy's mean JCT over the baseline's: below 1 is better), both at 95 %; null when there
was nothing to estimate them from. `preemptions` may be a mean over replicates.
"""


NO_SHARES = pl.DataFrame(schema=dict(SHARE_COLUMNS))
NO_TENANTS = pl.DataFrame(schema=dict(TENANT_COLUMNS))


@dataclass(frozen=True)
class RunResult:
    """One policy on one trace.

    `manifest`: policy, options, trace {name, jobs}, cluster {nodes, gpus, groups: a list of
    {name, nodes, gpus_per_node, gpu_type}}, seed, version. `summary`: DESIGN's summary keys.
    `gpu_seconds`: the kinds of `GPU_SECOND_KINDS`, which sum to the capacity. `splits`:
    'size_class', 'user', 'queue', 'model', 'queue_size' to a frame of `SPLIT_COLUMNS`. `shares`
    and `tenants` have rows if the cluster's file names queues or accounts.
    """

    manifest: dict[str, object]
    summary: dict[str, float | int | str | None]
    jobs: pl.DataFrame
    series: pl.DataFrame
    spans: pl.DataFrame
    gpu_seconds: dict[str, float]
    splits: dict[str, pl.DataFrame]
    shares: pl.DataFrame = field(default_factory=lambda: NO_SHARES)
    tenants: pl.DataFrame = field(default_factory=lambda: NO_TENANTS)

    @property
    def policy(self) -> str:
        """Returns the name of the policy, as the user spelled it."""
        return str(self.manifest.get("policy", self.summary.get("policy", "")))

    @property
    def origin_s(self) -> float:
        """Returns the time of the first submission, at which every plot begins."""
        first = self.jobs["submit_s"].min()
        return float(first) if isinstance(first, int | float) else 0.0

    @property
    def lasted_s(self) -> float:
        """Returns the time from the first submission to the latest time in any frame."""
        ends = (self.series["t_s"].max(), self.spans["end_s"].max(), self.jobs["finish_s"].max())
        known = [float(e) for e in ends if isinstance(e, int | float)]
        return max([0.0, *(e - self.origin_s for e in known)])

    @property
    def node_gpus(self) -> list[int]:
        """Returns the GPUs of each node, by the manifest or the largest job there."""
        cluster = self.manifest.get("cluster")
        groups = cluster.get("groups") if isinstance(cluster, dict) else None
        sizes: list[int] = []
        for group in groups if isinstance(groups, list) else []:
            sizes += [int(group["gpus_per_node"])] * int(group["nodes"])
        most = self.spans.group_by("node").agg(pl.col("gpus").max()).sort("node")
        for node, gpus in most.iter_rows():
            if node >= len(sizes):
                sizes += [0] * (node - len(sizes)) + [gpus]
        return sizes

    def number(self, key: str) -> float | None:
        """Returns one number of the summary, None if undefined."""
        value = self.summary.get(key)
        if isinstance(value, bool | str) or value is None or value != value:
            return None
        return float(value)


@dataclass(frozen=True, slots=True)
class Contrast:
    """How much longer the mean JCT is under `policy` than under `against`, over the same jobs.

    `asks` is the question that it answers, one of `QUESTIONS`; `low` and `high` bound the ratio
    at 95 %, None where there was too little to estimate them from.
    """

    asks: str
    policy: str
    against: str
    jobs: int
    ratio: float
    low: float | None
    high: float | None

    @property
    def is_open(self) -> bool:
        """Returns whether the interval includes 1: nobody can tell which is better."""
        known = self.low is not None and self.high is not None
        return known and (self.low or 0.0) <= 1 <= (self.high or 0.0)


QUESTIONS = ("today", "over site", "preemption", "known lengths", "elasticity", "sharing")
"""today: the best policy that could be deployed against the record, else the baseline; over site:
against the replay of the site's scheduler; the others: what that power or knowledge would add."""
AGAINST_TODAY = ("today", "over site")
"""The questions that compare the best deployable policy with what there is."""


@dataclass(frozen=True)
class Comparison:
    """Several policies on the same trace.

    `results` are in the order of the command line, after the record if the trace has one. `bound`
    has `bound_s` (a mean JCT that no schedule can beat) and optionally `kind`, the description of
    the bound. `cautions` come before the first sentence: what was left out, or decided by a
    default. `site` is the policy that stands for the scheduler of the site.
    """

    results: dict[str, RunResult]
    baseline: str
    table: pl.DataFrame
    bound: dict[str, object] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)
    contrasts: list[Contrast] = field(default_factory=list)
    site: str = ""
    replay_error: ReplayError | None = None

    @property
    def bound_s(self) -> float | None:
        """Returns the mean JCT that no schedule can beat, None if unknown."""
        value = self.bound.get("bound_s")
        known = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        return float(value) if known and isinstance(value, int | float) else None

    @property
    def ranked(self) -> pl.DataFrame:
        """Returns the table by kind of row and mean JCT, the shortest first; ties by name."""
        kind = pl.col("kind").fill_null(POLICY)
        place = kind.replace_strict(KINDS, range(len(KINDS)), return_dtype=pl.Int8)
        table = self.table.fill_nan(None).with_columns(place.alias("_place"))
        return table.sort("_place", "avg_jct_s", "policy", nulls_last=True).drop("_place")

    @property
    def policies(self) -> pl.DataFrame:
        """Returns the rows that could be chosen, ranked: neither the record nor known lengths."""
        return self.ranked.filter(pl.col("kind").fill_null(POLICY) == POLICY)

    @property
    def best(self) -> str:
        """Returns the policy with the shortest mean JCT of those that could be chosen."""
        rows = self.policies
        return str(rows["policy"][0]) if len(rows) else self.baseline

    @property
    def deployable(self) -> str:
        """Returns the best row that could be deployed today, empty where the rows do not tell."""
        if not self.contrasts:
            return ""
        first = self.contrasts[0]
        return first.policy if first.asks in AGAINST_TODAY else first.against

    def contrast(self, asks: str) -> Contrast | None:
        """Returns the answer to a question, None if no rows of the comparison answer it."""
        return next((c for c in self.contrasts if c.asks == asks), None)
