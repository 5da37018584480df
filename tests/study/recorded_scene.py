"""Makes logs with a record: what a policy did in a simulation, as if a cluster had done it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dovetail.core.job import Labels
from dovetail.core.policy import parse_policy
from dovetail.core.trace import Recorded, RecordedRuns, Trace
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


Run = tuple[int, float, float, str]
"""Row of the job, start and end, and why the run ended before its job did."""


def listed(runs: list[Run], held_s: list[float] | None = None) -> RecordedRuns:
    """Returns the list of these runs, which are in order of job and time."""
    first_s: dict[int, float] = {}
    for job, start_s, _, _ in runs:
        first_s.setdefault(job, start_s)
    return RecordedRuns(
        np.array([job for job, _, _, _ in runs], np.int64),
        np.array([start_s - first_s[job] for job, start_s, _, _ in runs]),
        np.array([end_s - start_s for _, start_s, end_s, _ in runs]),
        np.array(held_s or [0.0] * len(runs)),
        Labels.of([cause for _, _, _, cause in runs]),
    )


def preempted_runs(run: RunResult) -> RecordedRuns | None:
    """Returns the runs of the jobs of a simulation that were preempted, None if none was."""
    runs: list[Run] = []
    order = ["job_id", "start_s", "end_s"]
    spans = run.spans.select(order).sort(order).rows_by_key("job_id")
    for row, (job, stops) in enumerate(run.jobs.select("job_id", "preemptions").iter_rows()):
        own: list[Run] = []
        for start_s, end_s in spans[job] if stops else ():
            if own and start_s <= own[-1][2]:
                own[-1] = (row, own[-1][1], max(end_s, own[-1][2]), "PREEMPTED")
            else:
                own.append((row, start_s, end_s, "PREEMPTED"))
        runs += [*own[:-1], (*own[-1][:3], "")] if own else []
    return listed(runs) if runs else None


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
        runs=preempted_runs(run),
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
