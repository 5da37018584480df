"""The AFS paper's runs on real machines, in simulation with the costs of CoDDL's runtime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median

import numpy as np

from dovetail.core.switching import Switching
from dovetail.core.units import HOUR_S
from papers.afs.claims import SPREAD
from papers.afs.experiments import (
    CODDL,
    DAYS,
    NAMES,
    RUNTIMES,
    AfsExperiment,
    AfsRun,
)
from papers.afs.workloads import MONITORED, AfsWorkload
from papers.frame.claim import Claim, at_most, near, ordered, ratio_band
from papers.frame.experiment import sequence

LIVE_H = {"tiresias": 1.45, "themis": 0.50, "optimus": 0.46, "afs-p": 0.41}
"""Mean JCTs of Figure 7a: trace 9 at a hundredth of its time."""
FASTER = {50: {"no RC": 2.12, "no RC/ES": 2.82}, 116: {"no RC": 1.19, "no RC/ES": 1.30}}
"""How much sooner the monitored job ends with all of CoDDL (Figure 8)."""
SCENE_S = 600.0
"""The jobs that may be the monitored one come within so many seconds of the busiest of the day."""


def figure_7(plan: AfsExperiment) -> Iterator[Claim]:
    """Yields the live comparison of policies that know no lengths."""
    hours = {t.policy: plan.results[t]["avg_jct_s"] / HOUR_S for t in plan.live}
    example = plan.live[0].workload
    part = f"Figure 7a: {example.label}, times / {example.squeezed:g}, on CoDDL's runtime"
    real = bool(example.file)
    for policy, ours in hours.items():
        yield Claim(part, f"mean JCT, {NAMES[policy]}", ours, "h", LIVE_H[policy] if real else None)
    for policy in ("tiresias", "themis", "optimus"):
        published = LIVE_H[policy] / LIVE_H["afs-p"]
        yield near(
            part,
            f"{NAMES[policy]} over AFS-P",
            hours[policy] / hours["afs-p"],
            "x",
            published if real else None,
            SPREAD,
        )
        yield Claim(
            part, f"AFS-P at most {NAMES[policy]}", holds=at_most(hours["afs-p"], hours[policy])
        )


def monitored(plan: AfsExperiment, scene: AfsWorkload) -> dict[str, list[float]]:
    """Returns by runtime how much longer each job that may be the monitored one took than on CoDDL.

    These are the video prediction jobs of the busiest minutes, over all draws of models: the
    paper watches one such job and does not say which.
    """
    ratios: dict[str, list[float]] = {words: [] for words in RUNTIMES.values()}
    for words, run in plan.days:
        if replace(run.workload, seed=0) == scene:
            own = sequence(plan.results[run], "jct")
            best = sequence(plan.results[run.varied(switching=Switching.parse(CODDL))], "jct")
            ratios[words] += [own[j] / best[j] for j in _watched(run)]
    return ratios


def _watched(run: AfsRun) -> list[int]:
    """Returns the jobs of a scene that may be the monitored one."""
    if run.workload.told_s:
        return [0]
    jobs = run.workload.trace().jobs
    submit = jobs.submit_s
    within = np.searchsorted(submit, submit + SCENE_S) - np.arange(len(submit))
    first = int(np.argmax(within))
    scene = range(first, first + int(within[first]))
    names = jobs.model.texts()
    return [j for j in scene if names[j] == MONITORED]


WHY_DAY_50 = (
    "the 19 short jobs, 2 to 70 s apart, that the paper tells of are not in the public conversion "
    "of day 50, whether days count from 0 or 1: its densest ten minutes hold 8 jobs of hours, "
    "which some seconds of restarts cannot double; the scene as told stands beside it"
)


def scenes(plan: AfsExperiment) -> list[AfsWorkload]:
    """Returns the workloads of Figure 8: two days, and the first of them as the prose has it."""
    return list(dict.fromkeys(replace(run.workload, seed=0) for _, run in plan.days))


def figure_8(plan: AfsExperiment) -> Iterator[Claim]:
    """Yields what preparing GPUs and cancelling outdated orders give."""
    for scene in scenes(plan):
        day = DAYS[0] if scene.told_s else scene.day
        part = f"Figure 8, AFS-P: {scene.label if scene.told_s else f'day {day} of trace 10'}"
        ratios = monitored(plan, scene)
        for words, published in FASTER[day].items():
            found = ratios[words]
            if found:
                yield Claim(
                    part,
                    f"{words} over CoDDL, median of {len(found)} jobs that may be the monitored",
                    median(found),
                    "x",
                    published,
                    None if scene.told_s else ratio_band(published, SPREAD),
                    why=WHY_DAY_50,
                )
                yield Claim(part, f"{words} over CoDDL, most of these", max(found), "x")
        means = {
            words: plan.results.mean(
                [
                    run
                    for runtime, run in plan.days
                    if runtime == words and replace(run.workload, seed=0) == scene
                ]
            )
            for words in RUNTIMES.values()
        }
        for words in FASTER[day]:
            what = f"mean JCT of all jobs, {words} over CoDDL"
            yield ordered(part, what, means["CoDDL"], means[words])
