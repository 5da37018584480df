"""The runs of the A-SRPT paper: a policy on jobs with a forecast over a network; and sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.core.errors import DovetailError
from dovetail.core.job import Floats
from dovetail.core.policy import parse_policy
from dovetail.core.switching import Switching
from dovetail.study.options import Options
from dovetail.study.run import build_scene
from papers.a_srpt.checks import ASrptBound, LogRun, PlacementRun
from papers.a_srpt.workloads import (
    SCALE,
    SERVERS,
    SIMULATED,
    ASrptCluster,
    ASrptWorkload,
    Taught,
    shortest_longest,
)
from papers.frame.experiment import Experiment, Numbers, Playable, Results, listed, play_scene
from papers.frame.scope import Scope

KNOWN, TAUGHT = "known", "taught"
FOREST = f"{TAUGHT}:forest"
"""The forecast of all policies in the paper's comparisons."""
NEAR = 0.1
QUANTILES = range(0, 101, 2)
"""Of relative errors, in per cent."""
COMM_HEAVY = 1.5
"""Worst over best iteration from which on A-SRPT calls a job communication-heavy."""


@dataclass(frozen=True, slots=True)
class ASrptRun:
    """A policy on jobs.

    `told` is a forecast: `taught:METHOD` has learned from the trace before these jobs and goes on
    learning; any other is one of `--forecast`.
    """

    jobs: ASrptWorkload
    policy: str
    told: str = FOREST
    cluster: ASrptCluster = SIMULATED
    switching: str = "restart:30"

    def play(self) -> Numbers:
        """Returns total flow and completion times, the makespan, and how good predictions were."""
        trace, options = self.jobs.trace(), self.options()
        scene = build_scene(trace, options)
        taught = None
        method = self.told.removeprefix(f"{TAUGHT}:")
        if method != self.told:
            taught = self.jobs.taught(method)
            scene = replace(scene, forecast=taught)
        tally = play_scene(scene, parse_policy(self.policy))
        finish_s = np.array(tally.finish_s)
        if not np.isfinite(finish_s).all():
            raise DovetailError(f"{self.policy}: not all jobs of {self.jobs} finished")
        flow_s = finish_s - trace.jobs.submit_s
        held_s, gpus = np.array(tally.running_s), trace.jobs.gpus
        origin_s = float(trace.jobs.submit_s[0])
        kept = {
            "flow_s": float(flow_s.sum()),
            "completion_s": float((finish_s - origin_s).sum()),
            "makespan_s": float(finish_s.max() - origin_s),
            "p99_s": float(np.quantile(flow_s, 0.99)),
            "waited_s": float((np.array(tally.start_s) - trace.jobs.submit_s).sum()),
            "stretch": float(held_s @ gpus / (trace.duration_s @ gpus)),
        }
        if self.policy.startswith("a-srpt"):
            kept |= _slowed(self.jobs, self.cluster, held_s / trace.duration_s)
        return kept if taught is None else kept | _errors(self.jobs, taught)

    def options(self) -> Options:
        """Returns what the run is played with."""
        forecast = KNOWN if self.told.startswith(TAUGHT) else self.told
        return Options(
            self.cluster.build(),
            switching=Switching.parse(self.switching),
            forecast=forecast,
            seed=self.jobs.seed,
        )


def _slowed(jobs: ASrptWorkload, cluster: ASrptCluster, ratio: Floats) -> dict[str, float]:
    """Returns how much longer jobs ran than at best, by whether they communicate much."""
    table = jobs.trace().jobs
    kinds = zip(table.model.texts(), table.gpus.tolist(), strict=True)
    spread = np.array([longest / best for best, longest in (seconds(*k, cluster) for k in kinds)])
    heavy = (spread >= COMM_HEAVY) & (table.gpus > 1)
    light = ~heavy & (table.gpus > 1)
    return {
        name: float(ratio[rows].mean()) if rows.any() else 1.0
        for name, rows in (("heavy ran", heavy), ("light ran", light))
    } | {"heavy": float(heavy.mean())}


