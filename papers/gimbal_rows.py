"""The rows of the GIMBAL study: each number of the paper beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from dovetail.core.switching import Switching
from papers.finding import TIE, Finding
from papers.gimbal_beds import ABLATION_JOBS, CLASSES
from papers.gimbal_example import ExampleTrial
from papers.gimbal_pairs import LAWS, Pairs, pair_trials
from papers.gimbal_published import (
    ABLATION,
    ABLATION_QUEUE,
    JCT,
    JCT_BAND,
    LEAST,
    MAKESPAN_BAND,
    MAKESPAN_H,
    MET,
    QUALITY,
    QUALITY_LEAST,
    QUEUE,
    SEARCH_S,
    SLURM,
    STEP_S,
    SWITCH_S,
    TIME_MOST,
)
from papers.gimbal_runs import (
    BOLD,
    GANDIVA,
    GAVEL,
    LUCID,
    STEPS,
    SWEPT,
    UPPERS,
    WORDS,
    XIS,
    Gain,
    Results,
    Run,
    Upper,
    variations,
)
from papers.gimbal_runs import SLURM as BACKFILL
from papers.gimbal_sets import MANNERS, SETS, SetTrial
from papers.gimbal_why import WHY
from papers.trials import Numbers

PAIR_XIS = (1.25, 1.5, 1.75, 2.0)
SCORES = (2, 4)
"""Other thresholds of Lucid's score than 3; the paper relaxes it and does not say how far."""


def rows(results: Results) -> Iterator[Finding]:
    """Returns all rows."""
    yield from _pairs(results)
    yield from _pairs_by_ratio(results)
    yield from _example(results)
    for mix in results.mixes:
        yield from _jct(results, mix)
        yield from _deadlines(results, mix)
        if GAVEL in results.uppers(mix):
            yield from _makespan(results, mix)
    yield from _ablation(results)
    yield from _search(results)
    yield from _interference(results)
    yield from _what_decides(results)


def everything(results: Results) -> list[tuple[Run, bool]]:
    """Returns every run of the study and whether fewer beds do, so that one bar knows them all."""
    asked: list[tuple[Run, bool]] = []
    for mix in results.mixes:
        asked += [
            (run, False) for upper in results.uppers(mix) for run in pair(results, mix, upper)
        ]
        asked.append((Run(results.bed(mix), BACKFILL), False))
    asked += [(run, False) for upper in UPPERS for run in ablation(results, upper).values()]
    asked += [(run, True) for upper in SWEPT for xi in XIS for run in at(results, upper, xi)]
    asked += [(free_at(results, xi), True) for xi in XIS]
    for words, run in variations(results).items():
        if words != "as above" and not results.quick:
            asked += [(_as(run, upper.alone), True) for upper in UPPERS]
            asked += [(_as(run, upper.under()), True) for upper in UPPERS]
    if not results.quick:
        asked += [(run, True) for _, _, run in _packings(results)]
    return asked


def pair(results: Results, mix: str, upper: Upper) -> tuple[Run, Run]:
    """Returns a scheduler alone and under GIMBAL on a mix."""
    bed = results.bed(mix)
    return Run(bed, upper.alone), Run(bed, upper.under())


def ablation(results: Results, upper: Upper) -> Mapping[str, Run]:
    """Returns the runs of the ablation: alone, then with one mechanism more at a time."""
    bed = results.bed("philly", ABLATION_JOBS)
    return {"alone": Run(bed, upper.alone), **{s: Run(bed, upper.under(s)) for s in STEPS}}


def at(results: Results, upper: Upper, xi: str | float) -> tuple[Run, Run]:
    """Returns a scheduler alone and under GIMBAL at an interference ratio."""
    alone, under = pair(results, "philly", upper)
    return replace(alone, interference=xi), replace(under, interference=xi)


def gain(results: Results, mix: str, upper: Upper, what: str = "") -> Gain:
    """Returns what GIMBAL gains a scheduler on a mix."""
    alone, under = pair(results, mix, upper)
    return results.gain(under, alone, what or upper.measure)


def _as(run: Run, policy: str) -> Run:
    return replace(run, policy=policy)


def free_at(results: Results, xi: str | float) -> Run:
    """Returns Lucid packing anybody at an interference ratio, without the two mechanisms."""
    return replace(Run(results.bed(), BOLD.under(STEPS[0])), interference=xi)


