"""What the Muri study plays: traces, policies, and one thing varied at a time.

Comparisons between systems take the overlapped cycle of the artifact with the contention that
its authors measured, which is what their testbed did (`muri_testbed`); simulations decide at
events, as the authors' simulator does, the testbed at ticks of six minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from papers.muri_trial import MuriTrial
from papers.muri_workload import Jobs, available, typed
from papers.setting import Setting
from papers.trials import Numbers, Trial

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
class Case:
    """One trace under all policies that are played on it."""

    jobs: Jobs
    policies: tuple[str, ...]

    def trial(self, policy: str) -> MuriTrial:
        """Returns the run of a policy."""
        return MuriTrial(self.jobs, POLICIES[policy], CYCLE)

    def trials(self) -> list[MuriTrial]:
        """Returns the runs of all policies."""
        return [self.trial(p) for p in self.policies]


@dataclass(frozen=True, slots=True)
class Plan:
    """All simulations: `main` is trace 3, or what stands for it."""

    cases: tuple[Case, ...]
    main: Jobs
    types: Mapping[int, Jobs]
    seeds: int
    noises: tuple[float, ...]
    quick: bool

    @property
    def at_once(self) -> Jobs:
        """Returns the main trace with all jobs at the beginning."""
        return replace(self.main, at_once=True)

    def case(self, jobs: Jobs) -> Case:
        """Returns the case of a trace."""
        return next(c for c in self.cases if c.jobs == jobs)

    def muri(self, policy: str, parameters: str = "", *, cycle: str = CYCLE) -> MuriTrial:
        """Returns a variation of Muri on the main trace."""
        spelled = POLICIES[policy] + (f",{parameters}" if parameters else "")
        return MuriTrial(self.main, spelled, cycle)

    def limited(self, limit: int) -> MuriTrial:
        """Returns Muri-L with groups of at most so many jobs, all jobs at once (Figure 12)."""
        if limit == LIMITS[-1]:
            return self.case(self.at_once).trial("muri-l")
        return MuriTrial(self.at_once, f"{POLICIES['muri-l']},group-limit={limit}", CYCLE)

    def noisy(self, policy: str, noise: float) -> list[MuriTrial]:
        """Returns Muri with wrong stage times, one run a seed (Figure 14)."""
        if not noise:
            return [self.muri(policy)]
        trial = replace(self.muri(policy), belief=f"stages:{noise:g}")
        return [replace(trial, seed=seed) for seed in range(self.seeds)]

    def varied(self, policy: str) -> dict[str, MuriTrial]:
        """Returns the main trace with one assumption changed at a time."""
        found = {words: self.muri(policy, cycle=c) for words, c in VARIED_CYCLES.items()}
        if self.quick:
            return {words: trial for words, trial in found.items() if words in QUICK_CYCLES}
        for words, parameters in VARIED_PARAMETERS.items():
            found[words] = MuriTrial(self.main, f"{policy}:{parameters}", CYCLE)
        found["starts free"] = replace(self.muri(policy), switching="none")
        return found

    def typed(self, types: int, policy: str) -> MuriTrial:
        """Returns a policy on the trace with so many job types (Figure 13)."""
        return MuriTrial(self.types[types], POLICIES[policy], CYCLE)

    def trials(self) -> list[MuriTrial]:
        """Returns every run, those that take longest first."""
        both = ("muri-s", "muri-l")
        runs = [t for case in self.cases for t in case.trials()]
        runs += [self.muri("muri-l", w) for w in ("matching=priority", "ordering=worst")]
        runs += [self.limited(limit) for limit in LIMITS]
        runs += [self.typed(n, p) for n in self.types for p in ("srtf", "tiresias", *both)]
        runs += [t for p in both for noise in self.noises for t in self.noisy(p, noise)]
        runs += [t for p in both for t in self.varied(p).values()]
        return sorted(dict.fromkeys(runs), key=_cost, reverse=True)


def _cost(trial: MuriTrial) -> float:
    slow = {"muri-s": 3.0, "muri-l": 5.0, "themis": 20.0}
    jobs: float = len(trial.jobs) ** 1.5
    return jobs * slow.get(trial.policy.partition(":")[0], 0.3)


class Outcomes:
    """What came of all trials."""

    def __init__(self, of: Mapping[Trial, Numbers]) -> None:
        self._of = of

    def __getitem__(self, trial: Trial) -> Numbers:
        return self._of[trial]

    def ratio(self, over: Trial, under: Trial, key: str = "avg_jct_s") -> float:
        """Returns a number of one trial over that of another."""
        return self._of[over][key] / self._of[under][key]

    def mean(self, trials: Sequence[Trial], key: str = "avg_jct_s") -> float:
        """Returns the mean of a number over trials."""
        return sum(self._of[t][key] for t in trials) / len(trials)


def plan(setting: Setting) -> Plan:
    """Returns what the effort allows on the traces that are there."""
    traces = available(setting)
    main = next((j for j in traces if j.name == "trace 3"), traces[0])
    quick = setting.effort == "quick"
    if quick:
        traces = [main]
    cases = []
    for jobs in traces:
        for each in (jobs, replace(jobs, at_once=True)):
            leave_out = setting.effort != "full" and (quick or len(jobs) > SHORT_JOBS)
            played = tuple(p for p in POLICIES if not (leave_out and p == "themis"))
            cases.append(Case(each, played))
    return Plan(
        tuple(cases),
        main,
        typed(setting),
        setting.seeds or setting.chosen(1, 3, 10),
        (0.0, 0.2, 1.0) if quick else NOISES,
        quick,
    )
