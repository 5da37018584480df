"""The figures of the Muri paper as we find them, and ours against the measured jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dovetail.core.units import DAY_S, HOUR_S
from dovetail.report.plots import canvas
from papers.frame.claim import Plot
from papers.frame.drawing import (
    bar_chart,
    draw_level,
    draw_ratio_bars,
    label_rows,
    legend_above,
    one_panel,
    outer_labels,
    six_panels,
)
from papers.frame.experiment import Results, sequence
from papers.muri.experiments import (
    GROUPS,
    LIMITS,
    NAMES,
    RESOURCES,
    MuriExperiment,
)
from papers.muri.testbed import (
    LOGS,
    METRICS,
    Testbed,
    find_testbed,
    measured_numbers,
    paired,
    rivals_of,
)

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

MEANWHILE = {"queue": "jobs waiting", "blocking": "blocking index"} | {
    name: f"{name} used (%)" for name in RESOURCES
}
WORDS = {"known": "durations known", "unknown": "durations not known"}


def plots(plan: MuriExperiment) -> Iterator[Plot]:
    """Yields all plots that what was played allows."""
    testbed = find_testbed(plan.scope)
    if testbed is not None:
        yield from _of_testbed(plan.results, testbed)
    for number, group in ((9, "known"), (10, "unknown")):
        yield Plot(
            f"figure-{number}",
            f"Figure {number}: rivals over Muri, {WORDS[group]}",
            "Above 1 Muri is better. A prime: all jobs come at once.",
            partial(rivals, plan, group),
        )
    yield Plot(
        "figure-11",
        f"Figure 11: the design of the algorithm, {plan.main.label}",
        "Mean JCT and makespan over Muri-L's.",
        partial(design, plan),
    )
    yield Plot(
        "figure-12",
        f"Figure 12: how many jobs in a group, {plan.at_once.label}",
        "Over Muri-L with up to four.",
        partial(limits, plan),
    )
    if plan.types:
        yield Plot(
            "figure-13",
            "Figure 13: types of jobs, by bottleneck",
            "Mean JCT of the rival over Muri's; rings: published.",
            partial(types, plan),
        )
    yield Plot(
        "figure-14",
        f"Figure 14: wrong stage times, {plan.main.label}",
        f"Over exact ones; lines: means over {plan.draws} draws, which are the dots.",
        partial(noise, plan),
    )
    yield Plot(
        "rules",
        f"Which rule of the cycle: {plan.main.label}",
        "Mean JCT of the rival over Muri's. What decides most is whether contention is counted on "
        "top of barriers.",
        partial(rules, plan),
    )


def _of_testbed(results: Results, testbed: Testbed) -> Iterator[Plot]:
    yield Plot(
        "testbed-jobs",
        "Each of the 400 jobs, simulated against measured",
        "JCT of a job in our replay over that on 64 V100, both in hours.",
        partial(jobs, results, testbed),
    )
    yield Plot(
        "testbed-means",
        "The testbed as a whole",
        "Simulated over measured, by policy.",
        partial(means, results, testbed),
    )
    for group, (_, muri) in GROUPS.items():
        yield Plot(
            f"figure-8-{group}",
            f"Figure 8: the testbed meanwhile, {WORDS[group]}",
            "Averages over equal spans of each run, as simulated.",
            partial(meanwhile, results, testbed, muri),
        )


def jobs(results: Results, testbed: Testbed) -> Figure:
    """Draws our JCT of each job against the measured one."""
    with canvas.house_style():
        figure, panels = six_panels(6.4)
        for axes, policy in zip(panels, LOGS, strict=True):
            ours, theirs = paired(testbed, results, testbed.run(policy), policy)
            ours, theirs = ours / HOUR_S, theirs / HOUR_S
            ends = (0.02, 1.5 * max(float(ours.max()), float(theirs.max())))
            axes.plot(ends, ends, color=canvas.FAINT, linewidth=0.8)
            axes.scatter(theirs, ours, s=5, color=canvas.colour(0), linewidths=0)
            axes.set_xscale("log")
            axes.set_yscale("log")
            for axis in (axes.xaxis, axes.yaxis):
                _plainly(axis, (0.1, 1.0, 10.0, 100.0, 1000.0))
            axes.set_title(NAMES[policy])
        outer_labels(figure, "measured (h)", "simulated (h)")
        return figure


def _plainly(axis: Axis, values: Sequence[float]) -> None:
    """Labels an axis at these values, in plain numbers."""
    from matplotlib.ticker import FixedLocator, NullLocator

    low, high = axis.get_view_interval()
    axis.set_major_locator(FixedLocator([v for v in values if low <= v <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")


def means(results: Results, testbed: Testbed) -> Figure:
    """Draws our mean, makespan and tail over the measured ones."""
    found: dict[str, list[float]] = {words: [] for words in METRICS.values()}
    for policy in LOGS:
        measured = measured_numbers(testbed.measured(policy))
        for key, words in METRICS.items():
            found[words].append(results[testbed.run(policy)][key] / measured[key])
    groups = [NAMES[p] for p in LOGS]
    return bar_chart(groups, found, "simulated / measured", height_in=2.8, level="solid")


def meanwhile(results: Results, testbed: Testbed, muri: str) -> Figure:
    """Draws queue, blocking and the use of each resource over time."""
    policies = (*rivals_of(muri), muri)
    with canvas.house_style():
        figure, panels = six_panels(5.6)
        looks = canvas.looks([NAMES[p] for p in policies])
        for axes, (key, words) in zip(panels, MEANWHILE.items(), strict=True):
            for policy in policies:
                numbers = results[testbed.run(policy)]
                days = np.array(sequence(numbers, "t")) / DAY_S
                values = np.array(sequence(numbers, key)) * (100 if key in RESOURCES else 1)
                axes.plot(days, values, **looks[NAMES[policy]], linewidth=1.2)
            axes.set_title(words)
            if key == "blocking":
                axes.set_yscale("symlog", linthresh=0.1)
                _plainly(axes.yaxis, (0.0, 0.1, 1.0, 10.0, 100.0, 1000.0))
            axes.set_ylim(bottom=0)
            axes.set_xlim(left=0)
            canvas.grid(axes)
        outer_labels(figure, "days")
        legend_above(figure, panels[0], 4)
        return figure


def rivals(plan: MuriExperiment, group: str) -> Figure:
    """Draws mean JCT, makespan and tail of the rivals over Muri's, by trace."""
    names, muri = GROUPS[group]
    shown = [p for p in names if any(p in c.policies for c in plan.cases)]
    with canvas.house_style():
        figure, panels = canvas.sheet(6.0, len(METRICS))
        for axes, (key, words) in zip(panels, METRICS.items(), strict=True):
            bars = {
                NAMES[p]: [
                    plan.ratio(c.run(p), c.run(muri), key) if p in c.policies else float("nan")
                    for c in plan.cases
                ]
                for p in shown
            }
            groups = [c.jobs.label.removeprefix("trace ") for c in plan.cases]
            draw_ratio_bars(axes, groups, bars, "")
            axes.set_title(f"{words} over {NAMES[muri]}")
        panels[-1].set_xlabel("trace")
        legend_above(figure, panels[0], 4)
        return figure