def swept_gain(results: Results, upper: Upper, xi: str | float) -> Gain:
    """Returns what GIMBAL gains a scheduler at an interference ratio."""
    alone, under = at(results, upper, xi)
    return results.gain(under, alone, upper.measure, few=True)


def _packings(results: Results) -> Iterator[tuple[Upper, str, Run]]:
    """Returns other ways to pack, one thing changed at a time."""
    bed = results.bed()
    for score in SCORES:
        policy = LUCID.under().replace("score-limit=3", f"score-limit={score}")
        yield LUCID, f"scores of {score} together", Run(bed, policy)
    for upper in UPPERS:
        yield upper, "relaxed, without GIMBAL", Run(bed, upper.relaxed_alone)
        yield upper, "with GIMBAL, equal sizes only", Run(bed, upper.equal_under)


def _held(
    part: str,
    what: str,
    found: Gain,
    published: float | None,
    least: float = 1 - TIE,
    why: str = "",
) -> Finding:
    """Returns a row of a rule: a gain of at least so much."""
    holds = found.mean >= least
    said = f"{what} ({found.words})"
    return Finding(part, said, found.mean, "", published, holds=holds, why=why)


def _banded(
    part: str, what: str, found: Gain, published: float, band: tuple[float, float], why: str
) -> Finding:
    said = f"{what} ({found.words})"
    return Finding(part, said, found.mean, "", published, band, why=why)


def _pairs(results: Results) -> Iterator[Finding]:
    part = "Figure 2: two jobs on the same GPUs, all pairs of the twelve models"
    pairs = Pairs(results.trials.play(pair_trials()))
    law = next(iter(LAWS))
    free, best = pairs.free(law), pairs.best(law)
    yield Finding(part, "a: share that beat serial, free competition", free, "", 0.4)
    what = "a: more beat serial under some limit than free"
    yield Finding(part, what, best, "", 0.8, holds=best > free, why=WHY["pairs"])
    one_peak = pairs.unimodal(law)
    what = "a: nine of ten have one peak over the limit"
    yield Finding(part, what, one_peak, holds=one_peak >= 0.9, why=WHY["one peak"])
    for other in LAWS:
        said = f"a: best limit between 10 and 100 %, loss by {other}"
        yield Finding(part, said, pairs.within(other))
        if other != law:
            yield Finding(part, f"a: share with one peak, loss by {other}", pairs.unimodal(other))
    yield Finding(part, "b: unequal, share that beat serial", pairs.unequal("straggling"), "", 0.6)
    even = pairs.unequal("even")
    what = "b: all beat serial when samples move"
    yield Finding(part, what, even, "", 1.0, holds=even == 1, why=WHY["samples"])
    evened = pairs.evened()
    yield Finding(
        part,
        "b: none is worse for moved samples",
        evened,
        "",
        1.0,
        holds=evened == 1,
        why=WHY["samples"],
    )


def _pairs_by_ratio(results: Results) -> Iterator[Finding]:
    """Returns what the pairs of Figure 2 would be at one interference ratio for all."""
    part = "Figure 2 at one interference ratio for all pairs: share that beats serial"
    law = next(iter(LAWS))
    for xi in PAIR_XIS:
        pairs = Pairs(results.trials.play(pair_trials(xi)))
        yield Finding(part, f"a: free competition, {_ratio(xi)}", pairs.free(law), "", 0.4)
        yield Finding(part, f"a: under some limit, {_ratio(xi)}", pairs.best(law), "", 0.8)
        straggling = pairs.unequal("straggling")
        yield Finding(part, f"b: with stragglers, {_ratio(xi)}", straggling, "", 0.6)
        yield Finding(part, f"b: samples moved, {_ratio(xi)}", pairs.unequal("even"), "", 1.0)


def _example(results: Results) -> Iterator[Finding]:
    part = "Section 4.1: the example"
    (found,) = results.trials.play([ExampleTrial()])
    yield Finding(
        part,
        "mean in free competition",
        found["free"],
        "h",
        7.5,
        (7.499, 7.501),
        why=WHY["example"],
    )
    yield Finding(
        part, "mean at the limits found", found["found"], "h", 6.0, (5.94, 6.06), why=WHY["example"]
    )
    yield Finding(part, "mean JCT through the world, free", found["free through the world"], "h")
    yield Finding(part, "mean JCT through the world, found", found["found through the world"], "h")


