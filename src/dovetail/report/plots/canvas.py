"""The style of all plots: palette, sizes, units on axes, and `save`.

A figure is five inches wide with ten-point text, so that it reads at the width of a phone and
of one column of a paper. Matplotlib is imported when the first figure is made, not before.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from dovetail.report.order import PALETTE, colour_places, is_told
from dovetail.report.order import colour as colour
from dovetail.report.words import duration, short_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

WIDTH_IN = 5.0
INK = "#24292f"
"""The colour of text and axes; the report replaces it by the reader's own text colour."""
FAINT = "#8c959f"
DARK = "#1b1f24"
"""Text on a light bar: dark in every reader's colours."""

Dash = str | tuple[int, tuple[float, ...]]
DASHES: tuple[Dash, ...] = ("solid", (0, (9, 2)), (0, (1, 1.2)), (0, (9, 2, 1, 2)))
TOLD_DASHES: tuple[Dash, ...] = (
    *((0, (3, 2)), (0, (3, 2, 1, 2)), (0, (3, 2, 1, 2, 1, 2)), (0, (1, 3))),
)
"""The lines of rows that are told true lengths, where their policy has the line of `DASHES`."""
HATCH = "//////"

GPU_SECOND_LOOKS = {
    "useful": ("useful work", "#0072b2", ""),
    "slowdown": ("slowed down", "#56b4e9", "///"),
    "switching": ("switching", "#d55e00", ""),
    "idle_waiting": ("idle, jobs wait", "#e69f00", "..."),
    "idle_empty": ("idle, none wait", "#c9ced4", ""),
    "down": ("node away", "#5b6168", "xxx"),
}
"""Words, colour and hatching of each kind in `GPU_SECOND_KINDS`; hatching survives grey print."""

SETTINGS: dict[str, object] = {
    "font.size": 10,
    "font.family": ["DejaVu Sans"],
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "hatch.linewidth": 0.6,
    "hatch.color": "#ffffff",
    # Names of users and policies are text, not formulas: a `$` in one must not raise.
    "text.parse_math": False,
    "text.usetex": False,
    "svg.hashsalt": "dovetail",
    "svg.fonttype": "path",
    "figure.dpi": 100,
    "path.simplify": True,
    "image.interpolation": "none",
}


@contextmanager
def house_style() -> Iterator[None]:
    """Draws with our settings and not those of the user's matplotlibrc, which stays as it is."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)  # type: ignore[arg-type]
        yield


def sheet(height_in: float = 3.1, rows: int = 1) -> tuple[Figure, Sequence[Axes]]:
    """Returns an empty figure of our width and its axes, one above the other, sharing x."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, 1, sharex=True, squeeze=False)
    return figure, list(grid[:, 0])


