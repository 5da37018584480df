"""Plots of a comparison: mean JCTs, and the changes of JCT by job and by user."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

import polars as pl

from dovetail.record.result import Comparison
from dovetail.report.order import Mark, marks, names_in_order, rows_in_order
from dovetail.report.plots import canvas
from dovetail.report.plots.run import (
    draw_by_size,
    draw_shares,
    legend,
    name_classes,
    size_classes,
)
from dovetail.report.words import duration, factor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def mean_jct(comparison: Comparison) -> Figure:
    """Draws each policy's mean JCT with its 95 % interval, and the bound that judges it.

    Where policies may do different things to jobs their bounds differ: each row has its own.
    """
    with canvas.house_style():
        rows = [r for r in rows_in_order(comparison) if _is_finite(r["avg_jct_s"])]
        figure, (axes,) = canvas.sheet(1.2 + 0.42 * max(len(rows), 1))
        if not rows:
            canvas.say_nothing_to_show(axes, "no job finished")
            return figure
        names = [*comparison.results, *(str(r["policy"]) for r in rows)]
        short, mark_of = canvas.labels(names), marks(names)
        for y, row in enumerate(rows):
            _draw_mean(axes, y, row, mark_of[str(row["policy"])])
        axes.set_yticks(range(len(rows)), [short[str(r["policy"])] for r in rows])
        axes.set_ylim(len(rows) - 0.4, -0.7)
        longest_s = max(r["high"] or r["avg_jct_s"] for r in rows)
        axes.set_xlim(0, longest_s * 1.12)
        canvas.spell_durations(axes, longest_s * 1.12)
        axes.set_xlabel("mean JCT, 95 % interval")
        _draw_bounds(
            axes, {y: r["avg_jct_s"] / r["x_bound"] for y, r in enumerate(rows) if r["x_bound"]}
        )
        canvas.grid(axes, "x")
        return figure


def _is_finite(seconds: float | None) -> bool:
    return seconds is not None and isfinite(seconds)


def _draw_mean(axes: Axes, y: int, row: dict[str, float], mark: Mark) -> None:
    mean_s, paint = row["avg_jct_s"], mark.colour
    if mark.is_told:
        # The hatch has the colour of the edge: a bar of thin stripes.
        axes.barh(
            y, mean_s, fill=False, edgecolor=paint, alpha=0.5, height=0.62, hatch=canvas.HATCH
        )
    else:
        axes.barh(y, mean_s, color=paint, alpha=0.25, height=0.62)
    if row["low"] is not None and row["high"] is not None:
        ends = [row["low"], row["high"]]
        axes.plot(ends, [y, y], color=paint, linewidth=2.2)
        axes.plot(ends, [y, y], "|", color=paint, markersize=8, markeredgewidth=1.6)
    inside = "white" if mark.is_told else paint
    axes.plot(mean_s, y, "o", color=paint, markersize=5, markerfacecolor=inside)
    # Right of the mean, where no bar and no bound passes: no mean is below its bound.
    axes.annotate(duration(mean_s), (mean_s, y), (4, 4), textcoords="offset points", size=9)


def _draw_bounds(axes: Axes, bounds: dict[int, float]) -> None:
    """Draws one line through all rows where they share a bound, else each row's own."""
    if bounds and max(bounds.values()) - min(bounds.values()) > 1e-6 * max(bounds.values()):
        for y, at_s in bounds.items():
            _draw_bound_of_one(axes, y, at_s)
    elif bounds:
        _draw_bound(axes, min(bounds.values()))


def _draw_bound(axes: Axes, at_s: float) -> None:
    axes.axvline(at_s, color=canvas.INK, linewidth=1.2, linestyle=(0, (4, 2)))
    axes.annotate(
        "bound",
        (at_s, 1.0),
        (0, 2),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="center",
        va="bottom",
        size=9,
    )


def _draw_bound_of_one(axes: Axes, y: int, at_s: float) -> None:
    ends = [y - 0.42, y + 0.42]
    axes.plot([at_s, at_s], ends, color=canvas.INK, linewidth=1.4, linestyle=(0, (4, 2)))


