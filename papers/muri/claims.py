"""The simulations of the Muri paper as findings: Figures 9 to 14, and what moves the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import polars as pl

from dovetail.core.units import HOUR_S
from papers.frame.claim import TIE, Claim, at_most, near, ordered, ratio_band
from papers.frame.scope import Scope
from papers.muri import examples
from papers.muri.experiments import (
    GROUPS,
    LIMITS,
    NAMES,
    UNKNOWN,
    MuriCase,
    MuriExperiment,
)
from papers.muri.published import NOISE_AT_0_2, NOISE_AT_1, RANGES, SPREAD, TYPES, WITHOUT_BLOSSOM
from papers.muri.testbed import METRICS, find_testbed
from papers.muri.testbed import claims as testbed_claims
from papers.muri.workloads import STORED

Stored = Mapping[tuple[str, str], tuple[float, float, float]]
"""Mean JCT, makespan and tail by trace and policy, of the artifact."""
POLICY_OF = {
    "SRTF": "srtf", "SRSF": "srsf", "Tiresias": "tiresias", "Themis": "themis",
    "AntMan": "antman", "Muri-S": "muri-s", "Muri-L": "muri-l",
    "Muri_L_w_worstordering": "worst ordering", "Muri_L_wo_blossom": "without Blossom",
    "Muri_L_2 (group size limit)": "2", "Muri_L_3 (group size limit)": "3",
}  # fmt: skip
PAIRS = [(rival, muri) for rivals, muri in GROUPS.values() for rival in rivals]


def stored(scope: Scope) -> Stored:
    """Returns the authors' own figures where the data folder has them."""
    if not scope.has(STORED):
        return {}
    table = pl.read_csv(Path(scope.path(STORED)))
    columns = ("trace", "policy", "authors_avg_jct_s", "authors_makespan_s", "authors_p99_jct_s")
    found: dict[tuple[str, str], tuple[float, float, float]] = {}
    for trace, policy, mean_s, makespan_s, tail_s in table.select(columns).iter_rows():
        name = str(trace).replace("_pr", "'").replace("trace", "trace ")
        found[name, POLICY_OF[policy]] = mean_s, makespan_s, tail_s or 0.0
    return found


def claims(plan: MuriExperiment) -> Iterator[Claim]:
    """Yields the examples, the testbed, every simulated figure, then the variations."""
    yield from examples.claims()
    testbed = find_testbed(plan.scope)
    if testbed is not None:
        yield from testbed_claims(testbed, plan.results)
    yield from simulated(plan, stored(plan.scope))


def simulated(plan: MuriExperiment, known: Stored) -> Iterator[Claim]:
    """Yields every simulated figure, then the variations."""
    for case in plan.cases:
        yield from figures_9_10(plan, case, known)
    if plan.main.file:
        yield from ranges(plan)
    yield from load(plan)
    yield from figure_11(plan, known)
    yield from figure_12(plan, known)
    yield from figure_13(plan)
    yield from figure_14(plan)
    yield from varied(plan)


def figures_9_10(plan: MuriExperiment, case: MuriCase, known: Stored) -> Iterator[Claim]:
    """Yields rivals over Muri on one trace, with the artifact's figures where it has them."""
    part = f"Figures 9 and 10: {case.jobs.label}"
    for rival, muri in PAIRS:
        if rival not in case.policies:
            continue
        for i, (key, words) in enumerate(METRICS.items()):
            ours = plan.ratio(case.run(rival), case.run(muri), key)
            what = f"{words}, {NAMES[rival]} over {NAMES[muri]}"
            theirs = _over(known, case.jobs.label, rival, muri, i)
            better = None if theirs is not None or i else at_most(1, ours)
            why = WHY_RIVAL.get(rival, "") if case.jobs.file else WHY_GENERATED
            yield near(part, what, ours, "x", theirs, SPREAD, better, why)
    for muri in ("muri-s", "muri-l"):
        found = known.get((case.jobs.label, muri))
        if found is not None:
            ours = plan.mean(case.run(muri)) / HOUR_S
            what = f"mean JCT, {NAMES[muri]}"
            yield near(part, what, ours, "h", found[0] / HOUR_S, 0.1)


def _over(known: Stored, trace: str, rival: str, muri: str, metric: int) -> float | None:
    found = known.get((trace, rival)), known.get((trace, muri))
    if found[0] is None or found[1] is None:
        return None
    return found[0][metric] / found[1][metric]


