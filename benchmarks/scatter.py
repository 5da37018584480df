"""Predicted against measured values: a panel for each source, a dot for each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dovetail.profiling.least_squares import error_of
from dovetail.report.plots import canvas
from papers.frame.drawing import outer_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Values as predicted, and as measured."""
FEW = 300
"""So many dots are drawn larger."""


@dataclass(frozen=True, eq=False)
class Panel:
    """One source, a colour for each group of rows; without `ticks` the axes have powers of ten."""

    title: str
    groups: Sequence[Rows]
    ticks: tuple[float, ...] = ()

    def draw(self, axes: Axes) -> None:
        """Draws the dots, and the line on which both values are the same."""
        predicted, measured = (np.concatenate(side) for side in zip(*self.groups, strict=True))
        both = np.concatenate([predicted, measured])
        least, most = 0.97 * float(both.min()), 1.08 * float(both.max())
        axes.plot([least, most], [least, most], color=canvas.INK, linewidth=0.8)
        few = len(measured) < FEW
        for place, (x, y) in enumerate(self.groups):
            dots = axes.plot(y, x, "o", mew=0, color=canvas.colour(place))
            dots[0].set(markersize=4 if few else 2, alpha=0.7 if few else 0.25)
        self._scale(axes)
        axes.set_xlim(least, most)
        axes.set_ylim(least, most)
        axes.set_aspect("equal")
        axes.set_title(self.title, fontsize=9)
        words = f"mean error {error_of(predicted, measured).mean:.0%}"
        axes.text(0.97, 0.04, words, fontsize=8, ha="right", transform=axes.transAxes)
        axes.tick_params(labelsize=8)
        canvas.grid(axes)

    def _scale(self, axes: Axes) -> None:
        from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

        axes.set_xscale("log")
        axes.set_yscale("log")
        for line in (axes.xaxis, axes.yaxis):
            line.set_major_locator(
                FixedLocator(self.ticks) if self.ticks else LogLocator(subs=(1.0, 3.0))
            )
            line.set_minor_locator(NullLocator())
            line.set_major_formatter("{x:g}")


def scatter(panels: Sequence[Panel], what: str) -> Figure:
    """Draws all panels, two in a row; `what` names the values with their unit."""
    rows = (len(panels) + 1) // 2
    with canvas.house_style():
        figure, (whole,) = canvas.sheet(0.4 + 2.2 * rows)
        whole.remove()
        places = list(figure.subplots(rows, 2).flat)
        for axes, panel in zip(places, panels, strict=False):
            panel.draw(axes)
        for axes in places[len(panels) :]:
            axes.remove()
        outer_labels(figure, f"measured {what}", f"predicted {what}")
    return figure


def save(figure: Figure, stem: Path) -> None:
    """Writes `stem`.png; 64 colours take a third of the bytes that dots over dots take."""
    from PIL import Image

    stem.parent.mkdir(parents=True, exist_ok=True)
    bitmap, vector = canvas.save(figure, stem)
    vector.unlink()
    Image.open(bitmap).convert("RGB").quantize(64).save(bitmap, optimize=True)
