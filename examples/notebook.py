"""Dovetail in a notebook: which policy would serve a cluster best, in a few lines.

Each part below is one cell. Run it all with `python examples/notebook.py`.
"""

import polars as pl

import dovetail as dt

# %% A trace: your own log (`dt.read_trace("month.csv")`), or a seeded one.
trace = dt.generate("philly-like", jobs=1000, days=7, cluster="8x8", load=0.9, seed=1)
print(dt.to_frame(trace).head(3))

# %% Policies on equal terms: ranked, with intervals and the distance from the best possible.
ranking = dt.compare(trace, ["fifo", "backfill", "sjf", "srtf"], cluster="8x8")
print(ranking)
print(ranking.ranked.select("policy", "avg_jct_s", "ratio_to_baseline", "x_bound"))

# %% One run in depth: every job, the cluster over time, who waited.
run = dt.simulate(trace, "srtf", cluster="8x8")
waits = run.jobs.group_by("size_class").agg(pl.col("wait_s").mean()).sort("size_class")
print(waits)
print(run.series.select("t_s", "waiting", "held_gpus").tail(3))

# %% How good could any schedule be?
print(dt.bound(trace, cluster="8x8").table)
