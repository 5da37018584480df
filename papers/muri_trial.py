"""One run of the Muri study as a trial: jobs, a policy, and what may be varied about the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.core.cluster import Cluster
from dovetail.core.job import Floats
from dovetail.core.policy import parse_policy
from dovetail.core.switching import Switching
from dovetail.core.trace import Trace
from dovetail.record.result import RunResult
from dovetail.study.options import Options
from dovetail.study.run import build_physics, simulate
from papers.muri_workload import CLUSTER, Jobs
from papers.trials import Numbers

RESOURCES = ("storage", "cpu", "gpu", "network")
LINES = {"queue": "waiting", "blocking": "blocking_index"}
"""What is kept over time beside utilisations, and the columns it is in."""
POINTS = 120


@dataclass(frozen=True, slots=True)
class MuriTrial:
    """A policy on jobs. The defaults are those of every comparison of the study.

    A `detailed` one keeps each job's JCT, by its id, and the state of the cluster over time.
    """

    jobs: Jobs
    policy: str
    cycle: str = "overlapped"
    switching: str = "per-start:profile"
    belief: str = "exact"
    seed: int = 0
    detailed: bool = False
    cluster: str = CLUSTER

    def play(self) -> Numbers:
        """Returns mean JCT, makespan, tail, and what the cluster was like meanwhile."""
        trace, options = self.jobs.trace(), self.options()
        result = simulate(trace, parse_policy(self.policy), options, keep_spans=self.detailed)
        jct_s = result.jobs["jct_s"].to_numpy()
        kept = {
            "avg_jct_s": float(jct_s.mean()),
            "p99_jct_s": tail_s(jct_s),
            **{k: float(result.number(k) or 0.0) for k in KEPT},
        }
        if self.detailed:
            ids = result.jobs["job_id"].to_list()
            kept |= {f"jct:{i}": s for i, s in zip(ids, jct_s.tolist(), strict=True)}
            kept |= _over_time(result, trace, options)
        return kept

    def options(self) -> Options:
        """Returns what the run is played with: owners let their jobs share, GPUs are V100."""
        return Options(
            Cluster.parse(self.cluster),
            switching=Switching.parse(self.switching),
            adopt=(("shareable", 1.0),),
            cycle=self.cycle,
            belief=self.belief,
            seed=self.seed,
        )


KEPT = ("makespan_s", "gpu_utilization", "preemptions")
"""What a trial keeps of the summary."""


def tail_s(jct_s: Floats) -> float:
    """Returns the 99th percentile as the authors' script takes it: entry floor(0.99 n)."""
    return float(np.sort(jct_s)[int(0.99 * len(jct_s))])


def line(numbers: Numbers, name: str) -> list[float]:
    """Returns what a detailed trial kept over time under a name, or `t` for the times."""
    return [numbers[f"{name}:{i}"] for i in range(POINTS)]


def _over_time(result: RunResult, trace: Trace, options: Options) -> dict[str, float]:
    """Returns queue length, blocking index and utilisations as averages over equal spans.

    `mean` of each is the average up to the last submission: after it queues only drain.
    """
    edges = np.linspace(0.0, result.lasted_s, POINTS + 1) + result.origin_s
    busy_time = result.origin_s + np.array([0.0, max(1.0, float(np.ptp(trace.jobs.submit_s)))])
    series = result.series
    at = series["t_s"].to_numpy()
    ends = np.append(at[1:], edges[-1])
    kept = _line("t", ((edges[1:] + edges[:-1]) / 2 - result.origin_s).tolist())
    for name, column in LINES.items():
        values = series[column].cast(float).fill_null(0.0).fill_nan(0.0).to_numpy()
        kept |= _line(name, _averages(at, ends, values, edges))
        kept[f"mean {name}"] = _averages(at, ends, values, busy_time)[0]
    spans = result.spans.filter(result.spans["kind"] == "run")
    row_of = {job_id: i for i, job_id in enumerate(trace.jobs.job_id)}
    rows = [row_of[job_id] for job_id in spans["job_id"].to_list()]
    busy = spans["rate"].to_numpy() * spans["gpus"].to_numpy() / options.cluster.gpus
    shares = _shares(trace, options)[rows]
    begin_s, end_s = spans["start_s"].to_numpy(), spans["end_s"].to_numpy()
    for resource, share in zip(RESOURCES, shares.T, strict=True):
        kept |= _line(resource, _averages(begin_s, end_s, busy * share, edges))
        kept[f"mean {resource}"] = _averages(begin_s, end_s, busy * share, busy_time)[0]
    return kept


def _shares(trace: Trace, options: Options) -> Floats:
    """Returns the share of an iteration alone that each job keeps each resource busy."""
    # All four resources, whatever the rule of the run takes for stages.
    physics = build_physics(trace, replace(options, cycle="overlapped"))
    known = physics.sharing.interleaving
    alone_s = np.where(known.iteration_s > 0, known.iteration_s, 1.0)
    return np.asarray((known.stage_s / alone_s[:, None])[physics.kind_of])


def _averages(begin_s: Floats, end_s: Floats, values: Floats, edges: Floats) -> list[float]:
    """Returns the time averages, between edges, of a sum of values that each hold for a while."""
    times = np.concatenate([begin_s, end_s])
    steps = np.concatenate([values, -values])
    order = np.argsort(times, kind="stable")
    times, level = times[order], np.cumsum(steps[order])
    area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times))])
    averages = np.diff(np.interp(edges, times, area)) / np.diff(edges)
    return [float(v) for v in averages]


def _line(name: str, values: Sequence[float]) -> dict[str, float]:
    return {f"{name}:{i}": v for i, v in enumerate(values)}
