"""The runs of the AFS paper: a policy on a virtual cluster, appendix A, and all cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from dovetail.core.cluster import Cluster
from dovetail.core.job import Floats, JobTable, Labels
from dovetail.core.placing import Placing
from dovetail.core.policy import parse_policy
from dovetail.core.switching import Switching
from dovetail.core.trace import Trace
from dovetail.core.units import HOUR_S
from dovetail.forecast.forecasts import parse_forecast
from dovetail.physics.placed import placed_physics
from dovetail.physics.zoo.models import Catalogue, zoo
from dovetail.physics.zoo.profile import Curve, ModelProfile
from dovetail.physics.zoo.profile_file import ProfileSet
from dovetail.physics.zoo.provenance import Provenance, Sourced
from dovetail.record.result import GPU_SECOND_KINDS, RunResult
from dovetail.sim.scene import Scene
from dovetail.study.options import Options
from papers.afs.workloads import GENERATED, GPUS_PER_NODE, NODES, AfsWorkload, available
from papers.frame.claim import at_most
from papers.frame.experiment import (
    Experiment,
    Numbers,
    PaperRun,
    Playable,
    Results,
    listed,
    play_scene,
)
from papers.frame.scope import Scope

KEPT = (
    *("avg_jct_s", "median_jct_s", "p99_jct_s", "avg_time_to_start_s", "makespan_s", "left_out"),
    *("avg_queue_length", "cluster_efficiency", "avg_blocking_index", "gpu_utilization"),
    *("preemptions", "resizes"),
)
"""What a run keeps of the summary."""

SERIES = {"QL": "waiting", "CE": "cluster_efficiency", "BI": "blocking_index"}
"""The metrics of section 2.2, and the columns they are in."""
POINTS = 160


@dataclass(frozen=True, slots=True)
class AfsRun(PaperRun[AfsWorkload]):
    """A policy on a workload; a `detailed` one stores each job's JCT and the metrics over time."""

    detailed: bool = False

    def numbers(self, trace: Trace, result: RunResult) -> Numbers:
        """Returns means, tails, and where all GPU-seconds went."""
        numbers = {key: _number(result.summary.get(key)) for key in KEPT}
        numbers |= {f"gpu:{kind}": result.gpu_seconds[kind] for kind in GPU_SECOND_KINDS}
        if self.detailed:
            numbers |= listed("jct", result.jobs["jct_s"].to_list())
            numbers |= _over_time(result)
        return numbers


def pooled(nodes: int = NODES) -> Options:
    """Returns the paper's simulator, which knows measured throughputs alone (section 5.1).

    The cluster is one pool where nothing but the GPU count decides a job's speed, and changing it
    is free.
    """
    return Options(
        Cluster.parse(f"{nodes}x{GPUS_PER_NODE}"),
        placing=Placing.parse("none"),
        switching=Switching.parse("none"),
        physics="counted",
        adopt=(("elastic", 1.0),),
    )


