"""The pictures of the SJF-BSBF paper: Figures 2, 3, 4, 5 and 6 as the paper has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dovetail.core.units import HOUR_S
from dovetail.physics.sharing.interference import MEASURED, parse_interference
from dovetail.physics.sharing.service_demand import on_one_gpu
from dovetail.physics.speed.throughput import iteration_s
from dovetail.physics.zoo.models import shipped
from dovetail.report.plots import canvas
from papers.frame.claim import Plot
from papers.frame.drawing import (
    Line,
    bar_chart,
    draw_lines,
    label,
    legend_above,
    one_panel,
    outer_labels,
    set_log_hours,
    six_panels,
)
from papers.sjf_bsbf.experiments import JCT, SHARES, SHARING, XIS, SjfBsbfExperiment, SjfBsbfRun
from papers.sjf_bsbf.published import TABLE_2
from papers.sjf_bsbf.workloads import BATCH_PER_GPU, MODELS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GPUS = (1, 4, 8, 12, 16)
SUB_BATCHES = (1, 2, 4, 8)
ALWAYS_PAYS_BELOW = 1.5
"""With one ratio for all pairs sharing always pays below it (ALGORITHMS section 1.2)."""


def throughput() -> Figure:
    """Draws samples per second against GPUs for each model, by sub-batch (Figure 2)."""
    with canvas.house_style():
        figure, panels = six_panels(6.6)
        known = shipped()
        for axes, model in zip(panels, MODELS, strict=True):
            profile = known.find(model)
            assert profile is not None
            batch = BATCH_PER_GPU[model]
            for place, steps in enumerate(SUB_BATCHES):
                rates = [
                    n
                    * batch
                    / iteration_s(profile, gpus=n, batch_per_gpu=batch, accumulation_steps=steps)
                    for n in GPUS
                ]
                cut = f"{batch / steps:g}"
                axes.plot(GPUS, rates, color=canvas.colour(place), marker="o", ms=3, label=cut)
            axes.set_title(model)
            axes.set_ylim(bottom=0)
            axes.set_xticks(GPUS)
            axes.legend(title="sub-batch", fontsize=7, title_fontsize=7, loc="upper left")
            canvas.grid(axes)
        outer_labels(figure, "GPUs", "samples per second")
        return figure


def interference() -> Figure:
    """Draws how much each model and CIFAR-10 slow each other, by sub-batch (Figure 3)."""
    with canvas.house_style():
        figure, panels = six_panels(6.6)
        known, between = shipped(), parse_interference(MEASURED)
        other = known.find("cifar10")
        for axes, model in zip(panels, MODELS, strict=True):
            profile, batch = known.find(model), float(BATCH_PER_GPU[model])
            cuts = [on_one_gpu(profile, batch / steps) for steps in SUB_BATCHES]
            beside = on_one_gpu(other, float(BATCH_PER_GPU["cifar10"]))
            mine = [between.ratio(load, beside) for load in cuts]
            theirs = [between.ratio(beside, load) for load in cuts]
            places = np.arange(len(cuts))
            axes.bar(places - 0.2, mine, 0.4, color=canvas.colour(0), label="the model")
            axes.bar(places + 0.2, theirs, 0.4, color=canvas.colour(1), label="cifar10 beside it")
            axes.axhline(1.0, color=canvas.FAINT, linewidth=0.8)
            axes.set_xticks(places, [f"{load.micro_batch:g}" for load in cuts])
            axes.set_title(model)
            axes.set_ylim(bottom=0)
        legend_above(figure, panels[0], 2)
        outer_labels(figure, "sub-batch", "interference ratio")
        return figure


def distribution(lines: Sequence[Line]) -> Figure:
    """Draws the share of jobs that are done within a time, by policy (Figures 4a, 5a)."""
    with one_panel() as (figure, axes):
        draw_lines(axes, lines)
        axes.set_xscale("log")
        canvas.spell_log_durations(axes)
        axes.set_ylim(0, 1)
        label(axes, "JCT", "share of jobs")
        axes.legend(loc="upper left")
        return figure


def against(lines: Sequence[Line], x: str, *, threshold: bool = False) -> Figure:
    """Draws the mean JCT against a swept quantity, by policy (Figure 6)."""
    with one_panel() as (figure, axes):
        draw_lines(axes, lines, "o", 3.5)
        if threshold:
            axes.set_ylim(bottom=0)
            axes.axvline(ALWAYS_PAYS_BELOW, color=canvas.INK, linewidth=1, linestyle="dotted")
            for words, offset, side in (
                ("any pair gains", -6, "right"),
                ("short newcomers gain", 6, "left"),
            ):
                at, shift = (ALWAYS_PAYS_BELOW, 0), (offset, 8)
                axes.annotate(words, at, shift, textcoords="offset points", ha=side)
        else:
            set_log_hours(axes)
        label(axes, x, "mean JCT (h)")
        axes.legend(fontsize=8)
        return figure


def plots(experiment: SjfBsbfExperiment) -> list[Plot]:
    """Returns all plots of the paper."""
    seeds = f"Means over {experiment.seeds} seeded workloads."
    return [
        Plot(
            "figure-2",
            "Figure 2: throughput by sub-batch",
            "Equation 7 with the zoo's parameters; batches on each GPU as one-GPU jobs have them. "
            "Cutting a batch costs throughput.",
            throughput,
        ),
        Plot(
            "figure-3",
            "Figure 3: interference beside CIFAR-10",
            "Shared over alone iteration time, as the measured ratios and the law have it.",
            interference,
        ),
        *_spread(
            experiment,
            "4",
            "testbed",
            {p: experiment.run(p, "physical", 30) for p in TABLE_2},
        ),
        *_spread(experiment, "5", "240 jobs", {p: experiment.run(p) for p in experiment.policies}),
        Plot(
            "figure-6a",
            "Figure 6(a): more jobs in the same hours",
            f"Mean JCT on 64 GPUs; each number of jobs is drawn anew. {seeds}",
            partial(against, _load_lines(experiment), "jobs"),
        ),
        Plot(
            "figure-6b",
            "Figure 6(b): one interference ratio for all pairs",
            f"Below 1.5 every pair gains; from there on only newcomers shorter than "
            f"1 / (2 (ratio - 1)) of what their host has left. {seeds}",
            partial(against, _ratio_lines(experiment), "interference ratio", threshold=True),
        ),
    ]


def _spread(
    experiment: SjfBsbfExperiment, number: str, words: str, runs: Mapping[str, SjfBsbfRun]
) -> list[Plot]:
    lines = [
        (p, [HOUR_S * q for q in experiment.mean_sequence(run, "q")], SHARES.tolist())
        for p, run in runs.items()
    ]
    waits = {p: experiment.means(run, [f"wait {m}" for m in MODELS]) for p, run in runs.items()}
    hours = "mean time not running (h)"
    return [
        Plot(
            f"figure-{number}a",
            f"Figure {number}(a): JCT, {words}",
            f"Quantiles, each a mean over {experiment.seeds} seeded workloads.",
            partial(distribution, lines),
        ),
        Plot(
            f"figure-{number}b",
            f"Figure {number}(b): waiting by model, {words}",
            "Time from submission to the end in which a job does not run.",
            partial(bar_chart, MODELS, waits, hours, fontsize=8, columns=3),
        ),
    ]


def _load_lines(experiment: SjfBsbfExperiment) -> list[Line]:
    loads = experiment.loads
    return [
        (p, loads, [experiment.mean(experiment.run(p, jobs=n), JCT) for n in loads])
        for p in experiment.policies
    ]


def _ratio_lines(experiment: SjfBsbfExperiment) -> list[Line]:
    lines: list[Line] = [
        (p, XIS, [experiment.mean(experiment.run(p).varied(interference=x), JCT) for x in XIS])
        for p in SHARING
    ]
    alone = experiment.mean(experiment.run("sjf"), JCT)
    return [*lines, ("sjf", (XIS[0], XIS[-1]), (alone, alone))]
