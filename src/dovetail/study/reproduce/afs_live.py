"""The AFS paper's runs on real machines, in simulation with the costs of CoDDL's runtime."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, median

from dovetail.study.reproduce.afs_plan import CODDL, DAYS, NAMES, RUNTIMES, Outcomes, Plan
from dovetail.study.reproduce.afs_rows import HOUR_S, SPREAD
from dovetail.study.reproduce.afs_trial import AfsTrial, sequence
from dovetail.study.reproduce.finding import Finding, at_most, ratio_band

LIVE_H = {"tiresias": 1.45, "themis": 0.50, "optimus": 0.46, "afs-p": 0.41}
"""Mean JCTs of Figure 7a: trace 9 at a hundredth of its time."""
MONITORED = "afs/videoprediction"
FASTER = {50: {"no RC": 2.12, "no RC/ES": 2.82}, 116: {"no RC": 1.19, "no RC/ES": 1.30}}
"""How much sooner the monitored job ends with all of CoDDL (Figure 8)."""


def figure_7(outcomes: Outcomes, plan: Plan) -> Iterator[Finding]:
    """Yields the live comparison of policies that know no lengths."""
    hours = {t.policy: outcomes[t]["avg_jct_s"] / HOUR_S for t in plan.live}
    example = plan.live[0].workload
    part = f"Figure 7a: {example.label}, times / {example.squeezed:g}, on CoDDL's runtime"
    real = bool(example.file)
    for policy, ours in hours.items():
        yield Finding(
            part, f"mean JCT, {NAMES[policy]}", ours, "h", LIVE_H[policy] if real else None
        )
    for policy in ("tiresias", "themis", "optimus"):
        published = LIVE_H[policy] / LIVE_H["afs-p"]
        yield Finding(
            part,
            f"{NAMES[policy]} over AFS-P",
            hours[policy] / hours["afs-p"],
            "x",
            published if real else None,
            ratio_band(published, SPREAD) if real else None,
        )
        yield Finding(
            part,
            f"AFS-P at most {NAMES[policy]}",
            holds=at_most(hours["afs-p"], hours[policy]),
        )


def monitored(outcomes: Outcomes, plan: Plan, day: int) -> dict[str, list[float]]:
    """Returns by runtime how much longer each video prediction job of a day took than on CoDDL's.

    The paper watches one such job and does not say which.
    """
    ratios: dict[str, list[float]] = {words: [] for words in RUNTIMES.values()}
    for trial in plan.days:
        if trial.workload.day != day:
            continue
        names = trial.workload.jobs(trial.models, trial.seed).jobs.model.texts()
        own = sequence(outcomes[trial], "jct")
        best = sequence(outcomes[_on_coddl(trial)], "jct")
        ratios[RUNTIMES[trial.switching]] += [
            a / b for a, b, name in zip(own, best, names, strict=True) if name == MONITORED
        ]
    return ratios


def _on_coddl(trial: AfsTrial) -> AfsTrial:
    return AfsTrial(
        trial.workload, trial.policy, seed=trial.seed, switching=CODDL, detailed=trial.detailed
    )


def figure_8(outcomes: Outcomes, plan: Plan) -> Iterator[Finding]:
    """Yields what preparing GPUs and cancelling outdated orders give."""
    for day in DAYS if plan.days else ():
        part = f"Figure 8: day {day} of trace 10 under AFS-P"
        ratios = monitored(outcomes, plan, day)
        for words, published in FASTER[day].items():
            found = ratios[words]
            yield Finding(
                part,
                f"{words} over CoDDL, one monitored job; ours: the median of {len(found)}",
                median(found),
                "x",
                published,
            )
            yield Finding(part, f"{words} over CoDDL, most of all such jobs", max(found), "x")
            yield Finding(part, f"{words} over CoDDL, mean of all such jobs", fmean(found), "x")
        means = {
            words: fmean(
                outcomes[t]["avg_jct_s"]
                for t in plan.days
                if t.workload.day == day and RUNTIMES[t.switching] == words
            )
            for words in RUNTIMES.values()
        }
        for words in list(FASTER[day]):
            yield Finding(
                part,
                f"mean JCT of all jobs, {words} over CoDDL",
                means[words] / means["CoDDL"],
                "x",
                holds=at_most(means["CoDDL"], means[words]),
            )
