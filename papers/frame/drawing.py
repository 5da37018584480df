"""What the figures of several papers share: groups of bars, panels, legends, axes of ratios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dovetail.report.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Bars = Mapping[str, Sequence[float]]
"""A height for each group, by the name in the legend."""
Line = tuple[str, Sequence[float], Sequence[float]]
"""A name, and the points of a line."""


def draw_bars(
    axes: Axes,
    groups: Sequence[str],
    bars: Bars,
    *,
    width: float = 0.8,
    bottom: float = 0.0,
    fontsize: float | None = None,
) -> None:
    """Draws a group of bars for each of `groups`, from `bottom` on."""
    each = width / max(len(bars), 1)
    for place, (name, heights) in enumerate(bars.items()):
        at = np.arange(len(groups)) + (place - (len(bars) - 1) / 2) * each
        tops = np.array(heights) - bottom
        axes.bar(at, tops, each, bottom=bottom, color=canvas.colour(place), label=name)
    if fontsize is None:
        axes.set_xticks(range(len(groups)), groups)
    else:
        axes.set_xticks(range(len(groups)), groups, fontsize=fontsize)


def draw_level(axes: Axes, level: float = 1.0, *, dotted: bool = False) -> None:
    """Draws the level where nothing is gained or lost."""
    style = "dotted" if dotted else "solid"
    axes.axhline(level, color=canvas.INK, linewidth=0.8, linestyle=style)


def set_ratios(axes: Axes, words: str, limits: tuple[float, float] | None = None) -> None:
    """Makes the y axis one of factors, with the level of 1."""
    axes.set_yscale("log")
    draw_level(axes)
    if limits is not None:
        axes.set_ylim(*limits)
    canvas.spell_log_ratios(axes, "y")
    axes.set_ylabel(words)


def six_panels(height_in: float) -> tuple[Figure, Sequence[Axes]]:
    """Returns a sheet of three rows of two panels, each with its own axes."""
    figure, (whole,) = canvas.sheet(height_in)
    whole.remove()
    return figure, list(figure.subplots(3, 2).flat)


def outer_labels(figure: Figure, x: str, y: str = "") -> None:
    """Names the axes that all panels share."""
    figure.supxlabel(x, fontsize=10)
    if y:
        figure.supylabel(y, fontsize=10)


def legend_above(figure: Figure, axes: Axes, columns: int) -> None:
    """Names what is drawn above the picture, where it hides no data."""
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, ncols=columns, fontsize=8, loc="outside upper center")
