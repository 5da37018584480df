"""Plots the statistics of a trace as one figure: run times, sizes, arrivals, load, ends."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from dovetail.core.job import Floats
from dovetail.core.trace import Trace
from dovetail.core.units import HOUR_S
from dovetail.traces.describe import (
    CLASSES,
    Description,
    class_name,
    class_rows,
    gpu_seconds_by_day,
)
from dovetail.traces.describe_text import WEEKDAYS, clock_words
from dovetail.traces.output_file import write_output

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9")
"""The palette of Okabe and Ito, which colour-blind readers can distinguish."""

_TICKS = (
    (1, "1 s"),
    (60, "1 min"),
    (3600, "1 h"),
    (86400, "1 d"),
    (604800, "1 wk"),
    (2.6e6, "1 mo"),
)


def plot_description(description: Description, trace: Trace, folder: Path) -> list[Path]:
    """Writes NAME.describe.png and .svg to a folder, which it creates; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = draw(description, trace)
    paths = [folder / f"{description.name}.describe.{kind}" for kind in ("png", "svg")]
    for path in paths:
        write_output(path, partial(_save, figure, path.suffix[1:]))
    return paths


def _save(figure: Figure, kind: str, stream: IO[bytes]) -> None:
    import matplotlib as mpl

    # Without a date and with fixed names inside, the same trace gives the same file.
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    with mpl.rc_context({"svg.hashsalt": "dovetail"}):
        figure.savefig(stream, format=kind, dpi=120, metadata=metadata)


def draw(description: Description, trace: Trace) -> Figure:
    """Returns the figure of six panels."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(11, 11), layout="constrained")
        axes = figure.subplots(3, 2)
        figure.suptitle(
            f"{description.name}: {description.jobs:,} jobs, {description.span_days:.1f} days, "
            f"{description.gpu_hours:,.0f} GPU-hours",
            fontsize=12,
        )
        _run_times(axes[0, 0], trace)
        _sizes(axes[0, 1], description)
        _over_time(axes[1, 0], description)
        _day_cycle(axes[1, 1], description)
        _load(axes[2, 0], description, trace)
        _ends(axes[2, 1], description)
    return figure


def _run_times(axes: Axes, trace: Trace) -> None:
    sizes = np.ceil(trace.jobs.asked_gpus)
    for colour, (low, high) in zip(COLOURS, CLASSES, strict=True):
        seconds = np.sort(trace.duration_s[class_rows(sizes, low, high)])
        if len(seconds):
            share = np.arange(1, len(seconds) + 1) / len(seconds)
            label = f"{class_name(low, high)} GPU{'' if high == 1 else 's'} ({len(seconds):,})"
            axes.plot(*_thinned(seconds, share), color=colour, label=label, drawstyle="steps-post")
    axes.set(xscale="log", ylim=(0, 1), xlabel="run time", ylabel="share of jobs")
    axes.set_title("Run times by size (cumulative)")
    left, right = axes.get_xlim()
    shown = [(x, name) for x, name in _TICKS if left <= x <= right]
    axes.set_xticks([x for x, _ in shown], [name for _, name in shown])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", frameon=False, fontsize=8)


def _thinned(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Returns at most 1,000 points: an SVG with a million points is too large to open."""
    rows = np.unique(np.linspace(0, len(x) - 1, min(len(x), 1000)).astype(np.int64))
    return x[rows], y[rows]


def _sizes(axes: Axes, d: Description) -> None:
    names, jobs, hours = [], [], []
    for low, high in CLASSES:
        # A part of a GPU is of the first class.
        rows = [r for r in d.sizes if r.gpus > low - 1 and (not high or r.gpus <= high)]
        names.append(class_name(low, high))
        jobs.append(100 * sum(r.jobs_share for r in rows))
        hours.append(100 * sum(r.gpu_hours_share for r in rows))
    _pairs(axes, names, jobs, hours)
    axes.set(xlabel="GPUs a job asks for", ylabel="share (%)", title="Sizes")


