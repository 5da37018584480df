"""The figures of the AFS paper as we find them, drawn like the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dovetail.core.units import DAY_S, HOUR_S
from dovetail.record.result import GPU_SECOND_KINDS
from dovetail.report.plots import canvas
from dovetail.report.plots.run import legend, stacked_seconds
from papers.afs.claims import MODERATE_H
from papers.afs.experiments import (
    ALTRUISTIC,
    AWARE,
    LOADS,
    MAXIMAL,
    NAMES,
    SERIES,
    UNAWARE,
    AfsCase,
    AfsExperiment,
)
from papers.afs.machines import LIVE_H, monitored, scenes
from papers.frame.claim import Plot
from papers.frame.drawing import Bars, draw_ratio_bars, label, one_panel, set_ratios
from papers.frame.experiment import sequence

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN_TOLD_S = 1800.0
"""The length of the monitored job in the scene that is drawn."""
BINS = 100
"""Jobs are put into so many bins of equal size (Figure 10)."""
METRIC_WORDS = {"QL": "jobs waiting (QL)", "CE": "efficiency (CE)", "BI": "blocking (BI)"}


def plots(plan: AfsExperiment) -> Iterator[Plot]:
    """Yields all plots that what was played allows."""
    cases = plan.at_64_gpus
    for case in (c for c in cases if c.detailed):
        yield from _of_one(case)
    yield from _over_traces(cases)
    if any(c.load is not None for c in plan.cases):
        yield Plot(
            "loads",
            "Gain of AFS over rigid policies by load",
            "Mean JCT under the rigid policy over that under AFS, one line a trace.",
            partial(_loads, plan.cases),
        )
    yield Plot(
        "fig07-live",
        "Figure 7a: mean JCT with the costs of a real cluster",
        "Filled: ours; outlined: published.",
        partial(_live, plan),
    )
    for scene in scenes(plan):
        tag = f"told-{scene.told_s:g}s" if scene.told_s else f"day{scene.day}"
        if scene.told_s and scene.told_s != SHOWN_TOLD_S:
            continue
        yield Plot(
            f"fig08-{tag}",
            f"Figure 8: {scene.label if scene.told_s else f'day {scene.day} of trace 10'}",
            "How much longer each job that may be the monitored one took than on CoDDL's "
            "runtime, jobs in order of that, all draws of models.",
            partial(_runtimes, monitored(plan, scene)),
        )


def _of_one(case: AfsCase) -> Iterator[Plot]:
    tag, label = case.workload.number, case.workload.label
    yield Plot(
        f"fig02-trace{tag}",
        f"Figure 2: QL, CE and BI, {label}",
        "Averages over equal spans of each run, one draw of models.",
        partial(_metrics, case),
    )
    yield Plot(
        f"fig10-trace{tag}",
        f"Figure 10: whose jobs gain, {label}",
        "Jobs in order of JCT under the baseline (SRTF above, Tiresias-L below), in bins of "
        "equal size; mean of the reductions in a bin.",
        partial(_by_length, case),
    )
    yield Plot(
        f"gpu-seconds-trace{tag}",
        f"Where all GPU-seconds went, {label}",
        "Useful work is at the requested size; where fewer GPUs did it, the time held.",
        partial(_gpu_seconds, case),
    )


def _over_traces(cases: Sequence[AfsCase]) -> Iterator[Plot]:
    for key, name, title in (
        ("avg_jct_s", "fig05", "Figure 5: mean JCT"),
        ("p99_jct_s", "fig09", "Figure 9: 99th percentile of JCTs"),
    ):
        for base, policies, words in (("srtf", AWARE, "aware"), ("tiresias", UNAWARE, "unaware")):
            shown = [p for p in policies if p != base and any(p in c.policies for c in cases)]
            yield Plot(
                f"{name}-{words}",
                f"{title}, length-{words} policies",
                f"Reduction over {NAMES[base]}: above 1 is better.",
                partial(_bars, cases, base, shown, key),
            )
    cases = [c for c in cases if "afs-s" in c.policies]
    for name, title, base, group in (
        ("fig11", "Figure 11: idle GPUs lent", "srtf", (*ALTRUISTIC, "afs-l")),
        (
            "fig13",
            "Figure 13: reduction from AFS-L",
            "afs-l",
            ("srtf", "max-min", "afs-p", "afs-s"),
        ),
    ):
        yield Plot(
            name,
            title,
            f"Reduction of the mean JCT over {NAMES[base]}: above 1 is better.",
            partial(_bars, cases, base, group, "avg_jct_s"),
        )
    yield Plot(
        "fig06",
        "Figure 6: the largest useful sizes",
        "Mean JCT over that at the requested sizes: above 1 is worse.",
        partial(_blowups, cases),
    )


def _bars(cases: Sequence[AfsCase], base: str, policies: Sequence[str], key: str) -> Figure:
    ratios = {
        NAMES[p]: [
            c.first(base, key) / c.first(p, key) if p in c.policies else float("nan") for c in cases
        ]
        for p in policies
    }
    return _grouped([str(c.workload.number) for c in cases], ratios, f"over {NAMES[base]}")


def _blowups(cases: Sequence[AfsCase]) -> Figure:
    ratios = {
        NAMES[p]: [c.first(p) / c.first(p.removesuffix("-max")) for c in cases] for p in MAXIMAL
    }
    return _grouped([str(c.workload.number) for c in cases], ratios, "over requested sizes")


def _grouped(groups: Sequence[str], values: Bars, words: str) -> Figure:
    """Draws bars from 1, on a scale of factors: a group for each trace, a bar for each policy."""
    with one_panel(2.8) as (figure, axes):
        draw_ratio_bars(axes, groups, values, words, width=0.84, below=1.15)
        axes.set_xlabel("trace (number in Table 3)")
        legend(axes, len(values))
        return figure


def _metrics(case: AfsCase) -> Figure:
    with canvas.house_style():
        figure, panels = canvas.sheet(5.2, len(SERIES))
        looks = canvas.looks(NAMES[p] for p in MODERATE_H)
        longest = 0.0
        for policy in MODERATE_H:
            numbers = case.results[case.run(policy, case.draws[0])]
            days = np.array(sequence(numbers, "t")) / DAY_S
            longest = max(longest, float(days[-1]))
            for axes, name in zip(panels, SERIES, strict=True):
                axes.plot(days, sequence(numbers, name), **looks[NAMES[policy]], linewidth=1.2)
        for axes, name in zip(panels, SERIES, strict=True):
            axes.set_ylabel(METRIC_WORDS[name])
            canvas.grid(axes)
            axes.set_xlim(0, longest)
        panels[1].set_ylim(0, 1.05)
        for axes, least in ((panels[0], 1.0), (panels[2], 0.01)):
            _zero_and_powers(axes, least)
        panels[-1].set_xlabel("time since first submission (days)")
        legend(panels[0], len(MODERATE_H))
        return figure


def _zero_and_powers(axes: Axes, least: float) -> None:
    """Shows zero and powers of ten from `least` on."""
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.set_yscale("symlog", linthresh=least)
    top = axes.get_ylim()[1]
    powers = [0.0, *(p for e in range(-2, 7) if least <= (p := 10.0**e) <= top)]
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(FixedLocator(powers))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_yticklabels([f"{p:g}" for p in powers])


def _by_length(case: AfsCase) -> Figure:
    with canvas.house_style():
        figure, panels = canvas.sheet(4.8, 2)
        for axes, base, policies in (
            (panels[0], "srtf", [p for p in AWARE if p != "srtf"]),
            (panels[1], "tiresias", [p for p in UNAWARE if p != "tiresias"]),
        ):
            looks = canvas.looks(NAMES[p] for p in policies)
            before = np.array(sequence(case.results[case.run(base, case.draws[0])], "jct"))
            bins = np.array_split(np.argsort(before, kind="stable"), min(BINS, len(before)))
            for policy in policies:
                after = np.array(sequence(case.results[case.run(policy, case.draws[0])], "jct"))
                gain = [float(np.mean(before[b] / after[b])) for b in bins]
                axes.plot(range(1, len(bins) + 1), gain, **looks[NAMES[policy]], linewidth=1.2)
            set_ratios(axes, f"over {NAMES[base]}")
            axes.legend(ncols=2, loc="best")
            canvas.grid(axes)
        panels[1].set_xlabel("bin of jobs, by JCT under the baseline")
        panels[1].set_xlim(1, len(bins))
        return figure


def _gpu_seconds(case: AfsCase) -> Figure:
    kept = {
        NAMES[p]: {kind: case.mean(p, f"gpu:{kind}") for kind in GPU_SECOND_KINDS}
        for p in case.policies
    }
    return stacked_seconds(kept)


def _loads(cases: Sequence[AfsCase]) -> Figure:
    with canvas.house_style():
        figure, panels = canvas.sheet(4.6, 2)
        cases = [c for c in cases if c.load is not None]
        names = list(dict.fromkeys(c.workload.label for c in cases))
        looks = canvas.looks(names)
        for axes, base, mine in ((panels[0], "srtf", "afs-l"), (panels[1], "tiresias", "afs-p")):
            for name in names:
                at = [c for c in cases if c.workload.label == name]
                gain = [c.mean(base) / c.mean(mine) for c in at]
                look = looks[name] | {"label": str(at[0].workload.number)}
                axes.plot([c.load or 0.0 for c in at], gain, marker="o", markersize=4, **look)
            set_ratios(axes, f"{NAMES[base]} / {NAMES[mine]}")
            canvas.grid(axes)
        panels[1].set_xlabel("offered load")
        panels[1].set_xticks(LOADS)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(
            handles,
            labels,
            title="trace",
            loc="outside upper center",
            ncols=9,
            handlelength=1.2,
            columnspacing=0.9,
        )
        return figure


def _live(plan: AfsExperiment) -> Figure:
    with one_panel(2.2) as (figure, axes):
        for y, run in enumerate(plan.live):
            hours = plan.results[run]["avg_jct_s"] / HOUR_S
            axes.barh(y - 0.18, hours, 0.36, color=canvas.colour(0), label="ours")
            if plan.live[0].workload.file:
                axes.barh(
                    y + 0.18,
                    LIVE_H[run.policy],
                    0.36,
                    facecolor="none",
                    label="published",
                    edgecolor=canvas.INK,
                )
        axes.set_yticks(range(len(plan.live)), [NAMES[t.policy] for t in plan.live])
        axes.invert_yaxis()
        axes.set_xlabel("mean JCT (h)")
        canvas.grid(axes, "x")
        legend(axes, 2)
        return figure


def _runtimes(ratios: Mapping[str, Sequence[float]]) -> Figure:
    with one_panel(2.6) as (figure, axes):
        _draw_sorted(axes, {words: found for words, found in ratios.items() if words != "CoDDL"})
        set_ratios(axes, "JCT over CoDDL's")
        label(axes, "share of the jobs (%)", "")
        legend(axes, 2)
        return figure


def _draw_sorted(axes: Axes, ratios: Mapping[str, Sequence[float]]) -> None:
    looks = canvas.looks(ratios)
    for words, found in ratios.items():
        axes.plot(np.linspace(0, 100, len(found)), np.sort(found), **looks[words])
