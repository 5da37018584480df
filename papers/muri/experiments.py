"""What the Muri paper plays: a policy on jobs, and which traces, policies and variations.

Comparisons between systems take the overlapped cycle of the artifact with the contention that
its authors measured, which is what their testbed did (`testbed`); simulations decide at events, as
the authors' simulator does, the testbed at ticks of six minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from papers.frame.results import Numbers
from papers.frame.scope import Scope
from papers.muri.workloads import CLUSTER, MuriWorkload, available, typed

RESOURCES = ("storage", "cpu", "gpu", "network")
LINES = {"queue": "waiting", "blocking": "blocking_index"}
"""What is kept over time beside utilisations, and the columns it is in."""
POINTS = 120


@dataclass(frozen=True, slots=True)
class MuriRun:
    """A policy on jobs. The defaults are those of every comparison of the paper.

    A `detailed` one keeps each job's JCT, by its id, and the state of the cluster over time.
    """

    jobs: MuriWorkload
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
"""What a run keeps of the summary."""


def tail_s(jct_s: Floats) -> float:
    """Returns the 99th percentile as the authors' script takes it: entry floor(0.99 n)."""
    return float(np.sort(jct_s)[int(0.99 * len(jct_s))])


def line(numbers: Numbers, name: str) -> list[float]:
    """Returns what a detailed run kept over time under a name, or `t` for the times."""
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


CYCLE = "overlapped"
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
        return MuriRun(self.jobs, POLICIES[policy], CYCLE)

    def runs(self) -> list[MuriRun]:
        """Returns the runs of all policies."""
        return [self.run(p) for p in self.policies]


@dataclass(frozen=True, slots=True)
class MuriExperiment:
    """All simulations: `main` is trace 3, or what stands for it."""

    cases: tuple[MuriCase, ...]
    main: MuriWorkload
    types: Mapping[int, MuriWorkload]
    seeds: int
    noises: tuple[float, ...]
    quick: bool

    @property
    def at_once(self) -> MuriWorkload:
        """Returns the main trace with all jobs at the beginning."""
        return replace(self.main, at_once=True)

    def case(self, jobs: MuriWorkload) -> MuriCase:
        """Returns the case of a trace."""
        return next(c for c in self.cases if c.jobs == jobs)

    def muri(self, policy: str, parameters: str = "", *, cycle: str = CYCLE) -> MuriRun:
        """Returns a variation of Muri on the main trace."""
        spelled = POLICIES[policy] + (f",{parameters}" if parameters else "")
        return MuriRun(self.main, spelled, cycle)

    def limited(self, limit: int) -> MuriRun:
        """Returns Muri-L with groups of at most so many jobs, all jobs at once (Figure 12)."""
        if limit == LIMITS[-1]:
            return self.case(self.at_once).run("muri-l")
        return MuriRun(self.at_once, f"{POLICIES['muri-l']},group-limit={limit}", CYCLE)

    def noisy(self, policy: str, noise: float) -> list[MuriRun]:
        """Returns Muri with wrong stage times, one run a seed (Figure 14)."""
        if not noise:
            return [self.muri(policy)]
        run = replace(self.muri(policy), belief=f"stages:{noise:g}")
        return [replace(run, seed=seed) for seed in range(self.seeds)]

    def varied(self, policy: str) -> dict[str, MuriRun]:
        """Returns the main trace with one assumption changed at a time."""
        found = {words: self.muri(policy, cycle=c) for words, c in VARIED_CYCLES.items()}
        if self.quick:
            return {words: run for words, run in found.items() if words in QUICK_CYCLES}
        for words, parameters in VARIED_PARAMETERS.items():
            found[words] = MuriRun(self.main, f"{policy}:{parameters}", CYCLE)
        found["starts free"] = replace(self.muri(policy), switching="none")
        return found

    def typed(self, types: int, policy: str) -> MuriRun:
        """Returns a policy on the trace with so many job types (Figure 13)."""
        return MuriRun(self.types[types], POLICIES[policy], CYCLE)

    def runs(self) -> list[MuriRun]:
        """Returns every run, those that take longest first."""
        both = ("muri-s", "muri-l")
        runs = [t for case in self.cases for t in case.runs()]
        runs += [self.muri("muri-l", w) for w in ("matching=priority", "ordering=worst")]
        runs += [self.limited(limit) for limit in LIMITS]
        runs += [self.typed(n, p) for n in self.types for p in ("srtf", "tiresias", *both)]
        runs += [t for p in both for noise in self.noises for t in self.noisy(p, noise)]
        runs += [t for p in both for t in self.varied(p).values()]
        return sorted(dict.fromkeys(runs), key=_cost, reverse=True)


def _cost(run: MuriRun) -> float:
    slow = {"muri-s": 3.0, "muri-l": 5.0, "themis": 20.0}
    jobs: float = len(run.jobs) ** 1.5
    return jobs * slow.get(run.policy.partition(":")[0], 0.3)


def plan(scope: Scope) -> MuriExperiment:
    """Returns what the effort allows on the traces that are there."""
    traces = available(scope)
    main = next((j for j in traces if j.name == "trace 3"), traces[0])
    quick = scope.effort == "quick"
    if quick:
        traces = [main]
    cases = []
    for jobs in traces:
        for each in (jobs, replace(jobs, at_once=True)):
            leave_out = scope.effort != "full" and (quick or len(jobs) > SHORT_JOBS)
            played = tuple(p for p in POLICIES if not (leave_out and p == "themis"))
            cases.append(MuriCase(each, played))
    return MuriExperiment(
        tuple(cases),
        main,
        typed(scope),
        scope.seeds or scope.chosen(1, 3, 10),
        (0.0, 0.2, 1.0) if quick else NOISES,
        quick,
    )