def design(plan: MuriExperiment) -> Figure:
    """Draws Muri-L's variants over Muri-L."""
    base = plan.muri("muri-l")
    bars = {
        words: [
            plan.ratio(plan.muri("muri-l", parameters), base, key)
            for parameters in ("ordering=worst", "matching=priority")
        ]
        for key, words in (("avg_jct_s", "mean JCT"), ("makespan_s", "makespan"))
    }
    return bar_chart(
        ["worst ordering", "without Blossom"], bars, "over Muri-L", height_in=2.6, level="solid"
    )


def limits(plan: MuriExperiment) -> Figure:
    """Draws Muri-L with smaller groups, and AntMan, over Muri-L."""
    base = plan.limited(LIMITS[-1])
    runs = [*(plan.limited(n) for n in LIMITS), plan.case(plan.at_once).run("antman")]
    bars = {
        words: [plan.ratio(run, base, key) for run in runs]
        for key, words in (("avg_jct_s", "mean JCT"), ("makespan_s", "makespan"))
    }
    groups = [*(f"Muri-L-{n}" for n in LIMITS), "AntMan"]
    return bar_chart(groups, bars, "over Muri-L-4", height_in=2.6, level="solid")


def types(plan: MuriExperiment) -> Figure:
    """Draws Muri's gain by the number of job types."""
    from papers.muri.published import TYPES

    with one_panel(2.8) as (figure, axes):
        pairs = (("srtf", "muri-s"), ("tiresias", "muri-l"))
        looks = canvas.looks([NAMES[muri] for _, muri in pairs])
        for place, (rival, muri) in enumerate(pairs):
            look = looks[NAMES[muri]] | {"label": f"{NAMES[rival]} / {NAMES[muri]}"}
            counts = list(plan.types)
            gains = [plan.ratio(plan.typed(n, rival), plan.typed(n, muri)) for n in counts]
            axes.plot(counts, gains, marker="o", markersize=4, **look)
            axes.scatter(
                list(TYPES),
                [pair[place] for pair in TYPES.values()],
                s=50,
                facecolors="none",
                edgecolors=canvas.colour(place),
            )
        draw_level(axes)
        axes.set_xticks(list(plan.types))
        axes.set_xlabel("types of jobs")
        axes.set_ylabel("mean JCT over Muri's")
        canvas.grid(axes)
        axes.legend()
        return figure


def noise(plan: MuriExperiment) -> Figure:
    """Draws what wrong stage times cost."""
    with one_panel(2.8) as (figure, axes):
        looks = canvas.looks(["Muri-S", "Muri-L"])
        for place, muri in enumerate(("muri-s", "muri-l")):
            exact = plan.mean(plan.muri(muri))
            drawn = {n: plan.each(plan.noisy(muri, n), seeds=plan.draws_of(n)) for n in plan.noises}
            means = [float(np.mean(jct_s)) / exact for jct_s in drawn.values()]
            axes.plot(plan.noises, means, **looks[NAMES[muri]])
            for n, jct_s in drawn.items():
                each = [one / exact for one in jct_s]
                axes.scatter([n] * len(each), each, s=9, color=canvas.colour(place))
        draw_level(axes)
        axes.set_xlabel("profiling noise")
        axes.set_ylabel("mean JCT over exact")
        canvas.grid(axes)
        axes.legend()
        return figure


def rules(plan: MuriExperiment) -> Figure:
    """Draws Muri's gain under each variation."""
    varied = plan.varied_muri("muri-s")
    with one_panel(0.9 + 0.3 * len(varied)) as (figure, axes):
        case = plan.case(plan.main)
        at = np.arange(len(varied))
        for place, (muri, rival) in enumerate((("muri-s", "srtf"), ("muri-l", "tiresias"))):
            gains = [plan.ratio(case.run(rival), t) for t in plan.varied_muri(muri).values()]
            axes.barh(
                at + (place - 0.5) * 0.38,
                gains,
                0.36,
                color=canvas.colour(place),
                label=f"{NAMES[rival]} / {NAMES[muri]}",
            )
        axes.axvline(1.0, color=canvas.INK, linewidth=0.8)
        label_rows(axes, list(varied), "mean JCT over Muri's", fontsize=8)
        legend_above(figure, axes, 4)
        return figure
