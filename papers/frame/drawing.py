"""Charts of several papers: groups of bars, lines, panels, legends, axes of ratios."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import numpy as np

from dovetail.report.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Bars = Mapping[str, Sequence[float]]
"""The heights of each group's bars, by the name in the legend."""
Line = tuple[str, Sequence[float], Sequence[float]]
"""A name, and the points of a line."""


@contextmanager
def one_panel(height_in: float = 3.1) -> Iterator[tuple[Figure, Axes]]:
    """Yields a sheet of one panel, in our style."""
    with canvas.house_style():
        figure, (axes,) = canvas.sheet(height_in)
        yield figure, axes


def bar_chart(
    groups: Sequence[str],
    bars: Bars,
    y: str,
    *,
    height_in: float = 3.1,
    level: Literal["", "solid", "dotted"] = "",
    fontsize: float = 9,
    columns: int = 4,
) -> Figure:
    """Returns groups of bars with the legend above, and a line at 1 if `level` names a style."""
    with one_panel(height_in) as (figure, axes):
        draw_bars(axes, groups, bars, fontsize=fontsize)
        if level:
            draw_level(axes, style=level)
        label(axes, "", y, grid="y")
        legend_above(figure, axes, columns)
        return figure


def draw_ratio_bars(
    axes: Axes, groups: Sequence[str], bars: Bars, y: str, *, width: float = 0.8, below: float = 1.1
) -> None:
    """Draws bars from 1 on a scale of factors, with room of `below` and 1.15 around them."""
    draw_bars(axes, groups, bars, width=width, bottom=1.0)
    known = [v for heights in bars.values() for v in heights if v == v]
    set_ratios(axes, y, (min(*known, 1.0) / below, max(*known, 1.0) * 1.15))
    canvas.grid(axes, "y")


def draw_lines(
    axes: Axes, lines: Sequence[Line], marker: str | None = None, markersize: float | None = None
) -> None:
    """Draws lines, each in its own look."""
    looks = canvas.looks([name for name, _, _ in lines])
    for name, x, y in lines:
        axes.plot(x, y, marker=marker, markersize=markersize, **looks[name])


def label(axes: Axes, x: str, y: str, grid: Literal["both", "x", "y"] = "both") -> None:
    """Names the axes that have a name, and draws the grid."""
    if x:
        axes.set_xlabel(x)
    if y:
        axes.set_ylabel(y)
    canvas.grid(axes, grid)


def label_rows(axes: Axes, names: Sequence[str], x: str, fontsize: float = 9) -> None:
    """Names rows of lying bars, the first on top."""
    axes.set_yticks(range(len(names)), names, fontsize=fontsize)
    axes.invert_yaxis()
    label(axes, x, "", grid="x")


def set_log_hours(axes: Axes, *, minor_ticks: bool = False) -> None:
    """Makes the y axis logarithmic, labelled at 1, 2 and 5 of each decade."""
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    if minor_ticks:
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.yaxis.set_minor_locator(NullLocator())


def draw_bars(
    axes: Axes,
    groups: Sequence[str],
    bars: Bars,
    *,
    width: float = 0.8,
    bottom: float = 0.0,
    fontsize: float = 9,
) -> None:
    """Draws a group of bars for each of `groups`, from `bottom` on."""
    each = width / max(len(bars), 1)
    for place, (name, heights) in enumerate(bars.items()):
        at = np.arange(len(groups)) + (place - (len(bars) - 1) / 2) * each
        tops = np.array(heights) - bottom
        axes.bar(at, tops, each, bottom=bottom, color=canvas.colour(place), label=name)
    axes.set_xticks(range(len(groups)), groups, fontsize=fontsize)


def draw_level(axes: Axes, *, style: Literal["solid", "dotted"] = "solid") -> None:
    """Draws the level of 1, where nothing is gained or lost."""
    axes.axhline(1.0, color=canvas.INK, linewidth=0.8, linestyle=style)


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
