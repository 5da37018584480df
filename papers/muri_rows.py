"""The simulations of the Muri paper as findings: Figures 9 to 14, and what moves the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import polars as pl

from papers.finding import TIE, Finding, at_most, ratio_band
from papers.muri_plan import (
    GROUPS,
    LIMITS,
    NAMES,
    UNKNOWN,
    Case,
    Outcomes,
    Plan,
)
from papers.muri_published import (
    NOISE_AT_0_2,
    NOISE_AT_1,
    RANGES,
    SPREAD,
    TYPES,
    WITHOUT_BLOSSOM,
)
from papers.muri_testbed import METRICS
from papers.muri_workload import STORED, Jobs
from papers.setting import Setting

Stored = Mapping[tuple[str, str], tuple[float, float, float]]
"""Mean JCT, makespan and tail by trace and policy, as the artifact holds them."""
POLICY_OF = {
    "SRTF": "srtf", "SRSF": "srsf", "Tiresias": "tiresias", "Themis": "themis",
    "AntMan": "antman", "Muri-S": "muri-s", "Muri-L": "muri-l",
    "Muri_L_w_worstordering": "worst ordering", "Muri_L_wo_blossom": "without Blossom",
    "Muri_L_2 (group size limit)": "2", "Muri_L_3 (group size limit)": "3",
}  # fmt: skip
PAIRS = [(rival, muri) for rivals, muri in GROUPS.values() for rival in rivals]


def stored(setting: Setting) -> Stored:
    """Returns the authors' own figures where the data folder has them."""
    if not setting.has(STORED):
        return {}
    table = pl.read_csv(Path(setting.path(STORED)))
    columns = ("trace", "policy", "authors_avg_jct_s", "authors_makespan_s", "authors_p99_jct_s")
    found: dict[tuple[str, str], tuple[float, float, float]] = {}
    for trace, policy, mean_s, makespan_s, tail_s in table.select(columns).iter_rows():
        name = str(trace).replace("_pr", "'").replace("trace", "trace ")
        found[name, POLICY_OF[policy]] = mean_s, makespan_s, tail_s or 0.0
    return found


def rows(outcomes: Outcomes, plan: Plan, known: Stored) -> Iterator[Finding]:
    """Yields every simulated figure, then the variations."""
    for case in plan.cases:
        yield from figures_9_10(outcomes, case, known)
    if plan.main.file:
        yield from ranges(outcomes, plan)
    yield from load(outcomes, plan)
    yield from figure_11(outcomes, plan, known)
    yield from figure_12(outcomes, plan, known)
    yield from figure_13(outcomes, plan)
    yield from figure_14(outcomes, plan)
    yield from varied(outcomes, plan)


def figures_9_10(outcomes: Outcomes, case: Case, known: Stored) -> Iterator[Finding]:
    """Yields rivals over Muri on one trace, with the artifact's figures where it has them."""
    part = f"Figures 9 and 10: {case.jobs.label}"
    for rival, muri in PAIRS:
        if rival not in case.policies:
            continue
        for i, (key, words) in enumerate(METRICS.items()):
            ours = outcomes.ratio(case.trial(rival), case.trial(muri), key)
            what = f"{words}, {NAMES[rival]} over {NAMES[muri]}"
            theirs = _over(known, case.jobs.label, rival, muri, i)
            band = None if theirs is None else ratio_band(theirs, SPREAD)
            better = None if theirs is not None or i else at_most(1, ours)
            why = WHY_RIVAL.get(rival, "") if case.jobs.file else WHY_GENERATED
            yield Finding(part, what, ours, "x", theirs, band, better, why)
    for muri in ("muri-s", "muri-l"):
        found = known.get((case.jobs.label, muri))
        if found is not None:
            ours = outcomes[case.trial(muri)]["avg_jct_s"] / 3600
            what = f"mean JCT, {NAMES[muri]}"
            yield Finding(part, what, ours, "h", found[0] / 3600, ratio_band(found[0] / 3600, 0.1))


def _over(known: Stored, trace: str, rival: str, muri: str, metric: int) -> float | None:
    found = known.get((trace, rival)), known.get((trace, muri))
    if found[0] is None or found[1] is None:
        return None
    return found[0][metric] / found[1][metric]