def ranges(plan: MuriExperiment) -> Iterator[Claim]:
    """Yields least and most over all traces that were played, as the prose has them."""
    part = "Figures 9 and 10: least and most over the traces played"
    for group, (rivals, muri) in GROUPS.items():
        for (key, words), (low, high) in zip(METRICS.items(), RANGES[group], strict=True):
            ratios = [
                plan.ratio(case.run(rival), case.run(muri), key)
                for case in plan.cases
                for rival in rivals
                if rival in case.policies
            ]
            allowed = low * (1 - SPREAD), high * (1 + SPREAD)
            for word, ours, published in (("least", min(ratios), low), ("most", max(ratios), high)):
                what = f"{words} over {NAMES[muri]}, durations {group}: {word}"
                yield Claim(part, what, ours, "x", published, allowed, why=WHY_RANGE)


def load(plan: MuriExperiment) -> Iterator[Claim]:
    """Yields that Muri shortens the makespan more where all jobs come at once."""
    part = "Impact of load: makespan over Muri's, all at once against as submitted"
    for case in plan.cases:
        if case.jobs.at_once:
            continue
        primed = plan.case(replace(case.jobs, at_once=True))
        for rival, muri in PAIRS:
            if rival not in case.policies or rival not in primed.policies:
                continue
            before, after = (
                plan.ratio(c.run(rival), c.run(muri), "makespan_s") for c in (case, primed)
            )
            what = f"{case.jobs.label}: {NAMES[rival]} over {NAMES[muri]}"
            yield ordered(part, what, before, after, WHY_LOAD)


def figure_11(plan: MuriExperiment, known: Stored) -> Iterator[Claim]:
    """Yields what ordering and matching are worth to Muri-L."""
    part = f"Figure 11: the design of the algorithm, {plan.main.label}, over Muri-L"
    base = plan.muri("muri-l")
    for words, parameters in (
        ("worst ordering", "ordering=worst"),
        ("without Blossom", "matching=priority"),
    ):
        run = plan.muri("muri-l", parameters)
        for i, key in enumerate(("avg_jct_s", "makespan_s")):
            ours = plan.ratio(run, base, key)
            theirs = _over(known, plan.main.label, words, "muri-l", i)
            why = WHY_BLOSSOM if "Blossom" in words else ""
            what = f"{words}: {METRICS[key]}"
            worse = None if theirs is not None else at_most(1, ours)
            yield near(part, what, ours, "x", theirs, SPREAD, worse, why)
    if plan.main.file:
        ours = plan.ratio(plan.muri("muri-l", "matching=priority"), base)
        what = "without Blossom: mean JCT, at most over the paper's traces"
        yield Claim(part, what, ours, "x", WITHOUT_BLOSSOM[0])


def figure_12(plan: MuriExperiment, known: Stored) -> Iterator[Claim]:
    """Yields how many jobs a group should have at most, against AntMan."""
    jobs = plan.at_once
    part = f"Figure 12: jobs in a group, {jobs.label}, AntMan over Muri-L"
    antman = plan.case(jobs).run("antman")
    for limit in LIMITS:
        words = "muri-l" if limit == LIMITS[-1] else str(limit)
        for i, key in enumerate(("avg_jct_s", "makespan_s")):
            ours = plan.ratio(antman, plan.limited(limit), key)
            theirs = _over(known, jobs.label, "antman", words, i)
            better = None if theirs is not None else at_most(1, ours)
            what = f"at most {limit}: {METRICS[key]}"
            yield near(part, what, ours, "x", theirs, SPREAD, better, WHY_RIVAL["antman"])
    two, three, four = (plan.limited(limit) for limit in LIMITS)
    for key in ("avg_jct_s", "makespan_s"):
        ours = plan.ratio(two, four, key)
        what = f"groups of four serve better than groups of two: {METRICS[key]}"
        yield Claim(part, what, ours, "x", holds=at_most(1, ours))
    ours = plan.ratio(two, three)
    theirs = _over(known, jobs.label, "2", "3", 0)
    what = "two close to three: mean JCT, two over three"
    yield near(part, what, ours, "x", theirs, SPREAD)