def seconds(model: str, gpus: int, cluster: ASrptCluster) -> tuple[float, float]:
    """Returns the shortest and the longest iteration of a model on a cluster's links."""
    return shortest_longest(model, gpus, cluster.nic_gbit)


def _errors(jobs: ASrptWorkload, taught: Taught) -> dict[str, float]:
    """Returns how far off the predictions of a run were, in iterations and relative."""
    truth_s = jobs.trace().duration_s
    guess_s = np.array([taught.said_s[job] for job in range(len(truth_s))])
    off_s = np.abs(guess_s - truth_s)
    iterations = off_s * jobs.faster / jobs.iteration_s()
    return {
        "error_iterations": float(iterations.mean()),
        "median_error_iterations": float(np.median(iterations)),
        "error_s": float(off_s.mean()),
        "near": float((off_s <= NEAR * truth_s).mean()),
        "unseen": float((guess_s <= 0.0).mean()),
        **listed("off", (np.quantile(off_s / truth_s, q / 100) for q in QUANTILES)),
    }


OURS = "a-srpt"
STRICT = ("spjf", "spwf")
BASELINES = (*STRICT, "wcs-duration", "wcs-workload", "wcs-subtime")
OTHERS = ("sjf", "srsf", "backfill")
"""Not in the paper. They pack jobs into few servers, whatever those communicate."""
NAMES = {
    "a-srpt": "A-SRPT", "spjf": "SPJF", "spwf": "SPWF", "wcs-duration": "WCS-Duration",
    "wcs-workload": "WCS-Workload", "wcs-subtime": "WCS-SubTime", "sjf": "SJF", "srsf": "SRSF",
    "backfill": "Backfill",
}  # fmt: skip
MEAN = f"{TAUGHT}:mean"
"""The forecast in sweeps: nearly the forest's, without its trainings (Figure 9 has both)."""
LOAD = 1.0
HIGH = 1.5
VARIED = {
    **{f"tau = {tau:g}": f"{OURS}:tau={tau:g}" for tau in (0.0, 0.5, 1.0, 2.0)},
    "others start meanwhile, tau = 1": f"{OURS}:nonblocking-delay=true",
    "replicas refined, tau = 1": f"{OURS}:replicas=refined",
}
"""What may be said of waiting for a better placement, and of finding one."""
TOLD = {
    "perfect": KNOWN,
    "forest": FOREST,
    "median": f"{TAUGHT}:median",
    "mean": MEAN,
    "boosted": f"{TAUGHT}:boosted",
    "forest, learned in the run alone": "predicted:forest",
}
LOGS = {
    "Philly": "traces/dirlab/philly_data_training.first12000.csv.gz",
    "Helios": "traces/dirlab/helios_data_training.first12000.csv.gz",
}
METHODS = ("forest", "median", "mean", "boosted", "overall")
SETS = 3
SET_JOBS = 75
PLACED = {"vgg19": 16, "gpt-175b": 64}
"""GPUs of Table II's jobs; the paper names no count."""


SweepPoint = tuple[float, ASrptWorkload, ASrptCluster]
"""A value along the axis, and what is played there."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Policies along an axis; each point is played once for each seed."""

    title: str
    axis: str
    points: tuple[SweepPoint, ...]
    told: str
    policies: tuple[str, ...]
    seeds: int

    @property
    def at(self) -> tuple[float, ...]:
        """Returns the values along the axis."""
        return tuple(x for x, _, _ in self.points)

    def runs(self, x: float, policy: str) -> list[ASrptRun]:
        """Returns the runs of a policy at a point, one for each seed."""
        jobs, cluster = next((j, b) for at, j, b in self.points if at == x)
        return [
            ASrptRun(replace(jobs, seed=s), policy, self.told, cluster) for s in range(self.seeds)
        ]

    def all(self) -> list[ASrptRun]:
        """Returns all runs."""
        return [t for x in self.at for p in self.policies for t in self.runs(x, p)]


