"""What the Muri paper plays: a policy on jobs, and which traces, policies and variations.

Comparisons between systems take the overlapped cycle of the artifact with the contention that
its authors measured, which is what their testbed did (`testbed`); simulations decide at events, as
the authors' simulator does, the testbed at ticks of six minutes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dovetail.core.cluster import Cluster
from dovetail.core.job import Floats
from dovetail.core.switching import Switching
from dovetail.core.trace import Trace
from dovetail.record.result import RunResult
from dovetail.study.options import Options
from dovetail.study.run import build_physics
from papers.frame.experiment import Experiment, Numbers, PaperRun, Results, listed
from papers.frame.scope import Scope
from papers.muri.workloads import CLUSTER, MuriWorkload, available, typed

RESOURCES = ("storage", "cpu", "gpu", "network")
LINES = {"queue": "waiting", "blocking": "blocking_index"}
"""What is kept over time beside utilisations, and the columns it is in."""
POINTS = 120


CYCLE = "overlapped"
OPTIONS = Options(
    Cluster.parse(CLUSTER),
    switching=Switching.parse("per-start:profile"),
    adopt=(("shareable", 1.0),),
    cycle=CYCLE,
)
"""Those of every comparison of the paper: owners let their jobs share, GPUs are V100."""


@dataclass(frozen=True, slots=True)
class MuriRun(PaperRun[MuriWorkload]):
    """A policy on jobs.

    A `detailed` one stores each job's JCT, by its id, and the state of the cluster over time.
    """

    options: Options = OPTIONS
    detailed: bool = False

    @property
    def keeps_spans(self) -> bool:
        """Returns whether the resources in use are needed."""
        return self.detailed

    def numbers(self, trace: Trace, result: RunResult) -> Numbers:
        """Returns mean JCT, makespan, tail, and what the cluster was like meanwhile."""
        jct_s = result.jobs["jct_s"].to_numpy()
        numbers = {
            "avg_jct_s": float(jct_s.mean()),
            "p99_jct_s": tail_s(jct_s),
            **{k: float(result.number(k) or 0.0) for k in KEPT},
        }
        if self.detailed:
            ids = result.jobs["job_id"].to_list()
            numbers |= {f"jct:{i}": s for i, s in zip(ids, jct_s.tolist(), strict=True)}
            numbers |= _over_time(result, trace, self.options)
        return numbers


KEPT = ("makespan_s", "gpu_utilization", "preemptions")
"""What a run keeps of the summary."""


def tail_s(jct_s: Floats) -> float:
    """Returns the 99th percentile as the authors' script takes it: entry floor(0.99 n)."""
    return float(np.sort(jct_s)[int(0.99 * len(jct_s))])


def _over_time(result: RunResult, trace: Trace, options: Options) -> dict[str, float]:
    """Returns queue length, blocking index and utilisations as averages over equal spans.

    `mean` of each is the average up to the last submission: after it queues only drain.
    """
    edges = np.linspace(0.0, result.lasted_s, POINTS + 1) + result.origin_s
    busy_time = result.origin_s + np.array([0.0, max(1.0, float(np.ptp(trace.jobs.submit_s)))])
    series = result.series
    at = series["t_s"].to_numpy()
    ends = np.append(at[1:], edges[-1])
    numbers = listed("t", (edges[1:] + edges[:-1]) / 2 - result.origin_s)
    for name, column in LINES.items():
        values = series[column].cast(float).fill_null(0.0).fill_nan(0.0).to_numpy()
        numbers |= listed(name, _averages(at, ends, values, edges))
        numbers[f"mean {name}"] = _averages(at, ends, values, busy_time)[0]
    spans = result.spans.filter(result.spans["kind"] == "run")
    row_of = {job_id: i for i, job_id in enumerate(trace.jobs.job_id)}
    rows = [row_of[job_id] for job_id in spans["job_id"].to_list()]
    busy = spans["rate"].to_numpy() * spans["gpus"].to_numpy() / options.cluster.gpus
    shares = _shares(trace, options)[rows]
    begin_s, end_s = spans["start_s"].to_numpy(), spans["end_s"].to_numpy()
    for resource, share in zip(RESOURCES, shares.T, strict=True):
        numbers |= listed(resource, _averages(begin_s, end_s, busy * share, edges))
        numbers[f"mean {resource}"] = _averages(begin_s, end_s, busy * share, busy_time)[0]
    return numbers


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


LETTER = "barrier,no-contention,no-floor"
"""Equation 3 and nothing else."""
POLICIES = {
    "srtf": "srtf",
    "srsf": "srsf",
    "tiresias": "tiresias:thresholds=3250/7200,inside=list",
    "themis": "themis",
    "antman": "antman:classes=priority",
    "muri-s": "muri-s:tick-s=0",
    "muri-l": "muri-l:tick-s=0",
}
"""As simulated: Tiresias with the queues, AntMan with the classes of Muri's artifact."""
NAMES = {
    "srtf": "SRTF", "srsf": "SRSF", "tiresias": "Tiresias", "themis": "Themis",
    "antman": "AntMan", "muri-s": "Muri-S", "muri-l": "Muri-L",
}  # fmt: skip
KNOWN, UNKNOWN = ("srtf", "srsf"), ("tiresias", "themis", "antman")
GROUPS = {"known": (KNOWN, "muri-s"), "unknown": (UNKNOWN, "muri-l")}
"""Rivals and Muri, by whether durations are known."""
NOISES = (0.0, 0.001, 0.2, 0.4, 0.6, 0.8, 1.0)
LIMITS = (2, 3, 4)
SHORT_JOBS = 1500
"""Themis, whose leases end every twenty minutes, is played on traces up to so long, but in full."""

