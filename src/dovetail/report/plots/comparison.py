"""Plots of a comparison: mean JCTs, and the changes of JCT by job and by user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from dovetail.record.result import Comparison
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
        rows = comparison.ranked.filter(pl.col("avg_jct_s").is_finite()).to_dicts()
        figure, (axes,) = canvas.sheet(1.2 + 0.36 * max(len(rows), 1))
        if not rows:
            canvas.say_nothing_to_show(axes, "no job finished")
            return figure
        order = list(comparison.results)
        short = canvas.labels([*order, *(r["policy"] for r in rows)])
        ends_s = [r["high"] or r["avg_jct_s"] for r in rows]
        unit, unit_s = _unit(max(ends_s))
        for y, row in enumerate(rows):
            place = order.index(row["policy"]) if row["policy"] in order else y
            _draw_mean(axes, y, row, canvas.colour(place), unit_s)
        axes.set_yticks(range(len(rows)), [short[r["policy"]] for r in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(0, max(ends_s) / unit_s * 1.22)
        axes.set_xlabel(f"mean JCT ({unit}), 95 % interval")
        bounds = {
            y: row["avg_jct_s"] / row["x_bound"] / unit_s
            for y, row in enumerate(rows)
            if row["x_bound"]
        }
        if bounds and max(bounds.values()) - min(bounds.values()) > 1e-6 * max(bounds.values()):
            for y, at in bounds.items():
                _draw_bound_of_one(axes, y, at)
        elif bounds:
            _draw_bound(axes, bounds[min(bounds)])
        canvas.grid(axes, "x")
        return figure


def _draw_mean(axes: Axes, y: int, row: dict[str, float], paint: str, unit_s: float) -> None:
    mean = row["avg_jct_s"] / unit_s
    axes.barh(y, mean, color=paint, alpha=0.25, height=0.62)
    end = mean
    if row["low"] is not None and row["high"] is not None:
        low, high = row["low"] / unit_s, row["high"] / unit_s
        axes.plot([low, high], [y, y], color=paint, linewidth=2.2)
        axes.plot([low, high], [y, y], "|", color=paint, markersize=8, markeredgewidth=1.6)
        end = max(high, mean)
    axes.plot(mean, y, "o", color=paint, markersize=5)
    axes.annotate(
        duration(row["avg_jct_s"]), (end, y), (6, 0), textcoords="offset points", va="center"
    )


def _draw_bound(axes: Axes, at: float) -> None:
    axes.axvline(at, color=canvas.INK, linewidth=1.2, linestyle=(0, (4, 2)))
    axes.annotate(
        "bound",
        (at, 1.0),
        (0, 2),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="center",
        va="bottom",
        size=9,
    )


def _draw_bound_of_one(axes: Axes, y: int, at: float) -> None:
    dashed = (0, (4, 2))
    axes.plot([at, at], [y - 0.42, y + 0.42], color=canvas.INK, linewidth=1.4, linestyle=dashed)


def _unit(longest_s: float) -> tuple[str, float]:
    for unit, unit_s in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if longest_s >= 2 * unit_s:
            return unit, unit_s
    return "s", 1.0


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
    return [n for n in comparison.results if n != comparison.baseline]


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
