"""What decides where the AFS study and the paper part, and how much is left to gain.

The threshold of Tiresias' queues, which the paper does not give; the one trace on which rigid
policies profit from larger sizes; how evenly gains fall on short and long jobs; and the least
mean JCT that any elastic schedule could reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.algorithms.bounds import Powers
from dovetail.study.bound import bound
from papers.afs_plan import NAMES, Case, Outcomes, Plan
from papers.afs_rows import MANY, SPREAD
from papers.afs_trial import AfsTrial, sequence
from papers.finding import Finding, at_most, ratio_band
from papers.trials import Numbers, Trial

AUTHORS_TIRESIAS = "tiresias:thresholds=180000"
"""One threshold at 50 GPU-hours, as in the simulator that the AFS authors published. There the
hours count since a job was last scheduled, here since it was submitted."""
TIRESIAS_OVER_AFS_P = (1.9, 3.1)
"""Least and most over the eleven traces (section 5.2)."""
IMPROVES = {"srtf-max": 1.21, "srsf-max": 1.17}
"""By how much the largest sizes improve on the requested ones, on a single trace (section 5.2)."""
ONE_GPU_TRACE = 11
"""All its jobs ask for one GPU, and the cluster is nearly idle: larger sizes cost nobody."""
BOUNDED_JOBS = 6000
"""Up to so many jobs a bound takes seconds; of more only `--full` asks."""
BINS = 100
"""Bins of Figure 10."""


@dataclass(frozen=True, slots=True)
class BoundTrial:
    """The least mean JCT that any elastic schedule can reach where `run` is played."""

    run: AfsTrial

    def play(self) -> Numbers:
        """Returns the bound in seconds."""
        trace = self.run.workload.jobs(self.run.models, self.run.seed)
        found = bound(trace, self.run.options(), Powers(elastic=True))
        return {"bound_s": found.mean_jct_s}


def trials(plan: Plan, *, whole: bool) -> list[Trial]:
    """Returns what is played beside the plan; `whole` leaves no trace out."""
    cases = _at_64_gpus(plan)
    of_authors = [as_authors(case) for case in cases if case.workload.file]
    return [*of_authors, *(bounded(case) for case in _small(cases, whole))]


def _at_64_gpus(plan: Plan) -> list[Case]:
    return [case for case in plan.cases if case.load is None]


def _small(cases: Sequence[Case], whole: bool) -> list[Case]:
    return [case for case in cases if whole or len(case.workload) <= BOUNDED_JOBS]


def as_authors(case: Case) -> AfsTrial:
    """Returns the run of Tiresias-L as in the simulator of AFS' authors."""
    return replace(case.trial("tiresias", case.draws[0]), policy=AUTHORS_TIRESIAS, detailed=False)


def bounded(case: Case) -> BoundTrial:
    """Returns what reckons the bound of a case."""
    return BoundTrial(replace(case.trial("afs-l", case.draws[0]), detailed=False))


def rows(outcomes: Outcomes, plan: Plan, *, whole: bool) -> Iterator[Finding]:
    """Yields all of the above, once the plan's trials and those here were played."""
    cases = _at_64_gpus(plan)
    yield from thresholds(outcomes, [c for c in cases if c.workload.file])
    yield from improvements(outcomes, cases)
    for case in cases:
        if case.detailed:
            yield from evenness(outcomes, case)
    yield from bounds(outcomes, _small(cases, whole))


def thresholds(outcomes: Outcomes, cases: Sequence[Case]) -> Iterator[Finding]:
    """Yields Figure 5's ratio to Tiresias-L with the threshold of its authors' simulator."""
    part = "Figure 5, Tiresias-L with one threshold at 50 GPU-hours"
    low, high = TIRESIAS_OVER_AFS_P
    ratios = {
        case.workload.label: outcomes[as_authors(case)]["avg_jct_s"] / outcomes.first(case, "afs-p")
        for case in cases
    }
    for label, ratio in ratios.items():
        yield Finding(
            part,
            f"Tiresias-L over AFS-P, {label}; published: {low:g} to {high:g}",
            ratio,
            "x",
            band=(low * (1 - SPREAD), high * (1 + SPREAD)),
        )
    if len(ratios) < MANY:
        return
    for words, choose, published in (("least", min, low), ("most", max, high)):
        ours, band = choose(ratios.values()), ratio_band(published, SPREAD)
        yield Finding(part, f"Tiresias-L over AFS-P, {words}", ours, "x", published, band)


def improvements(outcomes: Outcomes, cases: Sequence[Case]) -> Iterator[Finding]:
    """Yields what the largest sizes gain on the one trace where they gain anything."""
    for case in cases:
        if case.workload.number != ONE_GPU_TRACE or not set(IMPROVES) <= set(case.policies):
            continue
        for policy, published in IMPROVES.items():
            base = policy.removesuffix("-max")
            yield Finding(
                "Figure 6: the one trace that improves",
                f"{NAMES[base]} over {NAMES[policy]}, {case.workload.label}",
                outcomes.first(case, base) / outcomes.first(case, policy),
                "x",
                published,
                ratio_band(published, SPREAD),
            )


def evenness(outcomes: Outcomes, case: Case) -> Iterator[Finding]:
    """Yields how far the gain over Tiresias-L differs between short and long jobs."""
    spread = {p: _spread(outcomes, case, p) for p in ("max-min", "optimus", "afs-p")}
    part = f"Figure 10: gains by length, {case.workload.label}"
    for policy, found in spread.items():
        yield Finding(part, f"{NAMES[policy]}, standard deviation of the log of gains", found)
    yield Finding(
        part,
        "AFS-P's gain is more even than Max-Min's",
        holds=at_most(spread["afs-p"], spread["max-min"]),
        why=EVEN_WHY,
    )


EVEN_WHY = (
    "the measure is ours, the paper shows curves and stresses heavy contention; where hardly any "
    "job waits under either policy the two are alike"
)


def _spread(outcomes: Outcomes, case: Case, policy: str) -> float:
    """Returns the spread over bins of equal size, in order of JCT under Tiresias-L."""
    before, after = (
        np.array(sequence(outcomes[case.trial(p, case.draws[0])], "jct"))
        for p in ("tiresias", policy)
    )
    bins = np.array_split(np.argsort(before, kind="stable"), BINS)
    gains = [before[b].mean() / after[b].mean() for b in bins if len(b)]
    return float(np.std(np.log(gains)))


def bounds(outcomes: Outcomes, cases: Sequence[Case]) -> Iterator[Finding]:
    """Yields how near AFS-L comes to the least mean JCT, and how much of the way from SRTF."""
    part = "Bound: mean JCT over the least that any elastic schedule can reach"
    for case in cases:
        floor_s, where = outcomes[bounded(case)]["bound_s"], case.workload.label
        srtf, own = (outcomes.first(case, p) for p in ("srtf", "afs-l"))
        yield Finding(part, f"AFS-L over the bound, {where}", own / floor_s, "x")
        gap = f"SRTF's gap to the bound that AFS-L closes, {where}"
        yield Finding(part, gap, 100 * (srtf - own) / (srtf - floor_s), "%")
