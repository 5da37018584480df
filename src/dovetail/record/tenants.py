"""What tenants ask of a run: the share each deserved and got over time, waits, stops, fairness.

Shares are means over periods of equal length. A tenant asks for the GPUs that its jobs hold or wait
for; what it deserves of the GPUs that are up follows from the tree of the cluster's file
(`core.tenant_tree`), by what all tenants ask for in that period, whatever the policy does.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl

from dovetail.core.cluster import Cluster
from dovetail.core.job import Floats, Ints, JobTable
from dovetail.core.tenant_tree import TenantTree
from dovetail.core.units import NEVER_S
from dovetail.record.result import SHARE_COLUMNS, TENANT_COLUMNS
from dovetail.record.tally import Tally

PERIODS = 200
"""The periods into which a run is divided."""


def has_tenants(cluster: Cluster) -> bool:
    """Returns whether the file of a cluster names queues or accounts."""
    return bool(cluster.queues or cluster.accounts)


def share_frame(cluster: Cluster, jobs: JobTable, tally: Tally) -> pl.DataFrame:
    """Returns the GPUs that each queue and account deserved, asked for and held, by period."""
    tree = TenantTree(cluster.queues, cluster.accounts)
    edges = _edges(jobs, tally)
    if not has_tenants(cluster) or len(edges) < 2:
        return pl.DataFrame(schema=dict(SHARE_COLUMNS))
    leaves = tree.leaves(jobs, np.arange(len(jobs)))
    held = _held(tally, leaves, edges, len(tree))
    asked = np.maximum(_asked(jobs, tally, leaves, edges, len(tree)), held)
    up = _capacity(tally, edges)
    rows: list[tuple[object, ...]] = []
    for period in range(len(edges) - 1):
        deserved = tree.deserved(asked[:, period], float(up[period]))
        when = (float(edges[period]), float(edges[period + 1]))
        got, wanted = tree.sums(held[:, period]), tree.sums(asked[:, period])
        for number, level, name in _named(tree):
            values = (deserved[number], wanted[number], got[number])
            rows.append((*when, level, name, *map(float, values)))
    frame = pl.DataFrame(rows, schema=dict(SHARE_COLUMNS), orient="row")
    # An account has a place in each queue where it has jobs.
    keys = ["t_s", "until_s", "level", "tenant"]
    return frame.group_by(keys, maintain_order=True).agg(pl.exclude(keys).sum())


def tenant_frame(jobs: pl.DataFrame, shares: pl.DataFrame) -> pl.DataFrame:
    """Returns one row per queue and account: its jobs, waits, stops, and shares over the run."""
    rows = []
    length = pl.col("until_s") - pl.col("t_s")
    for level in ("queue", "account"):
        part = shares.filter(pl.col("level") == level)
        mean = part.group_by("tenant", maintain_order=True).agg(
            *[
                ((pl.col(name) * length).sum() / length.sum()).alias(name)
                for name in ("deserved_gpus", "asked_gpus", "held_gpus")
            ]
        )
        own = jobs.group_by(pl.col(level).alias("tenant")).agg(
            pl.len().cast(pl.Int64).alias("jobs"),
            pl.col("wait_s").mean().alias("avg_wait_s"),
            pl.col("time_to_start_s").mean().alias("avg_time_to_start_s"),
            pl.col("preemptions").sum().alias("preemptions"),
            pl.col("reclaims").sum().alias("reclaims"),
        )
        rows.append(
            mean.join(own, on="tenant", how="left")
            .with_columns(pl.lit(level).alias("level"))
            .with_columns(pl.col("jobs", "preemptions", "reclaims").fill_null(0))
            .select(*TENANT_COLUMNS)
        )
    return pl.concat(rows)


def jain_index(tenants: pl.DataFrame) -> float | None:
    """Returns Jain's index of the queues: 1 if all got the same part of what they deserved.

    (sum x)^2 / (n sum x^2), where x is held over deserved GPUs, of those that deserved any.
    """
    queues = tenants.filter((pl.col("level") == "queue") & (pl.col("deserved_gpus") > 0))
    part = (queues["held_gpus"] / queues["deserved_gpus"]).to_numpy()
    squares = float((part**2).sum())
    return float(part.sum()) ** 2 / (len(part) * squares) if squares else None


def _named(tree: TenantTree) -> Iterable[tuple[int, str, str]]:
    """Yields the tenants that are queues or accounts, with their names."""
    for number, tenant in enumerate(tree.tenants):
        last = tenant.path[-1] if tenant.path else ""
        if tenant.account and last == f"account {tenant.account}":
            yield number, "account", tenant.account
        elif tenant.queue and last == tenant.queue:
            yield number, "queue", tenant.queue


def _edges(jobs: JobTable, tally: Tally) -> Floats:
    ends = [t for t in tally.finish_s if t < NEVER_S]
    if not ends or not max(ends) > float(jobs.submit_s[0]):
        return np.zeros(0)
    return np.linspace(float(jobs.submit_s[0]), max(ends), PERIODS + 1)


def _held(tally: Tally, leaves: Ints, edges: Floats, count: int) -> Floats:
    rows = np.array([s.job for s in tally.segments], np.int64)
    gpus = np.array([s.placement.held_gpus for s in tally.segments], np.float64)
    start = np.array([s.start_s for s in tally.segments])
    end = np.array([s.end_s for s in tally.segments])
    return _means(leaves[rows], gpus, start, end, edges, count)


def _asked(jobs: JobTable, tally: Tally, leaves: Ints, edges: Floats, count: int) -> Floats:
    end = np.minimum(np.array(tally.finish_s), edges[-1])
    return _means(leaves, jobs.asked_gpus, jobs.submit_s, end, edges, count)


def _capacity(tally: Tally, edges: Floats) -> Floats:
    """Returns the mean GPUs that were up in each period."""
    t, capacity = tally.columns[0], tally.columns[4].astype(np.float64)
    until = np.append(t[1:], edges[-1])
    ones = np.zeros(len(t), np.int64)
    return np.asarray(_means(ones, capacity, t, until, edges, 1)[0])


def _means(
    leaves: Ints, gpus: Floats, start: Floats, end: Floats, edges: Floats, count: int
) -> Floats:
    """Returns the mean GPUs of intervals [leaves, periods]."""
    total = np.zeros((count, len(edges)))
    for leaf in np.unique(leaves).tolist():
        mine = leaves == leaf
        for sign, times in ((1.0, start[mine]), (-1.0, end[mine])):
            order = np.argsort(times, kind="stable")
            weight, moment = gpus[mine][order], times[order]
            passed = np.searchsorted(moment, edges, side="left")
            sums = np.concatenate([[0.0], np.cumsum(weight)])[passed]
            areas = np.concatenate([[0.0], np.cumsum(weight * moment)])[passed]
            total[leaf] += sign * (sums * edges - areas)
    return np.asarray(np.diff(total, axis=1) / np.diff(edges))
