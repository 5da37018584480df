"""The figures of the A-SRPT paper as we find them, and those of what it does not vary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dovetail.core.units import HOUR_S
from dovetail.report.plots import canvas
from papers.a_srpt.experiments import (
    BASELINES,
    HIGH,
    KNOWN,
    NAMES,
    OURS,
    TOLD,
    VARIED,
    ASrptExperiment,
    Sweep,
    flow_s,
)
from papers.frame.claim import Plot
from papers.frame.drawing import legend_above
from papers.frame.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIGURES = {
    "jobs": "figure-6",
    "singles": "figure-7",
    "singles kept": "figure-7-load-kept",
    "nic": "figure-8",
    "nic kept": "figure-8-load-kept",
    "load": "load",
    "load wide": "load-no-single",
    "recurrence": "recurrence",
}
LOGARITHMIC = ("NIC (Gbit/s)",)


def plots(results: Results, plan: ASrptExperiment) -> Iterator[Plot]:
    """Yields all plots."""
    yield Plot(
        "figure-4",
        "Figure 4: how far predictions are off",
        "Share of jobs whose prediction is off by at most so much of the truth; what stands at "
        "100 % off are groups not seen, which count as 0.",
        partial(errors, results, plan),
    )
    yield Plot(
        "figure-5",
        "Figure 5: the testbed",
        "Means over three sets of 75 jobs on 14 GPUs.",
        partial(testbed, results, plan),
    )
    for key, name in FIGURES.items():
        sweep = plan.sweeps[key]
        yield Plot(
            name,
            sweep.title,
            "Mean flow time of a job; above A-SRPT's is worse.",
            partial(flows, results, sweep),
        )
    yield Plot(
        "figure-9",
        "Figure 9: what predictions cost",
        "Total flow time over A-SRPT's with perfect prediction.",
        partial(told, results, plan),
    )
    yield Plot(
        "tau",
        "Waiting for a better placement",
        f"Total flow time over that with tau = 1, at a load of {HIGH:g}.",
        partial(waiting, results, plan),
    )


def errors(results: Results, plan: ASrptExperiment) -> Figure:
    """Draws the distribution of relative errors by method."""
    with canvas.house_style():
        figure, (axes,) = canvas.sheet(3.0)
        methods = [w for w, t in TOLD.items() if t.startswith("taught")]
        looks = canvas.looks(methods)
        for words in methods:
            runs = plan.seeded(OURS, TOLD[words])
            steps = list(range(0, 101, 2))
            off = [100 * results.mean(runs, f"off:{q}") for q in steps]
            axes.plot(off, steps, **looks[words])
        axes.set_xlim(0, 150)
        axes.set_ylim(0, 100)
        axes.set_xlabel("off by at most (% of the run time)")
        axes.set_ylabel("jobs (%)")
        canvas.grid(axes)
        axes.legend(loc="lower right")
        return figure


def testbed(results: Results, plan: ASrptExperiment) -> Figure:
    """Draws total flow time and makespan of each policy on the testbed."""
    runs = {"perfect": plan.testbed(OURS, KNOWN)}
    runs |= {NAMES[p]: plan.testbed(p) for p in (OURS, *BASELINES)}
    labels = ["A-SRPT,\nperfect", *(n.replace("-", "-\n") for n in list(runs)[1:])]
    with canvas.house_style():
        figure, panels = canvas.sheet(4.2, 2)
        for axes, (key, words) in zip(
            panels, (("flow_s", "total flow time (h)"), ("makespan_s", "makespan (h)")), strict=True
        ):
            heights = [results.mean(runs, key) / HOUR_S for runs in runs.values()]
            axes.bar(range(len(heights)), heights, color=canvas.colour(0))
            axes.set_ylabel(words)
            canvas.grid(axes, "y")
        panels[-1].set_xticks(range(len(labels)), labels, fontsize=7.5)
        return figure


def flows(results: Results, sweep: Sweep) -> Figure:
    """Draws the mean flow time of each policy along the axis of a sweep."""
    with canvas.house_style():
        figure, (axes,) = canvas.sheet(3.6)
        looks = canvas.looks([NAMES[p] for p in sweep.policies])
        for policy in sweep.policies:
            hours = [
                flow_s(results, sweep.runs(x, policy)) / jobs.jobs / HOUR_S
                for x, jobs, _ in sweep.points
            ]
            width = 2.6 if policy == OURS else 1.2
            axes.plot(
                sweep.at, hours, marker="o", markersize=3, linewidth=width, **looks[NAMES[policy]]
            )
        if sweep.axis in LOGARITHMIC:
            axes.set_xscale("log")
            axes.set_xticks(sweep.at, [f"{x:g}" for x in sweep.at])
            axes.minorticks_off()
        if sweep.axis.startswith("jobs on one GPU"):
            axes.invert_xaxis()
        axes.set_yscale("log")
        axes.set_xlabel(sweep.axis)
        axes.set_ylabel("mean flow time (h)")
        _plain_numbers(axes)
        canvas.grid(axes)
        legend_above(figure, axes, 3)
        return figure


def _plain_numbers(axes: Axes) -> None:
    """Shows hours as they are, at 1, 2 and 5 of each decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def told(results: Results, plan: ASrptExperiment) -> Figure:
    """Draws what each method of prediction costs, and the baselines with the forest."""
    perfect = flow_s(results, plan.seeded(OURS, KNOWN))
    bars = {f"A-SRPT, {w}": flow_s(results, plan.seeded(OURS, t)) for w, t in TOLD.items()}
    bars |= {f"{NAMES[p]}, forest": flow_s(results, plan.seeded(p)) for p in BASELINES}
    return _lying({words: seconds / perfect for words, seconds in bars.items()}, "over perfect")


def waiting(results: Results, plan: ASrptExperiment) -> Figure:
    """Draws what the longest wait for a better placement does."""
    base = flow_s(results, plan.crowded(VARIED["tau = 1"]))
    bars = {words: flow_s(results, plan.crowded(p)) / base for words, p in VARIED.items()}
    return _lying(bars, "over tau = 1")


def _lying(bars: Mapping[str, float], words: str) -> Figure:
    with canvas.house_style():
        figure, (axes,) = canvas.sheet(0.9 + 0.24 * len(bars))
        names: Sequence[str] = list(bars)
        at = np.arange(len(names))
        colours = [canvas.colour(0 if name.startswith("A-SRPT") else 5) for name in names]
        axes.barh(at, list(bars.values()), 0.7, color=colours)
        axes.axvline(1.0, color=canvas.INK, linewidth=0.8)
        axes.set_yticks(at, names, fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel(f"total flow time {words}")
        canvas.grid(axes, "x")
        return figure