VARIED_CYCLES = {
    "as elsewhere": CYCLE,
    "no contention": f"{CYCLE},no-contention",
    "no floor": f"{CYCLE},no-floor",
    "equation 3, the letter": LETTER,
    "equation 3 with the floor": "barrier,no-contention",
    "equation 3 with contention and floor": "barrier",
    "equation 3, three stages": "barrier,no-contention,no-floor,three-stages",
}
QUICK_CYCLES = ("as elsewhere", "equation 3, the letter", "equation 3 with contention and floor")
VARIED_PARAMETERS = {
    "ticks of 360 s": "tick-s=360",
    "merged by class, as the artifact": "tick-s=0,merge-order=class",
    "grouped whether needed or not": "tick-s=0,always-group=true",
    "groups never dissolved": "tick-s=0,autopack=false",
}


@dataclass(frozen=True, slots=True)
class MuriCase:
    """One trace under all policies that are played on it."""

    jobs: MuriWorkload
    policies: tuple[str, ...]

    def run(self, policy: str) -> MuriRun:
        """Returns the run of a policy."""
        return MuriRun(self.jobs, POLICIES[policy])


class MuriExperiment(Experiment):
    """All simulations: `main` is trace 3, or what stands for it."""

    def __init__(self, scope: Scope, results: Results) -> None:
        super().__init__(scope, results)
        traces = available(scope)
        self.main = next((j for j in traces if j.name == "trace 3"), traces[0])
        self.at_once = replace(self.main, at_once=True)
        self.cases = [
            MuriCase(each, self._policies_on(jobs))
            for jobs in ([self.main] if self.is_quick else traces)
            for each in (jobs, replace(jobs, at_once=True))
        ]
        self.types = typed(scope)
        self.draws = scope.seeds or scope.chosen(1, 3, 10)
        self.noises = (0.0, 0.2, 1.0) if self.is_quick else NOISES

    def _policies_on(self, jobs: MuriWorkload) -> tuple[str, ...]:
        scope = self.scope
        short = scope.effort == "full" or not (self.is_quick or len(jobs) > SHORT_JOBS)
        return tuple(p for p in POLICIES if short or p != "themis")

    def case(self, jobs: MuriWorkload) -> MuriCase:
        """Returns the case of a trace."""
        return next(c for c in self.cases if c.jobs == jobs)

    def muri(self, policy: str, parameters: str = "") -> MuriRun:
        """Returns a variation of Muri on the main trace."""
        return MuriRun(self.main, POLICIES[policy] + (f",{parameters}" if parameters else ""))

    def limited(self, limit: int) -> MuriRun:
        """Returns Muri-L with groups of at most so many jobs, all jobs at once (Figure 12)."""
        if limit == LIMITS[-1]:
            return self.case(self.at_once).run("muri-l")
        return MuriRun(self.at_once, f"{POLICIES['muri-l']},group-limit={limit}")

    def noisy(self, policy: str, noise: float) -> MuriRun:
        """Returns Muri with wrong stage times, to be played with some draws (Figure 14)."""
        return self.muri(policy).varied(belief=f"stages:{noise:g}" if noise else "exact")

    def draws_of(self, noise: float) -> int:
        """Returns the number of draws of a noise."""
        return self.draws if noise else 1

    def varied_muri(self, policy: str) -> dict[str, MuriRun]:
        """Returns the main trace with one assumption changed at a time."""
        muri = self.muri(policy)
        by_cycle = {words: muri.varied(cycle=cycle) for words, cycle in VARIED_CYCLES.items()}
        if self.is_quick:
            return {words: run for words, run in by_cycle.items() if words in QUICK_CYCLES}
        return {
            **by_cycle,
            **{words: muri.under(f"{policy}:{each}") for words, each in VARIED_PARAMETERS.items()},
            "starts free": muri.varied(switching=Switching.parse("none")),
        }

    def typed(self, types: int, policy: str) -> MuriRun:
        """Returns a policy on the trace with so many job types (Figure 13)."""
        return MuriRun(self.types[types], POLICIES[policy])

    def runs(self) -> list[MuriRun]:
        """Returns every simulated run, those that take longest first."""
        both = ("muri-s", "muri-l")
        runs = [case.run(policy) for case in self.cases for policy in case.policies]
        runs += [self.muri("muri-l", w) for w in ("matching=priority", "ordering=worst")]
        runs += [self.limited(limit) for limit in LIMITS]
        runs += [self.typed(n, p) for n in self.types for p in ("srtf", "tiresias", *both)]
        runs += [
            self.noisy(p, noise).seeded(seed)
            for p in both
            for noise in self.noises
            for seed in range(self.draws_of(noise))
        ]
        runs += [run for p in both for run in self.varied_muri(p).values()]
        return sorted(dict.fromkeys(runs), key=_cost, reverse=True)


def _cost(run: MuriRun) -> float:
    slow = {"muri-s": 3.0, "muri-l": 5.0, "themis": 20.0}
    jobs: float = len(run.workload) ** 1.5
    return jobs * slow.get(run.policy.partition(":")[0], 0.3)
