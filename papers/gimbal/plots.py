"""The pictures of the GIMBAL paper: Figures 2, 8 to 12 and 15 as the paper has them, and more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dovetail.physics.sharing.interference import MEASURED
from dovetail.report.plots import canvas
from papers.frame.claim import Plot
from papers.frame.drawing import (
    Line,
    bar_chart,
    draw_level,
    draw_lines,
    label,
    legend_above,
    one_panel,
)
from papers.gimbal.claims import ABLATION, JCT, MAKESPAN_H, MET, searches
from papers.gimbal.experiments import (
    GANDIVA,
    GAVEL,
    LUCID,
    POINTS,
    QUANTILES,
    STEPS,
    SWEPT,
    UPPERS,
    WORDS,
    XIS,
    Gain,
    GimbalExperiment,
)
from papers.gimbal.experiments import SLURM as BACKFILL
from papers.gimbal.pairs import LIMITS, SHOWN, limited, unequal
from papers.gimbal.search import SETS
from papers.gimbal.workloads import CLASSES, MIXES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def limits() -> Figure:
    """Draws the gain over serial execution against the second job's limit (Figure 2a)."""
    with canvas.house_style():
        figure, panels = canvas.sheet(5.2, 2)
        for axes, power, law in ((panels[0], 1.0, "a straight line"), (panels[1], 2.0, "a square")):
            for i, (first, second) in enumerate(SHOWN):
                line = limited(first, second, MEASURED, power)
                axes.plot(
                    [100 * limit for limit in LIMITS],
                    line,
                    marker="o",
                    ms=3,
                    color=canvas.colour(i),
                    label=f"{first} + {second}",
                )
            draw_level(axes, style="dotted")
            axes.set_title(f"loss by {law} of what is contested")
            axes.set_ylabel("gain over serial")
            canvas.grid(axes)
        panels[1].set_xlabel("limit of the second job (% of a GPU)")
        panels[1].set_xticks(range(10, 101, 10))
        legend_above(figure, panels[0], 2)
        return figure


def stragglers() -> Figure:
    """Draws the gain over serial execution of unequal pairs, as they are and evened (2b)."""
    drawn = [unequal(first, second, MEASURED) for first, second in SHOWN]
    bars = {
        "with stragglers": [d["straggling"] for d in drawn],
        "samples moved": [d["even"] for d in drawn],
    }
    pairs = [f"{a}\n+ {b}" for a, b in SHOWN]
    return bar_chart(pairs, bars, "gain over serial", level="dotted", fontsize=7, columns=2)


Dot = tuple[str, Gain, float | None]
"""What is gained, with its interval, and the published gain."""


def gains(dots: Sequence[Dot]) -> Figure:
    """Draws gains with their intervals beside the published ones."""
    with one_panel(0.9 + 0.32 * len(dots)) as (figure, axes):
        rows = range(len(dots))[::-1]
        for i, (row, (_, found, published)) in enumerate(zip(rows, dots, strict=True)):
            if published is not None:
                axes.plot(
                    [published], [row], "D", mfc="none", color=canvas.colour(1),
                    label="paper" if i == 0 else None,
                )  # fmt: skip
            if found.runs > 2:
                axes.plot(
                    [found.low, found.high], [row, row], color=canvas.colour(0), linewidth=1.5
                )
            axes.plot(
                [found.mean], [row], "o", color=canvas.colour(0), label="ours" if i == 0 else None
            )
        axes.axvline(1.0, color=canvas.INK, linewidth=0.8, linestyle="dotted")
        axes.set_yticks(list(rows), [words for words, _, _ in dots])
        axes.set_ylim(-0.6, len(dots) - 0.4)
        label(axes, "times better (95 % interval)", "", grid="x")
        legend_above(figure, axes, 2)
        return figure


def lines(drawn: Sequence[Line], x: str, y: str, *, log: bool = False) -> Figure:
    """Draws lines against a time."""
    with one_panel() as (figure, axes):
        draw_lines(axes, drawn)
        if log:
            axes.set_xscale("log")
            canvas.spell_log_durations(axes)
        axes.set_ylim(bottom=0)
        label(axes, x, y)
        axes.legend()
        return figure


def against_interference(drawn: Mapping[str, Sequence[Gain]]) -> Figure:
    """Draws what GIMBAL gains each scheduler against the interference ratio of all pairs."""
    with one_panel() as (figure, axes):
        xis = [float(xi) for xi in XIS if xi != MEASURED]
        places = [*xis, 3.0]
        for i, (name, found) in enumerate(drawn.items()):
            means = [g.mean for g in found]
            colour = canvas.colour(i)
            axes.plot(places[:-1], means[:-1], marker="o", ms=4, color=colour, label=name)
            axes.plot(places[-1:], means[-1:], marker="o", ms=5, color=colour)
        draw_level(axes, style="dotted")
        axes.set_xticks(places, [*(f"{xi:g}" for xi in xis), MEASURED])
        label(axes, "interference ratio of all pairs", "gain of GIMBAL")
        legend_above(figure, axes, 2)
        return figure


