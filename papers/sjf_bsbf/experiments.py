"""The runs of the SJF-BSBF paper: one policy on one workload, and means over seeded workloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.core.cluster import GIB, Cluster, NodeGroup
from dovetail.core.policy import parse_policy, registered
from dovetail.core.switching import Switching
from dovetail.core.units import HOUR_S
from dovetail.study.options import Options
from dovetail.study.run import simulate
from papers.frame.results import Numbers, Results
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
QUANTILES = 100
"""Points of each distribution kept from a run."""


@dataclass(frozen=True, slots=True)
class SjfBsbfRun:
    """One policy on one workload, whose outcome is a few means and the distribution of JCTs."""

    workload: SjfBsbfWorkload
    policy: str
    interference: str | float = "measured"
    memory_gib: float = 16.0
    switching: str = "restart:30"
    physics: str = "placed"

    def play(self) -> Numbers:
        """Returns mean JCT and time not running of each class and model, in hours."""
        nodes = 4 if "physical" in self.workload.kind else 16
        group = NodeGroup("all", nodes, 4, gpu_memory_bytes=self.memory_gib * GIB)
        elastic = 1.0 if self.policy.startswith("pollux") else 0.0
        options = Options(
            Cluster((group,)),
            switching=Switching.parse(self.switching),
            adopt=(("elastic", elastic), ("shareable", 1.0)),
            interference=self.interference,
            physics=self.physics,
        )
        result = simulate(self.workload.trace(), parse_policy(self.policy), options)
        jobs = result.jobs
        jct_h = jobs["jct_s"].to_numpy() / HOUR_S
        waits_h = jobs["nonrunning_s"].to_numpy() / HOUR_S
        large = jobs["gpus"].to_numpy() > LARGE_ABOVE_GPUS
        numbers = {"makespan_h": float(result.number("makespan_s") or 0.0) / HOUR_S}
        for name, rows in zip(CLASSES, (large | ~large, large, ~large), strict=True):
            numbers[f"jct {name}"] = float(jct_h[rows].mean()) if rows.any() else 0.0
            numbers[f"wait {name}"] = float(waits_h[rows].mean()) if rows.any() else 0.0
        of_model = jobs["model"].to_numpy()
        for model in MODELS:
            rows = of_model == model
            numbers[f"wait {model}"] = float(waits_h[rows].mean()) if rows.any() else 0.0
        points = np.quantile(jct_h, np.linspace(0, 1, QUANTILES))
        return {**numbers, **{f"q{i}": float(q) for i, q in enumerate(points)}}


class SjfBsbfExperiment:
    """The runs of a paper, each a mean over its seeds, looked up by what differs between them."""

    def __init__(self, results: Results, scope: Scope, seeds: int) -> None:
        self._results = results
        self.data = str(scope.data) if scope.has(TUNED, REALISTIC) else ""
        self.has_philly = scope.has(PHILLY)
        self.seeds = seeds
        self.loads = (BASE, DOUBLE) if scope.effort == "quick" else LOADS
        # Pollux searches anew every minute, which takes a hundred times as long as the others.
        self.pollux_seeds = min(seeds, scope.chosen(0, 2, seeds))
        self.policies = [p for p in POLICIES if p in registered() and self.seeds_of(p)]

    def seeds_of(self, policy: str) -> int:
        """Returns how many workloads a policy is played on."""
        return self.pollux_seeds if policy.startswith("pollux") else self.seeds

    def runs(self, run: SjfBsbfRun) -> list[SjfBsbfRun]:
        """Returns a run on the workload of each seed."""
        seeds = range(self.seeds_of(run.policy))
        return [replace(run, workload=replace(run.workload, seed=s)) for s in seeds]

    def prepare(self, runs: Sequence[SjfBsbfRun]) -> None:
        """Plays runs on all their seeds at once, so that one bar shows all of it."""
        self._results.play([one for run in runs for one in self.runs(run)])

    def each(self, run: SjfBsbfRun, what: str) -> list[float]:
        """Returns one number of each seed."""
        return self._results.each(self.runs(run), what)

    def mean(self, run: SjfBsbfRun, what: str = "jct all") -> float:
        """Returns the mean of a number over the seeds."""
        return self._results.mean(self.runs(run), what)

    def ratio(self, mine: SjfBsbfRun, other: SjfBsbfRun, what: str = "jct all") -> float:
        """Returns the ratio of two means over the seeds that both were played on."""
        pairs = list(zip(self.each(mine, what), self.each(other, what), strict=False))
        return sum(a for a, _ in pairs) / sum(b for _, b in pairs)

    def means(self, run: SjfBsbfRun, what: Sequence[str]) -> list[float]:
        """Returns the means of several numbers."""
        return [self.mean(run, name) for name in what]

    def workload(
        self, kind: str = "implied", jobs: int = BASE, load: float = 1.25
    ) -> SjfBsbfWorkload:
        """Returns the workload of a kind, on its first seed."""
        return SjfBsbfWorkload(kind, jobs, 0, self.data, load)
