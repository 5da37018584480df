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
    QUANTILES,
    TAUGHT,
    TOLD,
    VARIED,
    ASrptExperiment,
    Sweep,
)
from papers.frame.claim import Plot
from papers.frame.drawing import (
    Line,
    draw_lines,
    label,
    label_rows,
    legend_above,
    one_panel,
    set_log_hours,
)
from papers.frame.experiment import sequence

if TYPE_CHECKING:
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


def plots(plan: ASrptExperiment) -> Iterator[Plot]:
    """Yields all plots."""
    yield Plot(
        "figure-4",
        "Figure 4: how far predictions are off",
        "Share of jobs whose prediction is off by at most so much of the truth; what stands at "
        "100 % off are groups not seen, which count as 0.",
        partial(errors, plan),
    )
    yield Plot(
        "figure-5",
        "Figure 5: the testbed",
        "Means over three sets of 75 jobs on 14 GPUs.",
        partial(testbed, plan),
    )
    for key, name in FIGURES.items():
        sweep = plan.sweeps[key]
        yield Plot(
            name,
            sweep.title,
            "Mean flow time of a job; above A-SRPT's is worse.",
            partial(flows, plan, sweep),
        )
    yield Plot(
        "figure-9",
        "Figure 9: what predictions cost",
        "Total flow time over A-SRPT's with perfect prediction.",
        partial(told, plan),
    )
    yield Plot(
        "tau",
        "Waiting for a better placement",
        f"Total flow time over that with tau = 1, at a load of {HIGH:g}.",
        partial(waiting, plan),
    )


def errors(plan: ASrptExperiment) -> Figure:
    """Draws the distribution of relative errors by method."""
    lines: list[Line] = [
        (words, [100 * q for q in _mean_quantiles(plan, told)], QUANTILES)
        for words, told in TOLD.items()
        if told.startswith(TAUGHT)
    ]
    with one_panel(3.0) as (figure, axes):
        draw_lines(axes, lines)
        axes.set_xlim(0, 150)
        axes.set_ylim(0, 100)
        label(axes, "off by at most (% of the run time)", "jobs (%)")
        axes.legend(loc="lower right")
        return figure


def _mean_quantiles(plan: ASrptExperiment, told: str) -> list[float]:
    runs = plan.results.play(plan.seeded(OURS, told))
    return [float(np.mean(q)) for q in zip(*(sequence(run, "off") for run in runs), strict=True)]


def testbed(plan: ASrptExperiment) -> Figure:
    """Draws total flow time and makespan of each policy on the testbed."""
    runs = {"perfect": plan.testbed(OURS, KNOWN)}
    runs |= {NAMES[p]: plan.testbed(p) for p in (OURS, *BASELINES)}
    labels = ["A-SRPT,\nperfect", *(n.replace("-", "-\n") for n in list(runs)[1:])]
    with canvas.house_style():
        figure, panels = canvas.sheet(4.2, 2)
        for axes, (key, words) in zip(
            panels, (("flow_s", "total flow time (h)"), ("makespan_s", "makespan (h)")), strict=True
        ):
            heights = [plan.results.mean(runs, key) / HOUR_S for runs in runs.values()]
            axes.bar(range(len(heights)), heights, color=canvas.colour(0))
            axes.set_ylabel(words)
            canvas.grid(axes, "y")
        panels[-1].set_xticks(range(len(labels)), labels, fontsize=7.5)
        return figure


def flows(plan: ASrptExperiment, sweep: Sweep) -> Figure:
    """Draws the mean flow time of each policy along the axis of a sweep."""
    with one_panel(3.6) as (figure, axes):
        looks = canvas.looks([NAMES[p] for p in sweep.policies])
        for policy in sweep.policies:
            hours = [
                plan.flow_s(sweep.runs(x, policy)) / jobs.jobs / HOUR_S
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
        set_log_hours(axes, minor_ticks=True)
        label(axes, sweep.axis, "mean flow time (h)")
        legend_above(figure, axes, 3)
        return figure


def told(plan: ASrptExperiment) -> Figure:
    """Draws what each method of prediction costs, and the baselines with the forest."""
    perfect = plan.flow_s(plan.seeded(OURS, KNOWN))
    bars = {f"A-SRPT, {w}": plan.flow_s(plan.seeded(OURS, t)) for w, t in TOLD.items()}
    bars |= {f"{NAMES[p]}, forest": plan.flow_s(plan.seeded(p)) for p in BASELINES}
    return _lying({words: seconds / perfect for words, seconds in bars.items()}, "over perfect")


def waiting(plan: ASrptExperiment) -> Figure:
    """Draws what the longest wait for a better placement does."""
    base = plan.flow_s(plan.crowded(VARIED["tau = 1"]))
    bars = {words: plan.flow_s(plan.crowded(p)) / base for words, p in VARIED.items()}
    return _lying(bars, "over tau = 1")


def _lying(bars: Mapping[str, float], words: str) -> Figure:
    with one_panel(0.9 + 0.24 * len(bars)) as (figure, axes):
        names: Sequence[str] = list(bars)
        at = np.arange(len(names))
        colours = [canvas.colour(0 if name.startswith("A-SRPT") else 5) for name in names]
        axes.barh(at, list(bars.values()), 0.7, color=colours)
        axes.axvline(1.0, color=canvas.INK, linewidth=0.8)
        label_rows(axes, names, f"total flow time {words}", fontsize=8)
        return figure
