"""Plots of one run, or of several side by side: jobs, queues, nodes and GPU-seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dovetail.record.result import GPU_SECOND_KINDS, RunResult
from dovetail.report.order import is_told, ordered
from dovetail.report.plots import canvas
from dovetail.report.plots.steps import (
    Floats,
    Ints,
    StepSeries,
    binned_share,
    binned_steps,
    held_by_bin,
)
from dovetail.report.words import size_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Results = Mapping[str, RunResult]

BINS = 600
"""Time bins across a picture five inches wide: more would not be visible in print."""
NODE_ROWS = 128
SHARE_POINTS = 800


def jct_distribution(results: Results, order: Sequence[str] = ()) -> Figure:
    """Draws the cumulative distribution of JCTs, one line per policy, in their own order or one."""
    with canvas.house_style():
        figure, (axes,) = canvas.sheet()
        values = {n: positive(results[n].jobs, "jct_s") for n in ordered(results, order)}
        if not draw_shares(axes, values, canvas.looks(results)):
            canvas.say_nothing_to_show(axes, "no job finished")
            return figure
        axes.set_xscale("log")
        canvas.spell_log_durations(axes)
        axes.set_ylim(0, 102)
        axes.set_xlabel("job completion time")
        axes.set_ylabel("jobs finished by then (%)")
        canvas.grid(axes)
        legend(axes, len(results))
        return figure


def load_over_time(result: RunResult) -> Figure:
    """Draws waiting jobs, cluster efficiency and blocking index over time, with their spread."""
    panels = (
        ("waiting", "waiting jobs"),
        ("cluster_efficiency", "cluster\nefficiency"),
        ("blocking_index", "blocking\nindex"),
    )
    with canvas.house_style():
        figure, rows = canvas.sheet(4.4, len(panels))
        for i, (axes, (column, words)) in enumerate(zip(rows, panels, strict=True)):
            steps = series_steps(result, column)
            axes.set_ylabel(words)
            if len(steps) == 0:
                canvas.say_nothing_to_show(axes, "nothing recorded")
                continue
            unit_s = canvas.time_axis(axes, span_s(result))
            draw_steps(axes, steps, unit_s, canvas.colour(i))
            if column == "waiting":
                canvas.whole_counts(axes)
            elif column == "cluster_efficiency":
                axes.set_ylim(0, max(1.05, float(np.nanmax(steps.greatest)) * 1.05))
            else:
                axes.set_ylim(bottom=0)
            if i < len(panels) - 1:
                axes.set_xlabel("")
            canvas.grid(axes)
        return figure


def queue_lengths(results: Results, order: Sequence[str] = ()) -> Figure:
    """Draws the number of waiting jobs over time, the policies over each other."""
    with canvas.house_style():
        figure, (axes,) = canvas.sheet()
        lines = {n: series_steps(results[n], "waiting") for n in ordered(results, order)}
        if not any(len(s) for s in lines.values()):
            canvas.say_nothing_to_show(axes, "nothing recorded")
            return figure
        unit_s = canvas.time_axis(axes, max(span_s(r) for r in results.values()))
        looks = canvas.looks(results)
        for name, steps in lines.items():
            if len(steps):
                axes.stairs(steps.mean, steps.edges / unit_s, baseline=None, **looks[name])
        axes.set_ylabel("waiting jobs")
        canvas.whole_counts(axes)
        canvas.grid(axes)
        legend(axes, len(results))
        return figure


def occupancy(result: RunResult, until_s: float | None = None) -> Figure:
    """Draws how full each node is over time; neighbouring nodes share a row when there are many.

    `until_s` is where the axis ends, from the first submission: pictures side by side share it.
    """
    with canvas.house_style():
        figure, (axes,) = canvas.sheet(3.4)
        held = held_seconds(result.spans)
        installed = np.array(result.node_gpus, dtype=np.int64)
        if len(held) == 0 or not installed.sum():
            canvas.say_nothing_to_show(axes, "no record of who held which node")
            return figure
        end_s = max(span_s(result), until_s or 0.0)
        height = min(len(installed), NODE_ROWS)
        row_of = (np.arange(len(installed)) * height // len(installed)).astype(np.int64)
        edges = np.linspace(0.0, end_s, BINS + 1)
        busy = held_by_bin(
            row_of[held["node"].to_numpy()],
            held["gpus"].to_numpy().astype(float),
            held["start_s"].to_numpy() - result.origin_s,
            held["end_s"].to_numpy() - result.origin_s,
            edges,
            height,
        )
        size = np.bincount(row_of, installed, height)[:, None]
        full = np.divide(busy, size, out=np.zeros_like(busy), where=size > 0) * 100
        unit_s = canvas.time_axis(axes, end_s)
        image = axes.imshow(
            np.clip(full, 0, 100),
            aspect="auto",
            origin="lower",
            cmap="cividis",
            vmin=0,
            vmax=100,
            extent=(0, end_s / unit_s, -0.5, len(installed) - 0.5),
        )
        figure.colorbar(image, ax=axes, label="GPUs held (%)", pad=0.02)
        axes.set_ylabel("node" if height == len(installed) else f"node (mean of {grouped(row_of)})")
        axes.yaxis.set_major_locator(canvas.whole_numbers())
        axes.spines[["left", "bottom"]].set_visible(False)
        return figure


def jct_by_size(results: Results, order: Sequence[str] = ()) -> Figure:
    """Draws median (dot), middle half (bar) and 99 % (tick) of JCT for each size of job."""
    with canvas.house_style():
        figure, (axes,) = canvas.sheet(3.4)
        classes = size_classes(results)
        values = {
            name: results[name].jobs.filter(pl.col("jct_s") > 0).select("size_class", "jct_s")
            for name in ordered(results, order)
        }
        if not draw_by_size(axes, classes, values, canvas.looks(results)):
            canvas.say_nothing_to_show(axes, "no job finished")
            return figure
        axes.set_yscale("log")
        axes.set_ylim(*padded(axes.get_ylim()))
        canvas.spell_log_durations(axes, "y")
        name_classes(axes, classes)
        axes.set_ylabel("job completion time")
        canvas.grid(axes, "y")
        legend(axes, len(results))
        return figure


def gpu_seconds(results: Results, order: Sequence[str] = ()) -> Figure:
    """Draws the use of the GPU-seconds of the capacity, one bar per policy."""
    seconds = {name: results[name].gpu_seconds for name in ordered(results, order)}
    return stacked_seconds(seconds, canvas.labels(results))


def stacked_seconds(
    seconds: Mapping[str, Mapping[str, float]], short: Mapping[str, str] | None = None
) -> Figure:
    """Draws the GPU-seconds of each kind as shares of their sum, one bar a name."""
    with canvas.house_style():
        names = list(seconds)
        figure, (axes,) = canvas.sheet(1.5 + 0.34 * max(len(names), 1))
        pieces = [stackable(seconds[n]) for n in names]
        totals = [sum(p.values()) for p in pieces]
        if not any(t > 0 for t in totals):
            canvas.say_nothing_to_show(axes, "no capacity recorded")
            return figure
        left = np.zeros(len(names))
        for kind in GPU_SECOND_KINDS:
            words, fill, hatch = canvas.GPU_SECOND_LOOKS[kind]
            part = np.array(
                [100 * p[kind] / t if t > 0 else 0.0 for p, t in zip(pieces, totals, strict=True)]
            )
            if part.any():
                axes.barh(
                    range(len(names)),
                    part,
                    left=left,
                    color=fill,
                    hatch=hatch,
                    label=words,
                    height=0.7,
                )
                write_shares(axes, left, part, kind)
            left += part
        axes.set_yticks(range(len(names)), [(short or canvas.labels(names))[n] for n in names])
        axes.invert_yaxis()
        axes.set_xlim(0, 100)
        axes.set_xlabel("share of all GPU-seconds (%)")
        figure.legend(loc="outside lower center", ncols=3, columnspacing=1.2, handlelength=1.4)
        return figure


def stackable(seconds: Mapping[str, float]) -> dict[str, float]:
    """Returns the pieces of a bar: none below zero, the same sum.

    Where sharing did more with less, slowdown is below zero: the work done exceeds the time
    held. A bar shows time, so the gain is taken off the useful part.
    """
    parts = {kind: seconds.get(kind, 0.0) for kind in GPU_SECOND_KINDS}
    if parts["slowdown"] < 0:
        parts["useful"] += parts["slowdown"]
        parts["slowdown"] = 0.0
    return {kind: max(part, 0.0) for kind, part in parts.items()}


def write_shares(axes: Axes, left: Floats, part: Floats, kind: str) -> None:
    """Writes a share into its piece of the bar where the piece is wide enough."""
    ink = "#ffffff" if kind in ("useful", "switching", "down") else canvas.DARK
    for y, (start, width) in enumerate(zip(left, part, strict=True)):
        if width >= 9:
            axes.text(
                start + width / 2, y, f"{width:.0f}", ha="center", va="center", color=ink, size=9
            )


def draw_shares(axes: Axes, values: Mapping[str, Floats], looks: Mapping[str, canvas.Look]) -> bool:
    """Draws the cumulative distribution of each policy's values; False if there are none."""
    drawn = False
    for name, of_policy in values.items():
        x, share = binned_share(of_policy, SHARE_POINTS, log=True)
        if len(x):
            x, share = np.insert(x, 0, x[0]), np.insert(share, 0, 0.0)
            axes.plot(x, share * 100, drawstyle="steps-post", **looks[name])
            drawn = True
    return drawn


