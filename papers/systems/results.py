"""The runs of the comparison of all systems: played together, looked up, and turned into ratios.

The unit of every interval is a window of a trace: its seeds share its jobs and are averaged. Each
window weighs the same, so ratios are geometric means over windows, with Student's t on their
logarithms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from math import exp, sqrt

import numpy as np

from dovetail.core.job import Floats
from dovetail.study.bound import judges, powers_of
from dovetail.study.options import Options
from dovetail.study.uncertainty import LEVEL, Interval
from papers.frame.claim import HOLDS
from papers.frame.experiment import Experiment, Playable, Results
from papers.frame.scope import Scope
from papers.systems.experiments import (
    BASE,
    BASELINE,
    CLAIMS,
    EXCLUSIVE_HOST,
    UNVARIED,
    RankingClaim,
    System,
    SystemBound,
    SystemRun,
    Variant,
    system_run,
    systems,
    variants,
)
from papers.systems.workloads import WindowWorkload, sources

HEAVY, MODERATE = 0.9, 0.6
OTHER_LOADS = (0.3, MODERATE, 1.5)
QUICK_VARIANTS = (
    *("interference 1.5", "costs x 10", "scaling off by 0.5", "stages off by 0.6"),
    *("lengths off by 1", "none shareable", "none elastic", "none may be stopped"),
)


Verdicts = Mapping[RankingClaim, Mapping[Variant, str]]


class SystemsExperiment(Experiment):
    """All systems on the same windows, some varied in one thing."""

    def __init__(self, scope: Scope, results: Results) -> None:
        super().__init__(scope, results, scope.seeds or scope.chosen(1, 2, 3))
        self.sources, self.data = sources(scope)
        self.windows = scope.chosen(2, 3, 6)
        self.jobs = scope.chosen(60, 120, 240)
        self.systems = systems()
        every = variants(OTHER_LOADS)
        self.variants = [v for v in every if not self.is_quick or v.words in QUICK_VARIANTS]
        self.loads = (HEAVY, MODERATE)
        self._text = {s.name: s.text for s in self.systems}
        self._slow = {s.name for s in self.systems if s.is_slow}

    @property
    def windows_in_all(self) -> int:
        """Returns the units that intervals have."""
        return self.windows * len(self.sources)

    def runs(self) -> list[Playable]:
        """Returns every run, the slow ones first."""
        runs: list[Playable] = [*self._main_runs()]
        powers = dict.fromkeys(powers_of(s.policy) for s in self.systems if judges(s.policy))
        runs += [SystemBound(w, p) for p in powers for w in self._workloads(self.seeds)]
        claimed = dict.fromkeys(name for claim in CLAIMS for name in (claim.better, claim.worse))
        runs += [run for v in self.variants for name in claimed for run in self._varied(name, v)]
        return runs

    def _main_runs(self) -> list[SystemRun]:
        """Returns the runs of all systems at all loads and in both readings of the host."""
        slow = [s.name for s in self.systems if s.is_slow]
        fast = [s.name for s in self.systems if not s.is_slow]
        hosts = (BASE, EXCLUSIVE_HOST)
        runs = [run for name in slow for host in hosts for run in self._runs(name, options=host)]
        runs += [run for name in fast for run in self._runs(name, options=EXCLUSIVE_HOST)]
        return runs + [
            r for load in self.loads for name in fast for r in self._runs(name, load=load)
        ]

    def _workloads(self, seeds: int, load: float = HEAVY, source: str = "") -> list[WindowWorkload]:
        """Returns the workloads, those of one window after one another."""
        return [
            WindowWorkload(s, self.data, window, self.windows, self.jobs, load, seed)
            for s in self.sources
            if source in ("", s.name)
            for window in range(self.windows)
            for seed in range(seeds)
        ]

    def _runs(
        self,
        name: str,
        seeds: int = 0,
        load: float = HEAVY,
        source: str = "",
        options: Options = BASE,
    ) -> list[SystemRun]:
        workloads = self._workloads(seeds or self._seeds(name, load), load, source)
        return [system_run(self._text[name], workload, options) for workload in workloads]

    def _varied(self, name: str, variant: Variant) -> list[SystemRun]:
        """Returns the runs of a system with one thing varied, one seed a window."""
        workloads = self._workloads(1, variant.load or HEAVY)
        if variant.family:
            workloads = [replace(workload, family=variant.family) for workload in workloads]
        workloads = [replace(workload, preemptible=variant.preemptible) for workload in workloads]
        return [system_run(self._text[name], workload, variant.options) for workload in workloads]

    def _seeds(self, name: str, load: float = HEAVY) -> int:
        """Returns how many seeds a system is played with."""
        return 1 if name in self._slow or load != HEAVY else self.seeds

    def units(
        self, name: str, what: str = "jct_s", seeds: int = 0, load: float = HEAVY, source: str = ""
    ) -> Floats:
        """Returns a number of each window, averaged over its seeds."""
        return self._by_window(self._runs(name, seeds, load, source), what)

    def _by_window(self, runs: Sequence[SystemRun | SystemBound], what: str) -> Floats:
        numbers = zip(self.results.play(runs), runs, strict=True)
        windows = groupby(numbers, key=lambda pair: pair[1].workload.unit)
        return np.array([np.mean([n[what] for n, _ in window]) for _, window in windows])

    def system_ratio(
        self, name: str, other: str, what: str = "jct_s", load: float = HEAVY, source: str = ""
    ) -> Interval:
        """Returns one system's number over another's, on the seeds that both were played with."""
        seeds = min(self._seeds(name, load), self._seeds(other, load))
        mine, theirs = (self.units(n, what, seeds, load, source) for n in (name, other))
        return geometric(mine / theirs)

    def ratio_in_reading(self, name: str, options: Options) -> Interval:
        """Returns a system's mean JCT over the baseline's in a reading of the host."""
        runs = (self._runs(n, self._seeds(name), options=options) for n in (name, BASELINE))
        mine, theirs = (self._by_window(each, "jct_s") for each in runs)
        return geometric(mine / theirs)

    def mean_jct(self, name: str) -> Interval:
        """Returns a system's mean JCT: the geometric mean over windows, which differ much."""
        return geometric(self.units(name))

    def over_bound(self, system: System) -> float | None:
        """Returns how many times the bound for its powers its mean JCT is; None without one."""
        if not judges(system.policy):
            return None
        seeds = self._seeds(system.name)
        bounds = [
            SystemBound(workload, powers_of(system.policy)) for workload in self._workloads(seeds)
        ]
        least = self._by_window(bounds, "jct_s")
        return geometric(self.units(system.name) / least).value

    def varied_ratio(self, name: str, other: str, variant: Variant) -> Interval:
        """Returns one system's mean JCT over another's with one thing varied."""
        mine, theirs = (self._by_window(self._varied(n, variant), "jct_s") for n in (name, other))
        return geometric(mine / theirs)

    def change(self, name: str, variant: Variant) -> float:
        """Returns a system's mean JCT with one thing varied over its own in the base."""
        mine, before = (
            self._by_window(self._varied(name, v), "jct_s") for v in (variant, UNVARIED)
        )
        return geometric(mine / before).value

    @cached_property
    def survivals(self) -> Verdicts:
        """Returns the verdict of each claim with one thing varied."""
        survivals = {}
        for claim in CLAIMS:
            ratios = {v: self.varied_ratio(claim.better, claim.worse, v) for v in self.variants}
            survivals[claim] = {variant: verdict(ratio) for variant, ratio in ratios.items()}
        return survivals


def geometric(values: Floats) -> Interval:
    """Returns the geometric mean of positive numbers with its 95 % interval."""
    from scipy.special import stdtrit

    logs = np.log(values)
    centre, count = float(logs.mean()), len(logs)
    if count < 2:
        return Interval(exp(centre))
    error = float(logs.std(ddof=1)) / sqrt(count)
    reach = float(stdtrit(count - 1, 0.5 + LEVEL / 2.0)) * error
    return Interval(exp(centre), exp(centre - reach), exp(centre + reach))


OPEN, REVERSED = "open", "reversed"


def verdict(ratio: Interval) -> str:
    """Returns `HOLDS` if the interval of a ratio lies below 1, `REVERSED` above 1, else `OPEN`."""
    if ratio.low is None or ratio.high is None:
        return OPEN
    if ratio.high < 1:
        return HOLDS
    return REVERSED if ratio.low > 1 else OPEN
