"""The runs of the Sia paper: Sia and Pollux by the authors' measured tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.policy import parse_policy
from dovetail.core.switching import Switching
from dovetail.core.units import HOUR_S
from dovetail.study.options import Options
from dovetail.study.run import build_scene
from papers.frame.experiment import Experiment, Numbers, PaperRun, Playable, Results, play_scene
from papers.frame.scope import Scope
from papers.sia.measured import measured_physics
from papers.sia.workloads import (
    FOLDER,
    HALVED,
    HETEROGENEOUS,
    HOMOGENEOUS,
    TRACES,
    SiaCluster,
    SiaWorkload,
)

SIA, POLLUX = "sia", "pollux:decay=0"
"""Pollux without weights, as in its authors' simulator, which this one extends."""
SWITCHING = "per-start:50,per-resize:50"
"""A first start costs what it does to most jobs; every other one has its model's price."""
WORKLOADS = {"philly": 8, "saturn": 10}


@dataclass(frozen=True, slots=True)
class SiaRun(PaperRun[SiaWorkload]):
    """A policy on one of the workloads."""

    def play(self) -> Numbers:
        """Returns hours of the run, played by the measured tables."""
        trace = self.workload.trace()
        work = self.workload.work(trace)
        scene = build_scene(trace, self.options)
        physics = measured_physics(scene.truth, work)
        tally = play_scene(replace(scene, truth=physics, belief=physics), parse_policy(self.policy))
        jct_h = (np.array(tally.finish_s) - trace.jobs.submit_s) / HOUR_S
        return {
            "jct": float(jct_h.mean()),
            "p99": float(np.quantile(jct_h, 0.99)),
            "makespan": (max(tally.finish_s) - float(trace.jobs.submit_s[0])) / HOUR_S,
            "gpu_h": float(np.mean(tally.service_gpu_s)) / HOUR_S,
            "restarts": float(np.mean(np.add(tally.preemptions, tally.resizes))),
        }


class SiaExperiment(Experiment):
    """Both policies on the workloads that the effort allows, on both clusters."""

    def __init__(self, scope: Scope, results: Results) -> None:
        super().__init__(scope, results, 1)
        if not scope.has(f"{FOLDER}/traces", f"{FOLDER}/workloads"):
            what = f"the Sia authors' workloads and tables are not in {FOLDER} of the data folder"
            mend = "they are in github.com/siasosp23/artifacts, sia-simulator; give --data"
            raise InputError("study 'sia'", what, mend)
        self.data = str(scope.data)
        self.most = scope.chosen(1, 3, 10)

    def numbers_of(self, source: str) -> Sequence[int]:
        """Returns the numbers of the workloads of a trace that are played."""
        return range(1, min(self.most, WORKLOADS[source]) + 1)

    def each_run(self, policy: str, source: str, cluster: SiaCluster) -> list[SiaRun]:
        """Returns the runs of a policy on the workloads of a trace."""
        options = Options(
            Cluster.parse(cluster.text), switching=Switching.parse(SWITCHING), physics="linear"
        )
        return [
            SiaRun(SiaWorkload(self.data, source, number, cluster), policy, options)
            for number in self.numbers_of(source)
        ]

    def mixed(self, policy: str, source: str) -> list[SiaRun]:
        """Returns the runs on three types of GPU; Pollux sees half nodes, all alike."""
        return self.each_run(policy, source, HETEROGENEOUS if policy == SIA else HALVED)

    def alike(self, policy: str) -> list[SiaRun]:
        """Returns the runs on T4 alone."""
        return self.each_run(policy, "philly", HOMOGENEOUS)

    def hours(self, runs: Sequence[SiaRun], key: str = "jct") -> float:
        """Returns the mean of a number over workloads."""
        return self.results.mean(runs, key)

    def runs(self) -> list[Playable]:
        """Returns every run."""
        policies = (SIA,) if self.is_quick else (POLLUX, SIA)
        sources = ("philly",) if self.is_quick else TRACES
        runs = [run for p in policies for s in sources for run in self.mixed(p, s)]
        return [*runs, *(run for p in policies for run in self.alike(p))]