def _jct(results: Results, mix: str) -> Iterator[Finding]:
    alone, under = pair(results, mix, LUCID)
    name, slurm = alone.bed.of.name, Run(alone.bed, BACKFILL)
    part = f"Figures 8 and 9: {name}, {sum(alone.bed.counts)} jobs, Lucid"
    found = gain(results, mix, LUCID)
    yield _banded(part, "mean JCT over that with GIMBAL", found, JCT[mix], JCT_BAND, WHY["jct"])
    queue = gain(results, mix, LUCID, "queue")
    what = "mean queueing over that with GIMBAL"
    yield _held(part, what, queue, QUEUE[mix], why=WHY["queue"])
    longer, shorter = (gain(results, mix, LUCID, f"jct {half}") for half in ("longer", "shorter"))
    yield Finding(
        part,
        "the longer half of the jobs gains more than the shorter",
        longer.mean / shorter.mean,
        holds=longer.mean > shorter.mean,
        why=WHY["longer"],
    )
    for what in ("jct", "queue"):
        over = results.gain(under, slurm, what)
        published = SLURM[what] if mix == "alibaba" else None
        said = f"Slurm's {WORDS[what]} over that of Lucid with GIMBAL ({over.words})"
        yield Finding(part, said, over.mean, "", published, holds=over.mean > 1, why=WHY["slurm"])
    for run, said in ((alone, "Lucid"), (under, "with GIMBAL"), (slurm, "Slurm")):
        yield Finding(part, f"mean JCT, {said}", results.mean(run, "jct"), "h")
        yield Finding(part, f"mean queueing, {said}", results.mean(run, "queue"), "h")


def _deadlines(results: Results, mix: str) -> Iterator[Finding]:
    alone, under = pair(results, mix, GANDIVA)
    slurm = Run(alone.bed, BACKFILL)
    part = f"Figures 8 and 10: {alone.bed.of.name}, {sum(alone.bed.counts)} jobs, Gandiva"
    theirs = MET[mix]
    found = gain(results, mix, GANDIVA)
    what = "deadlines met, with GIMBAL over without"
    yield _held(part, what, found, theirs[1] / theirs[0], why=WHY["met"])
    for name in CLASSES:
        of_class = gain(results, mix, GANDIVA, f"met {name}")
        yield Finding(part, f"the same, {name} jobs ({of_class.words})", of_class.mean)
    for run, said, published in (
        (alone, "Gandiva", theirs[0]),
        (under, "with GIMBAL", theirs[1]),
        (slurm, "Slurm", SLURM["met"] if mix == "alibaba" else None),
    ):
        yield Finding(part, f"deadlines met, {said}", results.mean(run, "met"), "", published)


def _makespan(results: Results, mix: str) -> Iterator[Finding]:
    alone, under = pair(results, mix, GAVEL)
    part = f"Figures 8 and 11: {alone.bed.of.name}, {sum(alone.bed.counts)} jobs, Gavel"
    before, after = MAKESPAN_H[mix]
    found = gain(results, mix, GAVEL)
    what = "makespan over that with GIMBAL"
    yield _banded(part, what, found, before / after, MAKESPAN_BAND, WHY["makespan"])
    peak = results.mean(under, "peak") / results.mean(alone, "peak")
    what = "peak throughput is higher with GIMBAL"
    yield Finding(part, what, peak, holds=peak > 1, why=WHY["peak"])
    for run, said, published in ((alone, "Gavel", before), (under, "with GIMBAL", after)):
        yield Finding(part, f"makespan, {said}", results.mean(run, "makespan"), "h", published)


def _ablation(results: Results) -> Iterator[Finding]:
    for upper in UPPERS:
        part = f"Figure 12: ablation, 100 jobs on 16 GPUs, {upper.name}"
        runs = ablation(results, upper)
        before = runs["alone"]
        for step in STEPS:
            over = results.gain(runs[step], runs["alone"], upper.measure)
            published = ABLATION[step][upper.measure]
            said = f"{WORDS[upper.measure]}, {step}: gain over {upper.name} alone ({over.words})"
            yield Finding(part, said, over.mean, "", published)
            added = results.gain(runs[step], before, upper.measure)
            what = f"{step} takes no more than 2 % away"
            yield _held(part, what, added, None, LEAST, WHY.get(f"{upper.name} {step}", ""))
            before = runs[step]
        if upper is LUCID:
            for step in STEPS:
                over = results.gain(runs[step], runs["alone"], "queue")
                said = f"queueing, {step}: gain over Lucid alone ({over.words})"
                yield Finding(part, said, over.mean, "", ABLATION_QUEUE[step])