def ranges(outcomes: Outcomes, plan: Plan) -> Iterator[Finding]:
    """Yields least and most over all traces that were played, as the prose has them."""
    part = "Figures 9 and 10: least and most over the traces played"
    for group, (rivals, muri) in GROUPS.items():
        for (key, words), (low, high) in zip(METRICS.items(), RANGES[group], strict=True):
            ratios = [
                outcomes.ratio(case.trial(rival), case.trial(muri), key)
                for case in plan.cases
                for rival in rivals
                if rival in case.policies
            ]
            allowed = low * (1 - SPREAD), high * (1 + SPREAD)
            for word, ours, published in (
                ("least", min(ratios), low),
                ("most", max(ratios), high),
            ):
                what = f"{words} over {NAMES[muri]}, durations {group}: {word}"
                yield Finding(part, what, ours, "x", published, allowed, why=WHY_RANGE)


def load(outcomes: Outcomes, plan: Plan) -> Iterator[Finding]:
    """Yields that Muri shortens the makespan more where all jobs come at once."""
    part = "Impact of load: makespan over Muri's, all at once against as submitted"
    for case in plan.cases:
        if case.jobs.at_once:
            continue
        primed = plan.case(_primed(case))
        for rival, muri in PAIRS:
            if rival not in case.policies or rival not in primed.policies:
                continue
            before, after = (
                outcomes.ratio(c.trial(rival), c.trial(muri), "makespan_s") for c in (case, primed)
            )
            what = f"{case.jobs.label}: {NAMES[rival]} over {NAMES[muri]}"
            holds = at_most(before, after)
            yield Finding(part, what, after / before, "x", holds=holds, why=WHY_LOAD)


def _primed(case: Case) -> Jobs:
    return replace(case.jobs, at_once=True)


def figure_11(outcomes: Outcomes, plan: Plan, known: Stored) -> Iterator[Finding]:
    """Yields what ordering and matching are worth to Muri-L."""
    part = f"Figure 11: the design of the algorithm, {plan.main.label}, over Muri-L"
    base = plan.muri("muri-l")
    for words, parameters in (
        ("worst ordering", "ordering=worst"),
        ("without Blossom", "matching=priority"),
    ):
        trial = plan.muri("muri-l", parameters)
        for i, key in enumerate(("avg_jct_s", "makespan_s")):
            ours = outcomes.ratio(trial, base, key)
            theirs = _over(known, plan.main.label, words, "muri-l", i)
            band = None if theirs is None else ratio_band(theirs, SPREAD)
            why = WHY_BLOSSOM if "Blossom" in words else ""
            what = f"{words}: {METRICS[key]}"
            worse = None if theirs is not None else at_most(1, ours)
            yield Finding(part, what, ours, "x", theirs, band, worse, why)
    if plan.main.file:
        ours = outcomes.ratio(plan.muri("muri-l", "matching=priority"), base)
        what = "without Blossom: mean JCT, at most over the paper's traces"
        yield Finding(part, what, ours, "x", WITHOUT_BLOSSOM[0])


def figure_12(outcomes: Outcomes, plan: Plan, known: Stored) -> Iterator[Finding]:
    """Yields how many jobs a group should have at most, against AntMan."""
    jobs = plan.at_once
    part = f"Figure 12: jobs in a group, {jobs.label}, AntMan over Muri-L"
    antman = plan.case(jobs).trial("antman")
    for limit in LIMITS:
        words = "muri-l" if limit == LIMITS[-1] else str(limit)
        for i, key in enumerate(("avg_jct_s", "makespan_s")):
            ours = outcomes.ratio(antman, plan.limited(limit), key)
            theirs = _over(known, jobs.label, "antman", words, i)
            band = None if theirs is None else ratio_band(theirs, SPREAD)
            better = None if theirs is not None else at_most(1, ours)
            what = f"at most {limit}: {METRICS[key]}"
            yield Finding(part, what, ours, "x", theirs, band, better, WHY_RIVAL["antman"])
    two, three, four = (plan.limited(limit) for limit in LIMITS)
    for key in ("avg_jct_s", "makespan_s"):
        ours = outcomes.ratio(two, four, key)
        what = f"groups of four serve better than groups of two: {METRICS[key]}"
        yield Finding(part, what, ours, "x", holds=at_most(1, ours))
    ours = outcomes.ratio(two, three)
    theirs = _over(known, jobs.label, "2", "3", 0)
    what = "two close to three: mean JCT, two over three"
    band = None if theirs is None else ratio_band(theirs, SPREAD)
    yield Finding(part, what, ours, "x", theirs, band)


