"""The runs of the comparison of all systems: played together, looked up, and turned into ratios.

The unit of every interval is a window of a trace: its seeds share its jobs and are averaged. Each
window weighs the same, so ratios are geometric means over windows, with Student's t on their
logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from math import exp, sqrt

import numpy as np

from dovetail.algorithms.bounds import Powers
from dovetail.core.job import Floats
from dovetail.study.bound import judges, powers_of
from dovetail.study.uncertainty import LEVEL, Interval
from papers.frame.claim import HOLDS
from papers.frame.results import PaperRun, Results
from papers.frame.scope import Scope
from papers.systems.experiments import (
    BASE,
    CLAIMS,
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


class SystemsExperiment:
    """All runs of one setting."""

    def __init__(self, results: Results, scope: Scope) -> None:
        self._results = results
        self.sources, self.data = sources(scope)
        self.is_quick = scope.effort == "quick"
        self.windows = scope.chosen(2, 3, 6)
        self.seeds = scope.seeds or scope.chosen(1, 2, 3)
        self.jobs = scope.chosen(60, 120, 240)
        self.systems = systems()
        self.variants = self._variants()
        self._text = {s.name: s.text for s in self.systems}
        self._slow = {s.name for s in self.systems if s.is_slow}

    def _variants(self) -> list[Variant]:
        found = variants(OTHER_LOADS)
        return [v for v in found if v.words in QUICK_VARIANTS] if self.is_quick else found

    @property
    def loads(self) -> tuple[float, ...]:
        """Returns the loads at which all systems but the slow ones are compared."""
        return (HEAVY, MODERATE)

    @property
    def windows_in_all(self) -> int:
        """Returns the units that intervals have."""
        return self.windows * len(self.sources)

    def prepare(self) -> None:
        """Plays everything at once, so that one bar shows all of it; the slow ones first."""
        slow = [s.name for s in self.systems if s.is_slow]
        fast = [s.name for s in self.systems if not s.is_slow]
        wanted: list[PaperRun] = [t for name in slow for t in self._runs(name)]
        wanted += [t for load in self.loads for name in fast for t in self._runs(name, load=load)]
        wanted += [
            SystemBound(workload, p)
            for p in self._powers()
            for workload in self._workloads(self.seeds)
        ]
        claimed = dict.fromkeys(name for claim in CLAIMS for name in (claim.better, claim.worse))
        wanted += [t for v in self.variants for name in claimed for t in self._varied(name, v)]
        self._results.play(wanted)

    def _powers(self) -> list[Powers]:
        found = dict.fromkeys(powers_of(s.policy) for s in self.systems if judges(s.policy))
        return list(found)

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
        self, name: str, seeds: int = 0, load: float = HEAVY, source: str = ""
    ) -> list[SystemRun]:
        workloads = self._workloads(seeds or self.seeds_of(name, load), load, source)
        return [system_run(self._text[name], workload) for workload in workloads]

    def _varied(self, name: str, variant: Variant) -> list[SystemRun]:
        """Returns the runs of a system with one thing varied, one seed a window."""
        workloads = self._workloads(1, variant.load or HEAVY)
        if variant.family:
            workloads = [replace(workload, family=variant.family) for workload in workloads]
        workloads = [replace(workload, preemptible=variant.preemptible) for workload in workloads]
        return [system_run(self._text[name], workload, variant.world) for workload in workloads]

    def seeds_of(self, name: str, load: float = HEAVY) -> int:
        """Returns how many seeds a system is played with."""
        return 1 if name in self._slow or load != HEAVY else self.seeds

    def units(
        self, name: str, what: str = "jct_s", seeds: int = 0, load: float = HEAVY, source: str = ""
    ) -> Floats:
        """Returns a number of each window, averaged over its seeds."""
        return self._by_window(self._runs(name, seeds, load, source), what)

    def _by_window(self, runs: Sequence[PaperRun], what: str) -> Floats:
        numbers = zip(self._results.play(runs), runs, strict=True)
        grouped = groupby(numbers, key=lambda pair: pair[1].workload.unit)  # type: ignore[attr-defined]
        return np.array([np.mean([n[what] for n, _ in group]) for _, group in grouped])

    def ratio(
        self, name: str, other: str, what: str = "jct_s", load: float = HEAVY, source: str = ""
    ) -> Interval:
        """Returns one system's number over another's, on the seeds that both were played with."""
        seeds = min(self.seeds_of(name, load), self.seeds_of(other, load))
        mine, theirs = (self.units(n, what, seeds, load, source) for n in (name, other))
        return geometric(mine / theirs)

    def mean_jct(self, name: str) -> Interval:
        """Returns a system's mean JCT: the geometric mean over windows, which differ much."""
        return geometric(self.units(name))

    def over_bound(self, system: System) -> float | None:
        """Returns how many times the bound for its powers its mean JCT is; None without one."""
        if not judges(system.policy):
            return None
        seeds = self.seeds_of(system.name)
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
        base = Variant("", "", BASE)
        mine, before = (self._by_window(self._varied(name, v), "jct_s") for v in (variant, base))
        return geometric(mine / before).value


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
    """Returns whether the interval of a ratio lies below 1, holds 1, or lies above."""
    if ratio.low is None or ratio.high is None:
        return OPEN
    if ratio.high < 1:
        return HOLDS
    return REVERSED if ratio.low > 1 else OPEN