def on_machines(switching: str) -> Options:
    """Returns the paper's cluster, where placement, network and switches cost what they cost."""
    return replace(
        pooled(), placing=Placing(), switching=Switching.parse(switching), physics="placed"
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def _over_time(result: RunResult) -> dict[str, float]:
    """Returns QL, CE and BI as averages over equal spans of the run."""
    series = result.series
    at = series["t_s"].to_numpy() - result.origin_s
    edges = np.linspace(0.0, result.lasted_s, POINTS + 1)
    numbers = listed("t", (edges[1:] + edges[:-1]) / 2)
    for name, column in SERIES.items():
        values = series[column].cast(pl.Float64).fill_null(0.0).fill_nan(0.0).to_numpy()
        spent = np.diff(at, append=max(result.lasted_s, float(at[-1])))
        area = np.concatenate(([0.0], np.cumsum(values * spent)))
        ends = np.append(at, at[-1] + spent[-1])
        numbers |= listed(name, np.diff(np.interp(edges, ends, area)) / np.diff(edges))
    return numbers


ONE_GPU_H, A_H, B_H = 2.0, 1.0, 1.5
"""Any job takes two hours on one GPU; A takes one on two, B one and a half."""
FOLLOWERS = 40


@dataclass(frozen=True, slots=True)
class ToyRun:
    """A and B at time 0 on two GPUs; with `follower_h`, a stream of jobs that take so long on two.

    The first comes after an hour, each next one as long after it as it takes on two GPUs.
    """

    policy: str
    follower_h: float = 0.0

    def play(self) -> Numbers:
        """Returns the mean JCT in hours."""
        hours = [A_H, B_H, *([self.follower_h] * FOLLOWERS if self.follower_h else [])]
        submit = [0.0, 0.0, *(1 + i * self.follower_h for i in range(len(hours) - 2))]
        n = len(hours)
        models = tuple(f"toy/{h:g}" for h in sorted(set(hours)))
        jobs = JobTable.build(
            [f"{i:03d}" for i in range(n)],
            np.array(submit) * HOUR_S,
            np.full(n, 2),
            model=Labels(
                np.array([models.index(f"toy/{h:g}") for h in hours], dtype=np.int32), models
            ),
        )
        jobs = replace(jobs, elastic=np.ones(n, dtype=bool), min_gpus=np.ones(n, dtype=np.int64))
        trace = Trace.of(jobs, np.array(hours) * HOUR_S, "appendix A")
        finish = _finishes(trace, sorted(set(hours)), self.policy)
        return {"avg_jct_h": float((finish - jobs.submit_s).mean()) / HOUR_S}


def _finishes(trace: Trace, two_gpus_h: list[float], policy: str) -> Floats:
    profiles = tuple(_profile(hours) for hours in two_gpus_h)
    cluster = Cluster.parse("1x2")
    truth = placed_physics(
        trace.jobs,
        cluster,
        Catalogue((ProfileSet("toy", "appendix A", "", (), profiles),)),
        by_count=True,
    )
    scene = Scene(
        trace=trace,
        cluster=cluster,
        truth=truth,
        belief=truth,
        forecast=parse_forecast("known", trace, 0),
        placing=Placing.parse("none"),
        switching=Switching.parse("none"),
    )
    return np.array(play_scene(scene, parse_policy(policy)).finish_s)


def _profile(two_gpus_h: float) -> ModelProfile:
    """Returns a model as fast on two GPUs as in the toy; its other fields play no part."""
    curve = Curve((1, 2), (ONE_GPU_H, two_gpus_h))
    return replace(
        zoo()["afs/vgg16"],
        name=f"{two_gpus_h:g}",
        family="toy",
        aliases=(),
        max_gpus=Sourced(2, Provenance.ASSUMED, "appendix A"),
        curve=Sourced(curve, Provenance.ASSUMED, "appendix A"),
    )


AWARE = ("srtf", "srsf", "optimus", "afs-l")
UNAWARE = ("tiresias", "themis", "optimus", "max-min", "afs-p")
"""The two categories of section 5.1. Optimus is in both: its estimates are taken to be right."""
MAXIMAL = ("srtf-max", "srsf-max", "tiresias-max")
ALTRUISTIC = ("srtf-e", "srsf-e")
NAMES = {
    "srtf": "SRTF", "srsf": "SRSF", "optimus": "Optimus", "afs-l": "AFS-L",
    "tiresias": "Tiresias-L", "themis": "Themis", "max-min": "Max-Min", "afs-p": "AFS-P",
    "afs-s": "AFS-S", "srtf-e": "SRTF-E", "srsf-e": "SRSF-E", "srtf-max": "SRTF-max",
    "srsf-max": "SRSF-max", "tiresias-max": "Tiresias-max",
}  # fmt: skip

AUTHORS = -1
"""The draw of models that the files hold: the one the paper's own numbers are from."""

LOADS = (0.7, 1.0, 1.5)
CODDL = "restart:30,prepared:10"
RUNTIMES = {CODDL: "CoDDL", f"{CODDL},one-by-one": "no RC", "restart:30,one-by-one": "no RC/ES"}
"""The runtimes of Figure 8: without cancelling outdated orders, and without preparing GPUs too."""
DAYS = (50, 116)
TOLD_S = (600.0, 1800.0, 3600.0, 14400.0)
"""Seconds that the monitored job of Figure 8a may take on one GPU: not published."""


@dataclass(frozen=True, slots=True)
class AfsCase:
    """A workload on one cluster: what Figures 5, 6, 9, 11, 13 have one group of bars for."""

    workload: AfsWorkload
    nodes: int
    policies: tuple[str, ...]
    draws: tuple[int, ...]
    load: float | None = None
    detailed: bool = False
    results: Results = field(default_factory=Results)

    @property
    def words(self) -> str:
        """Returns the size in words, for the parts of the report."""
        if self.load is None:
            return f"{4 * self.nodes} GPUs"
        return f"load {self.load:g}, {4 * self.nodes} GPUs"

    def run(self, policy: str, draw: int) -> AfsRun:
        """Returns the run of one policy with one draw of models."""
        models = "file" if draw == AUTHORS else "drawn"
        workload = replace(self.workload, seed=max(draw, 0), models=models)
        detailed = self.detailed and draw == self.draws[0]
        return AfsRun(workload, policy, pooled(self.nodes), detailed)

    def played(self, policy: str) -> tuple[int, ...]:
        """Returns the draws in which a policy is played: Themis, whose leases take long, in one."""
        return self.draws[:1] if policy == "themis" else self.draws

    def runs(self) -> list[AfsRun]:
        """Returns the runs of all policies and draws."""
        return [self.run(p, d) for p in self.policies for d in self.played(p)]

    def first(self, policy: str, key: str = "avg_jct_s") -> float:
        """Returns a number of a policy in the first draw, the authors' own if the file has it."""
        return self.results[self.run(policy, self.draws[0])][key]

    def mean(self, policy: str, key: str = "avg_jct_s") -> float:
        """Returns a number of a policy as an average over the draws of models."""
        return self.results.mean([self.run(policy, d) for d in self.played(policy)], key)

    def ratio(self, over: str, under: str) -> float:
        """Returns the mean JCT of one policy over that of another, in the draws both played."""
        both = [d for d in self.played(over) if d in self.played(under)]
        above, below = (self.results.mean([self.run(p, d) for d in both]) for p in (over, under))
        return above / below

    def won(self, policy: str, others: Sequence[str]) -> int:
        """Returns in how many draws no other policy has a smaller mean JCT, ties apart."""
        return sum(
            all(
                at_most(*(self.results[self.run(p, d)]["avg_jct_s"] for p in (policy, other)))
                for other in others
                if d in self.played(other)
            )
            for d in self.draws
        )


SLOW = {"themis": 12.0, "afs-p": 6.0, "afs-s": 6.0, "max-min": 2.0}
"""How much longer these take than others: rounds and units end although nothing happens."""


def _cost(run: AfsRun) -> float:
    name = run.policy.partition(":")[0]
    return len(run.workload) * SLOW.get(name, 1.0) / run.options.cluster.nodes


FOLLOWER_H = (1.1, 1.25, 1.4, 1.6, 1.75, 1.9)
"""Hours that each later job of appendix A takes on two GPUs."""

QUICK = (4, 9)
LARGE_JOBS, HUGE_JOBS = 5000, 30_000
"""Unless in full, larger traces than these are played with one draw at 64 GPUs and one load, and
under the policies of Figure 5 at 64 GPUs alone."""
ONE_LOAD = 1.0


DETAILED = (1, 9)
"""The traces whose QL, CE, BI and single jobs are drawn: one of each kind of contention."""


class AfsExperiment(Experiment):
    """All that the effort allows on the traces that are there, else on generated months.

    `clusters` are the files that are there, `varied_runs` vary one thing by words, and `days` are
    the runs of Figure 8 by runtime.
    """

    def __init__(self, scope: Scope, results: Results) -> None:
        super().__init__(scope, results, scope.seeds or scope.chosen(0, 1, 20))
        self.clusters = [(vc, str(scope.path(vc.file))) for vc in available(scope)]
        workloads = [
            AfsWorkload(vc.name, vc.number, file)
            for vc, file in self.clusters
            if not self.is_quick or vc.number in QUICK
        ]
        if not workloads:
            months = scope.chosen(2, 3, 3)
            workloads = [AfsWorkload(f"like {n}", n) for n, _, _ in GENERATED[:months]]
        self.cases = [case for workload in workloads for case in self._cases(workload)]
        example = next((w for w in workloads if w.number == 9), workloads[0])
        self.live = _live(example)
        self.days = self._days()
        self.varied_runs = self._varied(example)

    @property
    def at_64_gpus(self) -> list[AfsCase]:
        """Returns the cases on the paper's cluster."""
        return [case for case in self.cases if case.load is None]

    def runs(self) -> list[Playable]:
        """Returns every run, those that take longest first, so that no core idles at the end."""
        runs = [c.run(p, draw) for c in self.cases for p in c.policies for draw in c.played(p)]
        runs += [*self.live, *(run for _, run in self.days), *(r for _, r in self.varied_runs)]
        toys = [ToyRun(p, hours) for p in ("srtf", "max-min") for hours in (0.0, *FOLLOWER_H)]
        return [*sorted(runs, key=_cost, reverse=True), *toys]

    def _cases(self, workload: AfsWorkload) -> list[AfsCase]:
        both = tuple(dict.fromkeys((*AWARE, *UNAWARE)))
        every = (*both, "afs-s", *ALTRUISTIC, *MAXIMAL)
        seeds = range(self.seeds)
        loads: Sequence[float] = () if self.is_quick else LOADS
        if self.scope.effort != "full":
            both = tuple(p for p in both if p != "themis")
        if self.scope.effort != "full" and len(workload) > LARGE_JOBS:
            huge = len(workload) > HUGE_JOBS
            seeds, loads = range(0), () if huge else (ONE_LOAD,)
            every = both if huge else tuple(p for p in every if p != "themis")
        draws = (AUTHORS, *seeds) if workload.file else tuple(seeds or range(1))
        detailed = workload.number in DETAILED
        at_loads = [
            AfsCase(workload, workload.nodes_for(x), both, draws, x, results=self.results)
            for x in loads
        ]
        return [AfsCase(workload, NODES, every, draws, None, detailed, self.results), *at_loads]

    def _days(self) -> list[tuple[str, AfsRun]]:
        """Returns Figure 8 by runtime: two days of trace 10, the first also as the prose has it."""
        scenes = [AfsWorkload("as told", 10, told_s=length_s) for length_s in TOLD_S]
        scenes += [
            AfsWorkload(vc.name, vc.number, file, day=day)
            for vc, file in self.clusters
            if vc.number == 10
            for day in DAYS
        ]
        return [
            (words, AfsRun(replace(scene, seed=seed), "afs-p", on_machines(switching), True))
            for scene in scenes
            for switching, words in RUNTIMES.items()
            for seed in range(self.scope.seeds or self.scope.chosen(2, 4, 20))
        ]

    def _varied(self, example: AfsWorkload) -> Sequence[tuple[str, AfsRun]]:
        """Returns runs in which one free choice differs from what the rest uses."""
        policies = ("max-min", "afs-l", "afs-p")
        varied = [
            (
                f"{NAMES[p]}, models drawn with seed {seed}",
                AfsRun(replace(example, seed=seed), p, pooled()),
            )
            for p in policies
            for seed in range(self.scope.chosen(1, 2, 2))
        ]
        if self.is_quick:
            return varied
        choices = {
            "AFS-P, unit of half an hour": "afs-p:unit-s=1800",
            "AFS-P, unit of eight hours": "afs-p:unit-s=28800",
            "AFS-P, ties drawn by lot": "afs-p:tie=random",
            "AFS-P (as elsewhere)": "afs-p",
            "Max-Min, least recently served first": "max-min:overflow=least-recent",
        }
        own = replace(example, models="file")
        return [*varied, *((words, AfsRun(own, p, pooled())) for words, p in choices.items())]


def _live(example: AfsWorkload) -> list[AfsRun]:
    """Returns Figure 7a: time a hundred times as fast, real switches on a real cluster."""
    squeezed = replace(example, squeezed=100.0, models="file")
    policies = ("tiresias", "themis", "optimus", "afs-p")
    return [AfsRun(squeezed, p, on_machines(CODDL)) for p in policies]