def figure_13(plan: MuriExperiment) -> Iterator[Claim]:
    """Yields how Muri's gain grows with the number of bottlenecks there are among jobs."""
    part = "Figure 13: types of jobs"
    gains: dict[str, list[float]] = {}
    for types in plan.types:
        published = TYPES.get(types)
        for i, (rival, muri) in enumerate((("srtf", "muri-s"), ("tiresias", "muri-l"))):
            ours = plan.ratio(plan.typed(types, rival), plan.typed(types, muri))
            theirs = None if published is None else published[i]
            what = f"{types}: mean JCT, {NAMES[rival]} over {NAMES[muri]}"
            why = WHY_ONE_TYPE if types == 1 else ""
            yield near(part, what, ours, "x", theirs, SPREAD, why=why)
            gains.setdefault(muri, []).append(ours)
    for muri, found in gains.items():
        grows = all(at_most(a, b) for a, b in pairwise(found))
        yield Claim(part, f"the gain of {NAMES[muri]} grows with the types", holds=grows)


def figure_14(plan: MuriExperiment) -> Iterator[Claim]:
    """Yields how much wrong stage times cost."""
    part = f"Figure 14: profiling noise, {plan.main.label}, over exact profiles"
    printed = {0.2: NOISE_AT_0_2, 1.0: NOISE_AT_1} if plan.main.file else {}
    for muri in ("muri-s", "muri-l"):
        exact = plan.muri(muri)
        for noise in plan.noises[1:]:
            ours = plan.mean(plan.noisy(muri, noise), seeds=plan.draws) / plan.mean(exact)
            what = f"{NAMES[muri]}, noise {noise:g}: mean JCT"
            theirs = printed.get(noise)
            holds = ours <= theirs + TIE if theirs == NOISE_AT_0_2 else None
            band = ratio_band(theirs, SPREAD) if theirs == NOISE_AT_1 else None
            yield Claim(part, what, ours, "x", theirs, band, holds, WHY_NOISE)
        key, noise = "makespan_s", plan.noises[-1]
        ours = plan.mean(plan.noisy(muri, noise), key, plan.draws) / plan.mean(exact, key)
        what = f"{NAMES[muri]}, noise {noise:g}: makespan"
        band = ratio_band(1.0, TIE) if printed else None
        yield Claim(part, what, ours, "x", 1.0 if printed else None, band)


def varied(plan: MuriExperiment) -> Iterator[Claim]:
    """Yields what one assumption changed at a time does to Muri, and to its gain."""
    part = f"Varying one thing: {plan.main.label}"
    for muri, rival in (("muri-s", "srtf"), ("muri-l", "tiresias")):
        beside = plan.case(plan.main).run(rival)
        for words, run in plan.varied_muri(muri).items():
            ours = plan.mean(run) / HOUR_S
            yield Claim(part, f"{NAMES[muri]}, {words}: mean JCT", ours, "h")
            gain = plan.ratio(beside, run)
            yield Claim(part, f"{NAMES[rival]} over {NAMES[muri]}, {words}", gain, "x")


def orders_that_move(plan: MuriExperiment) -> list[str]:
    """Returns the assumptions under which Muri no longer beats what it is compared with."""
    lost = []
    for muri, rivals in (("muri-s", ("srtf", "srsf")), ("muri-l", UNKNOWN)):
        case = plan.case(plan.main)
        for words, run in plan.varied_muri(muri).items():
            lost += [
                f"{NAMES[muri]} behind {NAMES[rival]}: {words}"
                for rival in rivals
                if rival in case.policies and plan.ratio(case.run(rival), run) < 1
            ]
    return lost


WHY_RIVAL = {
    "antman": "AntMan shares by measured interference here; its class in the artifact, marked not "
    "finished, takes a placeholder for how busy GPUs are",
    "themis": "the artifact's Themis solves for shares with isolated throughputs in wrong units "
    "(its issue 3); ours auctions leases",
    "tiresias": "",
}
WHY_GENERATED = (
    "most jobs of the generated month have one GPU; short ones share with longer ones that a rival "
    "lets wait, while on the authors' traces gangs wait longest and gain most"
)
WHY_RANGE = "trace 1 of the paper is not public, and AntMan and Themis are not the artifact's"
WHY_LOAD = "single long jobs decide when the last one ends"
WHY_BLOSSOM = (
    "the paper does not say how the variant picks whom it merges: here full groups are formed in "
    "order of priority, bucket by bucket, until all fit, so that the first in line share most"
)
WHY_ONE_TYPE = (
    "with one type nothing is worth interleaving, and Muri-L is least attained service without "
    "queues: with groups of one job it does as badly. Who has served as long as others then takes "
    "turns with them, where Tiresias lets the first of a queue end"
)
WHY_NOISE = (
    "ours errs for each job and stage, so that no two jobs are alike any more; a noise of 0.001, "
    "which changes nothing but ties between matchings, costs as much as most draws of 0.2"
)