def plots(experiment: GimbalExperiment) -> Iterator[Plot]:
    """Returns all plots of a paper."""
    yield Plot(
        "figure-2a",
        "Figure 2(a): what a limit is worth",
        "Five pairs of ours on the same two GPUs; mean completion of one job after the other over "
        "that of both at once. How the loss falls between the ends is assumed: above as the "
        "simulator has it, below bent.",
        limits,
    )
    yield Plot(
        "figure-2b",
        "Figure 2(b): stragglers",
        "The first job on four GPUs, the second on two of them.",
        stragglers,
    )
    yield Plot(
        "figure-8",
        "Figure 8: three schedulers, with GIMBAL over without",
        f"Paired over {experiment.seeds} seeded workloads "
        f"(Gavel, Alibaba: {experiment.gavel_seeds}).",
        partial(gains, _overall(experiment)),
    )
    for mix in experiment.mixes:
        yield from _spread(experiment, mix)
    yield Plot(
        "figure-12",
        "Figure 12: one mechanism more at a time",
        f"100 jobs of Philly's mix on 16 GPUs, {experiment.seeds} seeded workloads; gain over the "
        "scheduler alone.",
        partial(gains, _steps(experiment)),
    )
    found = searches(experiment)
    for name, what, y in (
        ("figure-15a", "seconds", "search (s)"),
        ("figure-15b", "jct", "mean JCT (h)"),
    ):
        manners = ["early exit", "full search"]
        if what == "jct":
            manners = ["serial", "free competition", *manners]
        bars = {m: [found[n, m][what] for n in SETS] for m in manners}
        title = "how long the search takes" if what == "seconds" else "what it finds"
        yield Plot(
            name,
            f"Figure 15: {title}",
            "The sets of Table 3 with our stand-ins, each job five hours alone.",
            partial(bar_chart, list(SETS), bars, y, columns=min(3, len(bars))),
        )
    swept = {
        f"{upper.name}, {WORDS[upper.measure]}": [experiment.gain_at(upper, xi) for xi in XIS]
        for upper in SWEPT
    }
    yield Plot(
        "interference",
        "Gain by interference",
        f"Philly's jobs, {experiment.few} seeded workloads: one ratio for all pairs, and measured.",
        partial(against_interference, swept),
    )


def _overall(experiment: GimbalExperiment) -> list[Dot]:
    dots: list[Dot] = []
    for mix in experiment.mixes:
        name = MIXES[mix].name
        before, after = MAKESPAN_H[mix]
        theirs = {"jct": JCT[mix], "met": MET[mix][1] / MET[mix][0], "makespan": before / after}
        for upper in experiment.uppers(mix):
            words = f"{name}, {upper.name}: {WORDS[upper.measure]}"
            dots.append((words, experiment.gain_on(mix, upper), theirs[upper.measure]))
    return dots


def _steps(experiment: GimbalExperiment) -> list[Dot]:
    dots: list[Dot] = []
    for upper in UPPERS:
        runs = experiment.ablation(upper)
        for step in STEPS:
            found = experiment.gain(runs[step], runs["alone"], upper.measure)
            dots.append((f"{upper.name}, {step}", found, ABLATION[step][upper.measure]))
    return dots


def _spread(experiment: GimbalExperiment, mix: str) -> Iterator[Plot]:
    name, seeds = MIXES[mix].name, f"Means over {experiment.seeds} seeded workloads."
    alone, under = experiment.pair(mix, LUCID)
    runs = {"Slurm": experiment.run(BACKFILL, mix), "Lucid": alone, "with GIMBAL": under}
    shares = np.linspace(0, 1, QUANTILES).tolist()
    cdf: list[Line] = [
        (words, [3600 * q for q in experiment.mean_sequence(run, "q")], shares)
        for words, run in runs.items()
    ]
    yield Plot(
        f"figure-9-{mix}",
        f"Figure 9: JCT, {name}",
        f"Share of jobs done within a time. {seeds}",
        partial(lines, cdf, "JCT", "share of jobs", log=True),
    )
    alone, under = experiment.pair(mix, GANDIVA)
    bars = {
        words: experiment.means(run, [f"met {c}" for c in CLASSES])
        for words, run in (("Gandiva", alone), ("with GIMBAL", under))
    }
    yield Plot(
        f"figure-10-{mix}",
        f"Figure 10: deadlines met, {name}",
        f"By class. {seeds}",
        partial(bar_chart, CLASSES, bars, "jobs that meet their deadlines", columns=2),
    )
    if GAVEL not in experiment.uppers(mix):
        return
    alone, under = experiment.pair(mix, GAVEL)
    hours = ((np.arange(POINTS) + 0.5) * 1.5 * MIXES[mix].gavel_h / POINTS).tolist()
    over_time: list[Line] = [
        (words, hours, experiment.mean_sequence(run, "t"))
        for words, run in (("Gavel", alone), ("with GIMBAL", under))
    ]
    yield Plot(
        f"figure-11-{mix}",
        f"Figure 11: throughput, {name}",
        "Work a second over that of one perfectly scaling job on each GPU; means over the seeded "
        "workloads.",
        partial(lines, over_time, "hours", "throughput"),
    )