def dash(position: int, *, told: bool = False) -> Dash:
    """Returns the line style of the policy at a position: it turns when the colours run out."""
    return (TOLD_DASHES if told else DASHES)[(max(position, 0) // len(PALETTE)) % len(DASHES)]


def labels(names: Iterable[str]) -> dict[str, str]:
    """Returns each policy's name as a legend can show it: short, never taken for a hidden one."""
    short = short_names(names)
    return {n: f" {s}" if s.startswith("_") else s for n, s in short.items()}


class Look(TypedDict):
    """The style of a policy's line and its name in the legend."""

    color: str
    linestyle: Dash
    label: str


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Returns how each policy's line looks, by its position among all policies."""
    short = labels(names)
    return {
        name: Look(
            color=colour(place), linestyle=dash(place, told=is_told(name)), label=short[name]
        )
        for name, place in colour_places(short).items()
    }


def grid(axes: Axes, axis: Literal["both", "x", "y"] = "both") -> None:
    """Draws faint lines behind the data."""
    axes.grid(True, axis=axis, color=FAINT, alpha=0.25, linewidth=0.6)


def say_nothing_to_show(axes: Axes, why: str) -> None:
    """Writes the reason into an empty panel."""
    axes.text(0.5, 0.5, why, ha="center", va="center", color=FAINT, transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])


def whole_counts(axes: Axes) -> None:
    """Shows a count on the y axis: from zero, whole numbers only."""
    axes.yaxis.set_major_locator(whole_numbers())
    axes.set_ylim(bottom=0)


def whole_numbers() -> MaxNLocator:
    """Returns what puts a few ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=5, integer=True)


def spell_log_durations(axes: Axes, axis: str = "x") -> None:
    """Labels a logarithmic axis in seconds with the durations people think in."""
    from matplotlib.ticker import FixedLocator, NullLocator

    line = axes.xaxis if axis == "x" else axes.yaxis
    low, high = sorted(axes.get_xlim() if axis == "x" else axes.get_ylim())
    ticks = [(s, w) for s, w in DURATION_TICKS if low <= s <= high]
    if len(ticks) < 2:
        return
    while len(ticks) > 8:
        ticks = ticks[::2]
    line.set_major_locator(FixedLocator([s for s, _ in ticks]))
    line.set_minor_locator(NullLocator())
    line.set_ticklabels([w for _, w in ticks])


DURATION_TICKS = (
    *((10.0**e, f"1e{e} s") for e in range(-9, -3)),
    (0.001, "1 ms"),
    (0.01, "10 ms"),
    (0.1, "0.1 s"),
    (1.0, "1 s"),
    (10.0, "10 s"),
    (60.0, "1 min"),
    (600.0, "10 min"),
    (3600.0, "1 h"),
    (4 * 3600.0, "4 h"),
    (86400.0, "1 d"),
    (4 * 86400.0, "4 d"),
    (16 * 86400.0, "16 d"),
    (64 * 86400.0, "64 d"),
    (365 * 86400.0, "1 y"),
    (3650 * 86400.0, "10 y"),
)


def spell_log_ratios(axes: Axes, axis: str = "x") -> None:
    """Labels a logarithmic axis of ratios as 0.5x, 1x, 2x."""
    from matplotlib.ticker import FixedLocator, NullLocator

    line = axes.xaxis if axis == "x" else axes.yaxis
    low, high = sorted(axes.get_xlim() if axis == "x" else axes.get_ylim())
    steps = (1.0, 2.0, 5.0) if high / low < 200 else (1.0,)
    ticks = [m * 10.0**e for e in range(-9, 10) for m in steps]
    # Between 1/2 and 1/5 the tidy ratio is 0.5 and 0.2, which the list above holds already.
    shown = [t for t in ticks if low <= t <= high]
    if high / low < 3:
        shown = [t / 10 for t in range(1, 100) if low <= t / 10 <= high][:: 1 if high < 2 else 2]
    while len(shown) > 8:
        shown = shown[::2]
    line.set_major_locator(FixedLocator(shown))
    line.set_minor_locator(NullLocator())
    line.set_ticklabels([f"{t:.4g}x" for t in shown])


def time_axis(axes: Axes, span_s: float) -> float:
    """Names the time axis in the unit that suits `span_s`; returns the seconds of that unit."""
    for unit, unit_s in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if span_s >= 3 * unit_s:
            axes.set_xlabel(f"time since first submission ({unit})")
            return unit_s
    axes.set_xlabel("time since first submission (s)")
    return 1.0


def spell_durations(axes: Axes, longest_s: float) -> None:
    """Labels a linear x axis in seconds from 0 as durations: `12 h`, `24 h`, `36 h`, `2 d`."""
    from matplotlib.ticker import FixedLocator

    step_s = next((s for s in DURATION_STEPS_S if longest_s / s <= 8), 0.0)
    if not step_s:
        return
    ticks = [i * step_s for i in range(int(longest_s / step_s) + 1)]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.set_xticklabels(["0", *(duration(t) for t in ticks[1:])])


DURATION_STEPS_S = (
    *(m * 10.0**e for e in range(-9, 1) for m in (1, 2, 5)),
    *(10.0, 20.0, 60.0, 120.0, 300.0, 600.0, 1200.0),
    *(h * 3600.0 for h in (1, 2, 4, 6, 12, 24, 48)),
    *(d * 86400.0 for d in (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)),
)


def fitted(figure: Figure, write: Callable[[], None]) -> None:
    """Writes a figure, made higher first where labels and legend leave its axes no room."""
    for _ in range(FIT_TRIES):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*constrained_layout not applied.*")
            try:
                write()
                return
            except UserWarning:
                figure.set_figheight(figure.get_figheight() * 1.3)
    write()


FIT_TRIES = 12


def svg_text(figure: Figure) -> str:
    """Returns the figure as SVG, the same bytes for the same figure."""
    buffer = BytesIO()

    def write() -> None:
        buffer.seek(0)
        buffer.truncate()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})

    with house_style():
        fitted(figure, write)
    return buffer.getvalue().decode()


def save(figure: Figure, stem: Path | str) -> tuple[Path, Path]:
    """Writes `stem.png` (200 dots an inch) and `stem.svg`, the same bytes every time."""
    stem = Path(stem)
    png, svg = stem.with_name(stem.name + ".png"), stem.with_name(stem.name + ".svg")

    def write() -> None:
        figure.savefig(png, dpi=200, facecolor="white", metadata={"Software": None})
        figure.savefig(svg, facecolor="white", metadata={"Date": None, "Creator": None})

    with house_style():
        fitted(figure, write)
    return png, svg