def searches(results: Results) -> Mapping[tuple[str, str], Numbers]:
    """Returns what came of each set of Table 3 in each manner."""
    asked = [(name, manner) for name in SETS for manner in ("serial", *MANNERS)]
    played = results.trials.play([SetTrial(*which) for which in asked])
    return dict(zip(asked, played, strict=True))


def _search(results: Results) -> Iterator[Finding]:
    part = "Table 3, Figures 14 and 15: the search on eight sets"
    found = searches(results)

    def mean(manner: str, what: str) -> float:
        return float(np.mean([found[name, manner][what] for name in SETS]))

    full, early = mean("full search", "seconds"), mean("early exit", "seconds")
    yield Finding(part, "full search", full, "s", SEARCH_S[0])
    yield Finding(part, "search with early exit", early, "s", SEARCH_S[1])
    what = "early exit over full search, time"
    theirs = SEARCH_S[1] / SEARCH_S[0]
    yield Finding(part, what, early / full, "", theirs, (0.0, TIME_MOST), why=WHY["early exit"])
    quality = mean("full search", "jct") / mean("early exit", "jct")
    what = "mean JCT, full search over early exit"
    yield Finding(part, what, quality, "", QUALITY, (QUALITY_LEAST, 1.02), why=WHY["quality"])
    yield Finding(part, "settings tried by a full search", mean("full search", "steps"))
    yield Finding(part, "settings tried with early exit", mean("early exit", "steps"))
    yield Finding(
        part, "most settings tried for a set, of 10 (M - 1)",
        max(found[n, "full search"]["steps"] for n in SETS), "", 20.0,
        (0.0, 20.0), why=WHY["steps"],
    )  # fmt: skip
    yield Finding(
        part, "one setting, limits", full / mean("full search", "steps"), "s", STEP_S["LGRR"]
    )
    moved = [found[name, "LISS alone"] for name in SETS if found[name, "LISS alone"]["steps"]]
    if moved:
        step_s = sum(m["seconds"] for m in moved) / sum(m["steps"] + 1 for m in moved)
        yield Finding(part, "one setting, samples", step_s, "s", STEP_S["LISS"])
    yield Finding(part, "of it a change of limits", Switching().limit_s, "s", SWITCH_S)
    for manner in ("free competition", "early exit"):
        ratio = mean("serial", "jct") / mean(manner, "jct")
        yield Finding(part, f"one after another over {manner}, mean JCT", ratio)


def _interference(results: Results) -> Iterator[Finding]:
    part = "Gain by interference, one ratio for all pairs: Philly's jobs"
    for upper in SWEPT:
        for xi in XIS:
            found = swept_gain(results, upper, xi)
            said = f"{WORDS[upper.measure]}, {upper.name}, {_ratio(xi)} ({found.words})"
            yield Finding(part, said, found.mean)
    part = "What limits and samples add to Lucid packing anybody, by interference"
    for xi in XIS:
        _, under = at(results, BOLD, xi)
        found = results.gain(under, free_at(results, xi), "jct", few=True)
        yield Finding(part, f"mean JCT, {_ratio(xi)} ({found.words})", found.mean)


def _ratio(xi: str | float) -> str:
    return f"ratio {xi:g}" if isinstance(xi, float) else f"{xi} ratios"


def _what_decides(results: Results) -> Iterator[Finding]:
    if results.quick:
        return
    part = "What decides it: one assumption changed at a time, Philly's jobs, gain of GIMBAL"
    for words, run in variations(results).items():
        for upper in UPPERS:
            alone, under = _as(run, upper.alone), _as(run, upper.under())
            found = results.gain(under, alone, upper.measure, few=True)
            said = f"{WORDS[upper.measure]}, {upper.name}: {words} ({found.words})"
            yield Finding(part, said, found.mean)
    part = "What decides it: how boldly is packed, Philly's jobs, gain over the scheduler alone"
    for upper, words, run in _packings(results):
        found = results.gain(run, _as(run, upper.alone), upper.measure, few=True)
        said = f"{WORDS[upper.measure]}, {upper.name}: {words} ({found.words})"
        yield Finding(part, said, found.mean)