def draw_by_size(
    axes: Axes,
    classes: list[str],
    values: Mapping[str, pl.DataFrame],
    looks: Mapping[str, canvas.Look],
) -> bool:
    """Draws the quantiles of each policy's values by size class; False if there are none.

    The frames have the columns size class and value. Policies stand side by side in each class.
    """
    drawn, step = False, 0.8 / max(len(values), 1)
    for i, (name, frame) in enumerate(values.items()):
        size_class, value = frame.columns
        groups = dict(frame.group_by(size_class).agg(pl.col(value)).iter_rows())
        for at, size in enumerate(classes):
            if size in groups:
                x = at - 0.4 + step * (i + 0.5)
                quantiles = Quantiles(looks[name], 20 * step, is_told(name))
                quantiles.draw(axes, x, np.asarray(groups[size]))
                drawn = True
    return drawn


@dataclass(frozen=True, slots=True)
class Quantiles:
    """How the quantiles of one policy look; a row told true lengths is dashed, its dot hollow."""

    look: canvas.Look
    room_pt: float
    is_told: bool

    def draw(self, axes: Axes, x: float, values: Floats) -> None:
        """Draws one group: middle half as a bar, median as a dot, 99 % as a tick."""
        low, mid, high = np.quantile(values, [0.25, 0.5, 0.75])
        top = np.sort(values)[int(np.ceil(0.99 * len(values))) - 1]
        paint, width = self.look["color"], float(np.clip(self.room_pt, 2.0, 7.0))
        axes.plot([x, x], [high, max(top, high)], color=paint, linewidth=0.8)
        bar = axes.plot([x, x], [low, high], color=paint, linewidth=width, alpha=0.45)
        bar[0].set(solid_capstyle="butt", dash_capstyle="butt")
        if self.is_told:
            bar[0].set_linestyle((0, (0.5, 0.3)))
        axes.plot(x, top, "_", color=paint, markersize=width + 2)
        dots = axes.plot(x, mid, "o", color=paint, markersize=min(width, 5.0))
        dots[0].set(label=self.look["label"])
        if self.is_told:
            dots[0].set(markerfacecolor="white")