def _ends(axes: Axes, d: Description) -> None:
    _pairs(
        axes,
        [r.end for r in d.ends],
        [100 * r.jobs_share for r in d.ends],
        [100 * r.gpu_hours_share for r in d.ends],
    )
    axes.set(xlabel="end", ylabel="share (%)", title="How jobs ended")


def _pairs(axes: Axes, names: Sequence[str], jobs: Sequence[float], hours: Sequence[float]) -> None:
    at = np.arange(len(names))
    for shift, values, colour, label in (
        (-0.2, jobs, COLOURS[0], "jobs"),
        (0.2, hours, COLOURS[1], "GPU-hours"),
    ):
        bars = axes.bar(at + shift, values, 0.4, color=colour, label=label)
        axes.bar_label(bars, fmt="%.1f", fontsize=7, padding=1)
    axes.set_xticks(at, list(names))
    # Few bars stay narrow, and the legend has room above the tallest.
    axes.set_xlim(-0.6, max(len(names), 3) - 0.4)
    axes.set_ylim(0, max([*jobs, *hours]) * 1.25)
    axes.legend(frameon=False, loc="upper right")


def _over_time(axes: Axes, d: Description) -> None:
    jobs = np.asarray(d.arrivals.by_hour, dtype=np.float64)
    edges = d.first_submit_s // HOUR_S / 24 + np.arange(len(jobs) + 1) / 24
    axes.stairs(jobs, edges, fill=True, color=COLOURS[4], linewidth=0.4)
    if len(jobs) > 48:
        smooth = np.convolve(jobs, np.ones(24) / 24, mode="valid")
        axes.plot(edges[12 : 12 + len(smooth)], smooth, color=COLOURS[0], label="mean over 24 h")
        axes.legend(frameon=False, loc="upper right")
    axes.set(xlabel="day", ylabel="jobs an hour", title="Arrivals over time", ylim=(0, None))
    axes.margins(x=0)


def _day_cycle(axes: Axes, d: Description) -> None:
    """Draws mean arrivals by hour of day, for weekdays and for weekends."""
    jobs = np.asarray(d.arrivals.by_hour, dtype=np.float64)
    clock = d.arrivals.first_hour + np.arange(len(jobs))
    weekend = clock // 24 % 7 >= 5
    for colour, label, rows in (
        (COLOURS[0], f"{WEEKDAYS[0]} to {WEEKDAYS[4]}", ~weekend),
        (COLOURS[1], f"{WEEKDAYS[5]} and {WEEKDAYS[6]}", weekend),
    ):
        if rows.any():
            hours = np.maximum(np.bincount(clock[rows] % 24, minlength=24), 1)
            mean = np.bincount(clock[rows] % 24, weights=jobs[rows], minlength=24) / hours
            axes.stairs(mean, np.arange(25), color=colour, label=label, linewidth=1.6)
    axes.set(xlabel=f"hour of day ({clock_words(d.arrivals.clock)})", ylabel="jobs an hour")
    axes.set(title="Arrivals by hour of day", xlim=(0, 24))
    axes.set_ylim(0, axes.get_ylim()[1] * 1.15)
    axes.set_xticks(range(0, 25, 3))
    axes.legend(frameon=False, loc="upper left", ncols=2)


def _load(axes: Axes, d: Description, trace: Trace) -> None:
    by_day = gpu_seconds_by_day(trace)
    values = by_day / HOUR_S if d.load is None else np.asarray(d.load.by_day)
    axes.bar(np.arange(len(values)) + 0.5, values, 0.9, color=COLOURS[2])
    if d.load is None:
        axes.set(ylabel="GPU-hours asked for", title="GPU-hours by day of submission")
    else:
        axes.axhline(1.0, color="black", linewidth=0.8, linestyle="--")
        if np.isfinite(d.load.mean):
            axes.axhline(d.load.mean, color=COLOURS[1], label=f"mean {d.load.mean:.2f}")
            axes.set_ylim(0, max(*values, 1.0) * 1.2)
            axes.legend(frameon=False, loc="upper right")
        axes.set(ylabel="offered load", title=f"Offered load on {d.load.gpus:,} GPUs, by day")
    axes.set(xlabel="day since the first submission")
    axes.margins(x=0)
