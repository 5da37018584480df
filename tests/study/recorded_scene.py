"""Makes logs with a record: what a policy did in a simulation, as if a cluster had done it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dovetail.core.job import Labels
from dovetail.core.policy import parse_policy
from dovetail.core.trace import Recorded, Trace
from dovetail.record.result import RunResult
from dovetail.study.options import Options
from dovetail.study.run import simulate


def node_lists(run: RunResult) -> list[str]:
    """Returns the node list of each job, as Slurm writes it."""
    nodes: dict[str, set[int]] = {job: set() for job in run.jobs["job_id"]}
    for job, node in run.spans.select("job_id", "node").iter_rows():
        nodes[job].add(node)
    return [
        f"n[{','.join(f'{node:02d}' for node in sorted(found))}]" if found else "None assigned"
        for found in nodes.values()
    ]


def logged(trace: Trace, policy: str, options: Options) -> tuple[Trace, RunResult]:
    """Returns the trace with the record of its simulation under a policy, and that run."""
    run = simulate(trace, parse_policy(policy), options, keep_spans=True)
    jobs = run.jobs
    record = Recorded(
        jobs["start_s"].to_numpy(),
        jobs["finish_s"].to_numpy(),
        jobs["wait_s"].to_numpy(),
        jobs["preemptions"].to_numpy(),
        Labels.of(node_lists(run)),
    )
    return replace(trace, recorded=record), run


def by_hand(trace: Trace, start_s: list[float], end_s: list[float], **more: list[float]) -> Trace:
    """Returns the trace with a record; waits and restarts are unknown and 0 unless given."""
    n = len(trace)
    record = Recorded(
        np.array(start_s, np.float64),
        np.array(end_s, np.float64),
        np.array(more.get("wait_s", [np.nan] * n), np.float64),
        np.array(more.get("restarts", [0] * n), np.int64),
        Labels.none(n),
    )
    return replace(trace, recorded=record)
