"""The pictures of the comparison: the ranking with intervals, and what survives what."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dovetail.report.plots import canvas
from dovetail.study.uncertainty import Interval
from papers.frame.claim import HOLDS, Plot
from papers.systems.experiments import BASELINE, CLASSES, Variant
from papers.systems.results import HEAVY, OPEN, REVERSED, SystemsExperiment, Verdicts
from papers.systems.tables import ranked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CODES = {HOLDS: 0, OPEN: 1, REVERSED: 2}
COLOURS = ("#009e73", "#e5e7ea", "#d55e00")
Line = tuple[str, str, Interval]
"""A system, the class of its powers, and its ratio to the baseline."""


def ranking(lines: Sequence[Line]) -> Figure:
    """Draws mean JCT over the baseline's with intervals, best first."""
    with canvas.house_style():
        figure, (axes,) = canvas.sheet(0.19 * len(lines) + 0.9)
        paint = {name: canvas.colour(i) for i, name in enumerate(CLASSES)}
        for y, (_, powers, ratio) in enumerate(lines):
            if ratio.low is not None and ratio.high is not None:
                axes.plot((ratio.low, ratio.high), (y, y), color=paint[powers], linewidth=2)
            axes.plot(ratio.value, y, "o", color=paint[powers], markersize=4)
        for powers, look in paint.items():
            axes.plot([], [], "o-", color=look, markersize=4, label=powers)
        axes.axvline(1.0, color=canvas.FAINT, linewidth=0.8)
        axes.set_xscale("log")
        canvas.spell_log_ratios(axes)
        axes.set_yticks(range(len(lines)), [name for name, _, _ in lines], fontsize=7.5)
        axes.invert_yaxis()
        axes.set_ylim(len(lines) - 0.4, -0.6)
        axes.set_xlabel(f"mean JCT over {BASELINE}'s")
        canvas.grid(axes, "x")
        figure.legend(loc="outside upper center", ncols=2, fontsize=8)
        return figure


def survival(found: Verdicts) -> Figure:
    """Draws each conclusion against each setting: it holds, cannot be told, or is reversed."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    varied: list[Variant] = list(next(iter(found.values())))
    codes = np.array([[CODES[by[v]] for by in found.values()] for v in varied])
    with canvas.house_style():
        figure, (axes,) = canvas.sheet(0.155 * len(varied) + 2.2)
        axes.imshow(codes, cmap=ListedColormap(COLOURS), vmin=0, vmax=2, aspect="auto")
        axes.set_yticks(range(len(varied)), [v.words for v in varied], fontsize=7)
        words = [claim.words for claim in found]
        axes.set_xticks(range(len(words)), words, fontsize=6.5, rotation=90)
        axes.set_xticks(np.arange(len(words)) - 0.5, minor=True)
        axes.set_yticks(np.arange(len(varied)) - 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=0.8)
        axes.tick_params(which="both", length=0)
        axes.spines[:].set_visible(False)
        handles = [
            Patch(color=colour, label=word) for word, colour in zip(CODES, COLOURS, strict=True)
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=3, fontsize=8)
        return figure


def plots(experiment: SystemsExperiment) -> list[Plot]:
    """Returns all plots."""
    lines = [
        (s.name, s.powers_class, experiment.system_ratio(s.name, BASELINE))
        for s in ranked(experiment)
    ]
    return [
        Plot(
            "ranking",
            f"All policies, load {HEAVY:g}",
            f"Geometric mean over {experiment.windows_in_all} windows, with 95 % intervals; "
            "colours tell the widest power.",
            partial(ranking, lines),
        ),
        Plot(
            "survival",
            "Which conclusions survive what",
            "A conclusion holds where the 95 % interval of the ratio lies below 1, and is "
            "reversed where it lies above.",
            partial(survival, experiment.survivals),
        ),
    ]