def change_by_size(comparison: Comparison) -> Figure:
    """Draws, for each size of job, how each job's JCT changed against the baseline."""
    with canvas.house_style():
        figure, (axes,) = canvas.sheet(3.4)
        others = others_of(comparison)
        classes = size_classes(comparison.results)
        ratios = {n: job_ratios(comparison, n).select("size_class", "ratio") for n in others}
        if not draw_by_size(axes, classes, ratios, canvas.looks(comparison.results)):
            canvas.say_nothing_to_show(axes, "nothing to compare")
            return figure
        _ratio_axis(axes, "y", comparison, "JCT of a job")
        name_classes(axes, classes)
        canvas.grid(axes, "y")
        legend(axes, max(len(others), 2))
        return figure


def change_by_user(comparison: Comparison) -> Figure:
    """Draws the distribution over users of the change of the mean JCT."""
    with canvas.house_style():
        figure, (axes,) = canvas.sheet()
        others = others_of(comparison)
        ratios = {name: user_changes(comparison, name)["ratio"].to_numpy() for name in others}
        if not draw_shares(axes, ratios, canvas.looks(comparison.results)):
            canvas.say_nothing_to_show(axes, "the trace names no users")
            return figure
        _ratio_axis(axes, "x", comparison, "mean JCT of a user")
        axes.set_ylim(0, 102)
        axes.set_ylabel("users at or below (%)")
        canvas.grid(axes)
        legend(axes, max(len(others), 2))
        return figure


def _ratio_axis(axes: Axes, axis: str, comparison: Comparison, what: str) -> None:
    base = canvas.labels(comparison.results)[comparison.baseline]
    line = axes.axvline if axis == "x" else axes.axhline
    axes.set(**{f"{axis}scale": "log", f"{axis}label": f"{what}, ratio to {base}"})
    low, high = axes.get_xlim() if axis == "x" else axes.get_ylim()
    axes.set(**{f"{axis}lim": (min(low, 0.8) / 1.05, max(high, 1.25) * 1.05)})
    line(1.0, color=canvas.INK, linewidth=1.0)
    canvas.spell_log_ratios(axes, axis)


def others_of(comparison: Comparison) -> list[str]:
    """Returns the policies that are compared with the baseline."""
    return [n for n in names_in_order(comparison) if n != comparison.baseline]


def job_ratios(comparison: Comparison, policy: str) -> pl.DataFrame:
    """Returns job_id, user, size_class, ratio (JCT over the baseline's) of jobs both finished."""
    base = comparison.results[comparison.baseline].jobs.select(
        "job_id", pl.col("jct_s").alias("base_s")
    )
    ours = comparison.results[policy].jobs.select("job_id", "user", "size_class", "jct_s")
    return (
        ours.join(base, on="job_id", how="inner", maintain_order="left")
        .filter((pl.col("jct_s") > 0) & (pl.col("base_s") > 0))
        .filter(pl.col("jct_s").is_finite() & pl.col("base_s").is_finite())
        .with_columns((pl.col("jct_s") / pl.col("base_s")).alias("ratio"))
    )


def user_changes(comparison: Comparison, policy: str) -> pl.DataFrame:
    """Returns user, jobs, base_s, jct_s (means), ratio: users with the largest gain first."""
    return (
        job_ratios(comparison, policy)
        .filter(pl.col("user").is_not_null() & (pl.col("user") != ""))
        .group_by("user")
        .agg(pl.len().alias("jobs"), pl.col("base_s").mean(), pl.col("jct_s").mean())
        .with_columns((pl.col("jct_s") / pl.col("base_s")).alias("ratio"))
        .sort("ratio", "user")
    )


def change_words(ratio: float) -> str:
    """Returns a ratio to the baseline in words: `2.00x sooner`, `1.30x later`, `the same`."""
    if abs(ratio - 1) < 0.005:
        return "the same"
    return f"{factor(1 / ratio)} sooner" if ratio < 1 else f"{factor(ratio)} later"