class ASrptExperiment(Experiment):
    """All that is played. `base` is what each sweep changes one thing of, on `cluster`."""

    def __init__(self, scope: Scope, results: Results) -> None:
        super().__init__(scope, results, scope.seeds or scope.chosen(1, 1, 5))
        total = scope.chosen(12_000, 50_000, 758_223)
        sizes = tuple(
            scope.chosen(*of)
            for of in ((600, 2500, 37_500), (1200, 5000, 75_000), (2400, 10_000, 150_000))
        )
        self.cluster = ASrptCluster(scope.chosen(50, SERVERS, SERVERS))
        self.base = ASrptWorkload(total, sizes[1], load=LOAD, gpus=self.cluster.gpus)
        sizes = sizes[::2] if self.is_quick else sizes
        self.sweeps = _sweeps(self.base, self.cluster, sizes, scope.effort, self.seeds)
        self.causes = _causes(self.base, self.cluster, self.seeds)
        self.sets = tuple(
            # At the trace's own pace, in a tenth of its time.
            ASrptWorkload(total, SET_JOBS, seed=number, widest=8, faster=SCALE)
            for number in range(SETS)
        )
        self.placed = tuple(
            PlacementRun(model, gpus, case, scope.chosen(3, 20, 120))
            for model, gpus in PLACED.items()
            for case in range(scope.chosen(2, 10, 20))
        )
        self.logs = {
            (log, method, protocol): LogRun(str(scope.path(file)), method, protocol)
            for log, file in LOGS.items()
            if scope.has(file)
            for method in METHODS
            for protocol in ("held out", "online")
            if not (self.is_quick and (method in ("forest", "boosted") or protocol == "online"))
        }

    def seeded(self, policy: str, told: str = FOREST) -> list[ASrptRun]:
        """Returns runs of the base, one for each seed."""
        each = [replace(self.base, seed=s) for s in range(self.seeds)]
        return [ASrptRun(jobs, policy, told, self.cluster) for jobs in each]

    def crowded(self, policy: str) -> list[ASrptRun]:
        """Returns runs of the base at a load at which jobs wait under A-SRPT too."""
        return [replace(t, jobs=replace(t.jobs, load=HIGH)) for t in self.seeded(policy, MEAN)]

    def testbed(self, policy: str, told: str = FOREST) -> list[ASrptRun]:
        """Returns the runs of a policy on the testbed, one for each set; tau is 0 there."""
        ours = f"{policy}:tau=0" if policy == OURS else policy
        return [ASrptRun(jobs, ours, told, ASrptCluster(testbed=True)) for jobs in self.sets]

    def bounds(self) -> list[ASrptBound]:
        """Returns the bounds of the base."""
        return [ASrptBound(replace(self.base, seed=s), self.cluster) for s in range(self.seeds)]

    def flow_s(self, runs: Sequence[Playable]) -> float:
        """Returns the total flow time, a mean over runs."""
        return self.results.mean(runs, "flow_s")

    def gains(self, sweep: Sweep, x: float, policies: Sequence[str]) -> dict[str, float]:
        """Returns how much less A-SRPT's total flow time is than that of each policy."""
        ours = self.flow_s(sweep.runs(x, OURS))
        return {p: 1 - ours / self.flow_s(sweep.runs(x, p)) for p in policies}

    def runs(self) -> list[Playable]:
        """Returns every run, those that take longest first."""
        paper = (OURS, *BASELINES)
        runs = [t for s in (*self.sweeps.values(), *self.causes.values()) for t in s.all()]
        runs += [t for told in TOLD.values() for t in self.seeded(OURS, told)]
        runs += [t for policy in (*BASELINES, *OTHERS) for t in self.seeded(policy)]
        runs += [t for policy in BASELINES for t in self.seeded(policy, KNOWN)]
        runs += [t for parameters in VARIED.values() for t in self.crowded(parameters)]
        runs += [t for told in (FOREST, KNOWN) for p in paper for t in self.testbed(p, told)]
        ordered = sorted(dict.fromkeys(runs), key=_cost, reverse=True)
        return [*self.logs.values(), *self.bounds(), *ordered, *self.placed]