def draw_steps(axes: Axes, steps: StepSeries, unit_s: float, paint: str) -> None:
    """Draws the mean of each bin, and behind it all the bin's values from least to greatest."""
    edges = steps.edges / unit_s
    if not np.array_equal(steps.least, steps.greatest, equal_nan=True):
        axes.stairs(
            steps.greatest, edges, baseline=steps.least, fill=True, color=paint, alpha=0.25, lw=0
        )
    axes.stairs(steps.mean, edges, baseline=None, color=paint, linewidth=1.2)


def series_steps(result: RunResult, column: str) -> StepSeries:
    """Returns one column of the series, thinned for drawing."""
    series = result.series
    values = series[column].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    since_s = series["t_s"].to_numpy() - result.origin_s
    return binned_steps(since_s, values, span_s(result), BINS)


def span_s(result: RunResult) -> float:
    """Returns the length of the time axis, always above 0."""
    return max(result.lasted_s, 1e-9)


def held_seconds(spans: pl.DataFrame) -> pl.DataFrame:
    """Returns node, gpus, start_s, end_s of held GPUs, a GPU held by two jobs counted once."""
    columns = ["node", "gpus", "start_s", "end_s"]
    spans = spans.filter(pl.col("end_s") > pl.col("start_s"))
    named = spans.filter(pl.col("gpu_ids").is_not_null())
    anonymous = spans.filter(pl.col("gpu_ids").is_null()).select(columns)
    # The part of a span that an earlier one on the same GPU already covers is cut away.
    covered_s = pl.col("end_s").cum_max().shift(1).over("node", "gpu_ids")
    single = (
        named.explode("gpu_ids")
        .drop_nulls("gpu_ids")
        .sort("node", "gpu_ids", "start_s", "end_s")
        .with_columns(pl.max_horizontal("start_s", covered_s.fill_null(-np.inf)).alias("start_s"))
        .filter(pl.col("end_s") > pl.col("start_s"))
        .with_columns(pl.lit(1, pl.Int64).alias("gpus"))
        .select(columns)
    )
    return pl.concat([anonymous.cast({"gpus": pl.Int64}), single])