def figure_13(outcomes: Outcomes, plan: Plan) -> Iterator[Finding]:
    """Yields how Muri's gain grows with the number of bottlenecks there are among jobs."""
    part = "Figure 13: types of jobs"
    gains: dict[str, list[float]] = {}
    for types in plan.types:
        published = TYPES.get(types)
        for i, (rival, muri) in enumerate((("srtf", "muri-s"), ("tiresias", "muri-l"))):
            ours = outcomes.ratio(plan.typed(types, rival), plan.typed(types, muri))
            theirs = None if published is None else published[i]
            band = None if theirs is None else ratio_band(theirs, SPREAD)
            what = f"{types}: mean JCT, {NAMES[rival]} over {NAMES[muri]}"
            why = WHY_ONE_TYPE if types == 1 else ""
            yield Finding(part, what, ours, "x", theirs, band, why=why)
            gains.setdefault(muri, []).append(ours)
    for muri, found in gains.items():
        grows = all(at_most(a, b) for a, b in pairwise(found))
        yield Finding(part, f"the gain of {NAMES[muri]} grows with the types", holds=grows)


def figure_14(outcomes: Outcomes, plan: Plan) -> Iterator[Finding]:
    """Yields how much wrong stage times cost."""
    part = f"Figure 14: profiling noise, {plan.main.label}, over exact profiles"
    printed = {0.2: NOISE_AT_0_2, 1.0: NOISE_AT_1} if plan.main.file else {}
    for muri in ("muri-s", "muri-l"):
        exact = outcomes[plan.muri(muri)]
        for noise in plan.noises[1:]:
            trials = plan.noisy(muri, noise)
            jct = outcomes.mean(trials) / exact["avg_jct_s"]
            what = f"{NAMES[muri]}, noise {noise:g}: mean JCT"
            theirs = printed.get(noise)
            holds = jct <= theirs + TIE if theirs == NOISE_AT_0_2 else None
            band = ratio_band(theirs, SPREAD) if theirs == NOISE_AT_1 else None
            yield Finding(part, what, jct, "x", theirs, band, holds, WHY_NOISE)
        makespan = outcomes.mean(plan.noisy(muri, plan.noises[-1]), "makespan_s")
        ours = makespan / exact["makespan_s"]
        what = f"{NAMES[muri]}, noise {plan.noises[-1]:g}: makespan"
        band = ratio_band(1.0, TIE) if printed else None
        yield Finding(part, what, ours, "x", 1.0 if printed else None, band)


def varied(outcomes: Outcomes, plan: Plan) -> Iterator[Finding]:
    """Yields what one assumption changed at a time does to Muri, and to its gain."""
    part = f"Varying one thing: {plan.main.label}"
    for muri, rival in (("muri-s", "srtf"), ("muri-l", "tiresias")):
        beside = plan.case(plan.main).trial(rival)
        for words, trial in plan.varied(muri).items():
            ours = outcomes[trial]["avg_jct_s"] / 3600
            yield Finding(part, f"{NAMES[muri]}, {words}: mean JCT", ours, "h")
            gain = outcomes.ratio(beside, trial)
            yield Finding(part, f"{NAMES[rival]} over {NAMES[muri]}, {words}", gain, "x")


def orders_that_move(outcomes: Outcomes, plan: Plan) -> list[str]:
    """Returns the assumptions under which Muri no longer beats what it is compared with."""
    lost = []
    for muri, rivals in (("muri-s", ("srtf", "srsf")), ("muri-l", UNKNOWN)):
        case = plan.case(plan.main)
        for words, trial in plan.varied(muri).items():
            lost += [
                f"{NAMES[muri]} behind {NAMES[rival]}: {words}"
                for rival in rivals
                if rival in case.policies and outcomes.ratio(case.trial(rival), trial) < 1
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