def _cost(run: ASrptRun) -> float:
    return run.jobs.jobs + (0.2 * run.jobs.total if "forest" in run.told else 0.0)


def _causes(base: ASrptWorkload, cluster: ASrptCluster, seeds: int) -> dict[str, Sweep]:
    """Returns Figure 7's last point with one thing, then two, taken away."""
    wide, no_cost = replace(base, single=0.0), replace(cluster, nic_gbit=LIKE_NVLINK_GBIT)
    return {
        words: Sweep(words, "", ((0.0, wide, on),), told, (OURS, *BASELINES), seeds)
        for words, on, told in (
            ("as played", cluster, MEAN),
            ("all lengths known", cluster, KNOWN),
            ("spreading costs nothing", no_cost, MEAN),
            ("both", no_cost, KNOWN),
        )
    }


LIKE_NVLINK_GBIT = 8 * 8 * 300.0
"""Each of a server's eight GPUs has 300 GB/s to other servers, as inside."""
AXES = {
    "loads": {
        "quick": (0.05, 0.5, 1.0, 1.5),
        "default": (0.05, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0),
        "full": (0.05, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0),
    },
    "singles": {
        "quick": (0.8, 0.0),
        "default": (0.8, 0.6, 0.3, 0.0),
        "full": (0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0),
    },
    "nics": {
        "quick": (1.0, 50.0),
        "default": (1.0, 10.0, 50.0),
        "full": (1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0),
    },
    "recurrent": {
        "quick": (0.0, 0.9),
        "default": (0.0, 0.3, 0.6, 0.9),
        "full": (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9),
    },
}


def _sweeps(
    base: ASrptWorkload, cluster: ASrptCluster, sizes: tuple[int, ...], effort: str, seeds: int
) -> dict[str, Sweep]:
    paper = (OURS, *BASELINES)
    loads, singles, nics, recurrent = (AXES[axis][effort] for axis in AXES)
    kept = replace(base, as_asked=True)
    wide = replace(kept, single=0.0)

    counts = [(float(n), replace(base, jobs=n), cluster) for n in sizes]

    def shared(start: ASrptWorkload) -> list[SweepPoint]:
        return [(100 * s, replace(start, single=s), cluster) for s in singles]

    def linked(start: ASrptWorkload) -> list[SweepPoint]:
        return [(g, replace(start, single=0.0), replace(cluster, nic_gbit=g)) for g in nics]

    def loaded(start: ASrptWorkload, offered: Sequence[float]) -> list[SweepPoint]:
        return [(x, replace(start, load=x), cluster) for x in offered]

    on_one, nic, offered = "jobs on one GPU (%)", "NIC (Gbit/s)", "offered load"
    recur = [(100 * r, replace(base, recurrent=r), cluster) for r in recurrent]
    loads_wide = (0.25, *loads[1:5])
    axes: dict[str, tuple[str, str, list[SweepPoint]]] = {
        "jobs": ("Figure 6: number of jobs", "jobs", counts),
        "singles": ("Figure 7: jobs on one GPU", on_one, shared(base)),
        "singles kept": (f"Figure 7 with the load kept at {LOAD:g}", on_one, shared(kept)),
        "nic": ("Figure 8: NIC bandwidth", nic, linked(base)),
        "nic kept": (f"Figure 8 with the load kept at {LOAD:g}", nic, linked(kept)),
        "load": ("Load: 70 % of jobs on one GPU", offered, loaded(base, loads)),
        "load wide": ("Load: no job on one GPU", offered, loaded(wide, loads_wide)),
        "recurrence": ("Share of jobs in groups of five or more", "recurrent jobs (%)", recur),
    }
    policies = {"load": (*paper, *OTHERS), "load wide": (*paper, *OTHERS)}
    return {
        key: Sweep(title, axis, tuple(points), MEAN, policies.get(key, paper), seeds)
        for key, (title, axis, points) in axes.items()
    }
