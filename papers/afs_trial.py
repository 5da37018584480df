"""One run of the AFS study as a trial: a workload, a size, a policy, and whether costs count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from dovetail.core.cluster import Cluster
from dovetail.core.placing import Placing
from dovetail.core.policy import parse_policy
from dovetail.core.switching import Switching
from dovetail.record.result import GPU_SECOND_KINDS, RunResult
from dovetail.study.options import Options
from dovetail.study.run import simulate
from papers.afs_workload import GPUS_PER_NODE, NODES, Workload
from papers.trials import Numbers

KEPT = (
    *("avg_jct_s", "median_jct_s", "p99_jct_s", "avg_queue_s", "makespan_s", "left_out"),
    *("avg_queue_length", "cluster_efficiency", "avg_blocking_index", "gpu_utilization"),
    *("preemptions", "resizes"),
)
"""What a trial keeps of the summary."""

SERIES = {"QL": "waiting", "CE": "cluster_efficiency", "BI": "blocking_index"}
"""The metrics of section 2.2, and the columns they are in."""
POINTS = 160


@dataclass(frozen=True, slots=True)
class AfsTrial:
    """A policy on a workload.

    Without a word on `switching` the cluster is one pool where nothing but the GPU count
    decides a job's speed and changing it is free: the paper's simulator, which knows measured
    throughputs alone (section 5.1). With one, placement, network and switches cost what they
    cost. A `detailed` one keeps each job's JCT and the metrics over time as well.
    """

    workload: Workload
    policy: str
    nodes: int = NODES
    seed: int = 0
    models: str = "drawn"
    switching: str = ""
    detailed: bool = False

    def play(self) -> Numbers:
        """Returns means, tails, and where all GPU-seconds went."""
        result = simulate(
            self.workload.jobs(self.models, self.seed), parse_policy(self.policy), self.options()
        )
        kept = {key: _number(result.summary.get(key)) for key in KEPT}
        kept |= {f"gpu:{kind}": result.gpu_seconds[kind] for kind in GPU_SECOND_KINDS}
        if self.detailed:
            kept |= _sequence("jct", result.jobs["jct_s"].to_list())
            kept |= _over_time(result)
        return kept

    def options(self) -> Options:
        """Returns what the run is played with."""
        live = bool(self.switching)
        return Options(
            cluster=Cluster.parse(f"{self.nodes}x{GPUS_PER_NODE}"),
            placing=Placing() if live else Placing.parse("none"),
            switching=Switching.parse(self.switching or "none"),
            physics="placed" if live else "counted",
            adopt=(("elastic", 1.0),),
            seed=self.seed,
        )


def sequence(numbers: Numbers, name: str) -> list[float]:
    """Returns a list that a trial kept under a name."""
    return [numbers[f"{name}:{i}"] for i in range(int(numbers[f"{name}:"]))]


def _sequence(name: str, values: Sequence[float | None]) -> dict[str, float]:
    listed = {f"{name}:{i}": _number(v) for i, v in enumerate(values)}
    return {f"{name}:": float(len(values)), **listed}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def _over_time(result: RunResult) -> dict[str, float]:
    """Returns QL, CE and BI as averages over equal spans of the run."""
    series = result.series
    at = series["t_s"].to_numpy() - result.origin_s
    edges = np.linspace(0.0, result.lasted_s, POINTS + 1)
    kept = _sequence("t", ((edges[1:] + edges[:-1]) / 2).tolist())
    for name, column in SERIES.items():
        values = series[column].cast(pl.Float64).fill_null(0.0).fill_nan(0.0).to_numpy()
        spent = np.diff(at, append=max(result.lasted_s, float(at[-1])))
        area = np.concatenate(([0.0], np.cumsum(values * spent)))
        ends = np.append(at, at[-1] + spent[-1])
        kept |= _sequence(name, (np.diff(np.interp(edges, ends, area)) / np.diff(edges)).tolist())
    return kept
