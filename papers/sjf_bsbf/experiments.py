"""The runs of the SJF-BSBF paper: a policy on a workload, and the experiment's grid of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.core.cluster import GIB, Cluster, NodeGroup
from dovetail.core.policy import registered
from dovetail.core.switching import Switching
from dovetail.core.trace import Trace
from dovetail.core.units import HOUR_S
from dovetail.record.result import RunResult
from dovetail.study.options import Options
from papers.frame.experiment import Experiment, Numbers, PaperRun, Results, W, listed
from papers.frame.scope import Scope
from papers.sjf_bsbf.published import CLASSES
from papers.sjf_bsbf.workloads import (
    LARGE_ABOVE_GPUS,
    MODELS,
    PHILLY,
    REALISTIC,
    TUNED,
    SjfBsbfWorkload,
)

POLICIES = ("fifo", "sjf", "tiresias", "pollux", "sjf-ffs", "sjf-bsbf")
SHARING = ("sjf-ffs", "sjf-bsbf")
LOADS = (120, 180, 240, 360, 480)
BASE, DOUBLE = 240, 480
XIS = (1.0, 1.25, 1.5, 1.75, 2.0)
SHARES = np.linspace(0, 1, 100)
"""The shares of jobs whose quantiles a run stores."""
JCT = "jct all"


@dataclass(frozen=True, slots=True)
class SjfBsbfRun(PaperRun[SjfBsbfWorkload]):
    """Its outcome: a few means in hours, by class and model, and the distribution of JCTs."""

    def numbers(self, trace: Trace, result: RunResult) -> Numbers:
        """Returns mean JCT and time not running of each class and model, in hours."""
        jobs = result.jobs
        jct_h = jobs["jct_s"].to_numpy() / HOUR_S
        waits_h = jobs["wait_s"].to_numpy() / HOUR_S
        large = jobs["gpus"].to_numpy() > LARGE_ABOVE_GPUS
        numbers = {"makespan_h": float(result.number("makespan_s") or 0.0) / HOUR_S}
        for name, rows in zip(CLASSES, (large | ~large, large, ~large), strict=True):
            numbers[f"jct {name}"] = float(jct_h[rows].mean()) if rows.any() else 0.0
            numbers[f"wait {name}"] = float(waits_h[rows].mean()) if rows.any() else 0.0
        of_model = jobs["model"].to_numpy()
        for model in MODELS:
            rows = of_model == model
            numbers[f"wait {model}"] = float(waits_h[rows].mean()) if rows.any() else 0.0
        return numbers | listed("q", np.quantile(jct_h, SHARES))


def sjf_bsbf_run(workload: SjfBsbfWorkload, policy: str) -> SjfBsbfRun:
    """Returns the run of a policy on the paper's cluster; only pollux may resize jobs."""
    nodes = 4 if "physical" in workload.kind else 16
    elastic = 1.0 if policy.startswith("pollux") else 0.0
    options = Options(
        cluster_of(nodes, memory_gib=16.0),
        switching=Switching.parse("restart:30"),
        adopt=(("elastic", elastic), ("shareable", 1.0)),
    )
    return SjfBsbfRun(workload, policy, options)


def cluster_of(nodes: int, memory_gib: float) -> Cluster:
    """Returns nodes of four GPUs with so much memory each."""
    return Cluster((NodeGroup("all", nodes, 4, gpu_memory_bytes=memory_gib * GIB),))


class SjfBsbfExperiment(Experiment):
    """Each run on several seeded workloads, pollux on fewer."""

    def __init__(self, scope: Scope, results: Results) -> None:
        super().__init__(scope, results, scope.seeds or scope.chosen(2, 8, 40))
        self.data = str(scope.data) if scope.has(TUNED, REALISTIC) else ""
        self.has_philly = scope.has(PHILLY)
        self.loads = (BASE, DOUBLE) if self.is_quick else LOADS
        # Pollux searches anew every minute, which takes a hundred times as long as the others.
        self.pollux_seeds = min(self.seeds, scope.chosen(0, 2, self.seeds))
        self.policies = [
            p for p in POLICIES if p in registered() and (p != "pollux" or self.pollux_seeds)
        ]

    def seeds_of(self, run: PaperRun[W]) -> int:
        """Returns the number of workloads that a policy is played on."""
        return self.pollux_seeds if run.policy.startswith("pollux") else self.seeds

    def run(
        self, policy: str, kind: str = "implied", jobs: int = BASE, load: float = 1.25
    ) -> SjfBsbfRun:
        """Returns the run of a policy on a kind of workload."""
        return sjf_bsbf_run(SjfBsbfWorkload(kind, jobs, 0, self.data, load), policy)