def grouped(row_of: Ints) -> str:
    """Returns how many nodes share a row, as words."""
    counts = np.bincount(row_of)
    low, high = int(counts.min()), int(counts.max())
    return f"{low}" if low == high else f"{low}–{high}"


def size_classes(results: Results) -> list[str]:
    """Returns every size class of any run, the smallest first."""
    frames = [r.jobs["size_class"].drop_nulls().unique() for r in results.values()]
    return sorted({c for f in frames for c in f.to_list()}, key=size_order)


def name_classes(axes: Axes, classes: list[str]) -> None:
    """Names the size classes along the x axis."""
    axes.set_xticks(range(len(classes)), classes, rotation=30 if len(classes) > 8 else 0)
    axes.set_xlim(-0.5, len(classes) - 0.5)
    axes.set_xlabel("GPUs a job asked for")


def padded(limits: tuple[float, float]) -> tuple[float, float]:
    """Returns logarithmic limits with room, also when all values are equal."""
    low, high = limits
    return (low / 1.5, high * 1.5)


def positive(jobs: pl.DataFrame, column: str) -> Floats:
    """Returns the values of one column above zero: what a logarithmic axis can show."""
    return jobs[column].drop_nulls().filter(jobs[column].drop_nulls() > 0).to_numpy()


def legend(axes: Axes, policies: int) -> None:
    """Names the policies above the picture, where they hide no data; not when there is but one."""
    if policies < 2:
        return
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    columns = 3 if max(len(w) for w in once) <= 14 else 2
    axes.figure.legend(
        list(once.values()),
        list(once),
        loc="outside upper center",
        ncols=min(columns, len(once)),
        columnspacing=1.2,
        handlelength=1.6,
    )
