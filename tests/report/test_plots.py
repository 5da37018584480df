"""The pictures: exact where they thin, the same bytes every time, and drawn for any input."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from result_scene import comparison_of, empty_result, pair, run_result

from dovetail.record.result import JOB_COLUMNS, SPAN_COLUMNS
from dovetail.report import plots
from dovetail.report.order import RECORDED_COLOUR, best_of, in_order, rows_in_order
from dovetail.report.plots import canvas
from dovetail.report.plots.run import held_seconds, stackable
from dovetail.report.plots.steps import binned_share, binned_steps, held_by_bin
from dovetail.report.words import duration

RUN_FIGURES = ("load_over_time", "occupancy")
MANY_FIGURES = ("jct_distribution", "queue_lengths", "jct_by_size", "gpu_seconds")
COMPARISON_FIGURES = ("mean_jct", "change_by_size", "change_by_user")


def every_figure(comparison) -> dict[str, Any]:
    first = comparison.results[comparison.baseline]
    return {
        **{f: getattr(plots, f)(first) for f in RUN_FIGURES},
        **{f: getattr(plots, f)(comparison.results) for f in MANY_FIGURES},
        **{f: getattr(plots, f)(comparison) for f in COMPARISON_FIGURES},
    }


def words_in(figure) -> str:
    from matplotlib.text import Text

    return " | ".join(t.get_text() for t in figure.findobj(Text) if t.get_visible())


def test_a_short_step_function_is_drawn_as_it_is():
    steps = binned_steps(np.array([0.0, 1.0, 4.0]), np.array([2.0, 5.0, 1.0]), 6.0, 10)
    assert steps.edges.tolist() == [0.0, 1.0, 4.0, 6.0]
    assert steps.mean.tolist() == [2.0, 5.0, 1.0]


def test_a_bin_keeps_its_mean_over_time_its_least_and_its_greatest():
    t = np.array([0.0, 1.0, 2.0, 2.5, 3.0])
    steps = binned_steps(t, np.array([4.0, 0.0, 8.0, 2.0, 1.0]), 4.0, 2)
    assert steps.edges.tolist() == [0.0, 2.0, 4.0]
    assert steps.mean.tolist() == [2.0, (8 * 0.5 + 2 * 0.5 + 1) / 2]
    assert steps.least.tolist() == [0.0, 1.0]
    assert steps.greatest.tolist() == [4.0, 8.0]


def test_rows_that_last_no_time_or_say_nothing_do_not_show():
    t = np.array([0.0, 0.0, 1.0, 2.0])
    steps = binned_steps(t, np.array([99.0, 1.0, np.nan, 3.0]), 3.0, 100)
    assert np.nanmax(steps.greatest) == 3.0
    assert np.nanmin(steps.least) == 1.0


@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(-9, 9)), min_size=1, max_size=60),
    st.integers(1, 12),
)
@settings(max_examples=60)
def test_binning_never_loses_area(rows, bins):
    gaps, values = (np.array(c) for c in zip(*rows, strict=True))
    t = np.concatenate([[0.0], np.cumsum(gaps)])[:-1]
    end = float(np.cumsum(gaps)[-1])
    steps = binned_steps(t, values, end, bins)
    assert len(steps) <= bins or np.count_nonzero(gaps) <= bins
    width = np.diff(steps.edges) if len(steps) else np.empty(0)
    area = float((np.nan_to_num(steps.mean) * width).sum())
    assert area == pytest.approx(float((gaps * values).sum()), abs=1e-6)


def test_the_distribution_is_exact_at_every_edge_it_is_drawn_at():
    values = np.random.default_rng(0).lognormal(5, 2, 50_000)
    x, share = binned_share(values, 200, log=True)
    assert len(x) == 200
    assert share[-1] == 1.0
    for edge, part in list(zip(x, share, strict=True))[::17]:
        assert part == np.mean(values <= edge)


def test_the_distribution_of_equal_values_is_one_step():
    x, share = binned_share(np.full(10_000, 7.0), 100, log=True)
    assert (x.tolist(), share.tolist()) == ([7.0], [1.0])


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 8), st.floats(0, 90), st.floats(0, 40)),
        min_size=1,
        max_size=25,
    )
)
@settings(max_examples=50)
def test_the_heat_map_holds_what_each_span_held(spans):
    row, amount, start, lasts = (np.array(c, dtype=float) for c in zip(*spans, strict=True))
    edges = np.linspace(0.0, 130.0, 14)
    held = held_by_bin(row.astype(np.int64), amount, start, start + lasts, edges, 3)
    slow = np.zeros((3, 13))
    for r, a, s, d in spans:
        overlap = np.minimum(s + d, edges[1:]) - np.maximum(s, edges[:-1])
        slow[r] += a * np.maximum(overlap, 0) / np.diff(edges)
    np.testing.assert_allclose(held, slow, atol=1e-9)


def test_a_gpu_that_two_jobs_share_is_held_once():
    rows = [
        ("a", 0, 2, 0.0, 10.0, 1.0, "run", [0, 1]),
        ("b", 0, 1, 4.0, 6.0, 0.5, "run", [1]),
        ("c", 0, 1, 8.0, 14.0, 0.5, "run", [1]),
        ("d", 0, 3, 0.0, 2.0, 1.0, "run", None),
    ]
    held = held_seconds(pl.DataFrame(rows, schema=dict(SPAN_COLUMNS), orient="row"))
    # GPU 0: 10 s; GPU 1: 10 s and then 4 s more; three anonymous GPUs for 2 s.
    assert (
        held.select((pl.col("gpus") * (pl.col("end_s") - pl.col("start_s"))).sum()).item() == 30.0
    )


def test_a_negative_slowdown_is_taken_off_the_useful_part():
    seconds = {"useful": 120.0, "slowdown": -20.0, "switching": 5.0, "idle_empty": 10.0}
    parts = stackable(seconds)
    assert sum(parts.values()) == sum(seconds.values())
    assert parts["useful"] == 100.0 and parts["slowdown"] == 0.0


@pytest.mark.parametrize("scene", ["many", "one job", "equal", "empty", "no users", "instant"])
def test_every_figure_draws_whatever_comes(scene, tmp_path: Path):
    comparison = pair(120)
    if scene == "one job":
        comparison = pair(1)
    if scene in ("equal", "no users", "instant"):
        columns = {
            "equal": [pl.lit(60.0).alias("jct_s"), pl.lit(1, pl.Int64).alias("gpus")],
            "no users": [pl.lit("").alias("user"), pl.lit(None, pl.Float64).alias("start_s")],
            "instant": [pl.lit(0.0).alias("jct_s"), pl.lit(0.0).alias("finish_s")],
        }[scene]
        results = {
            n: replace(r, jobs=r.jobs.with_columns(columns)) for n, r in comparison.results.items()
        }
        comparison = replace(comparison, results=results)
    if scene == "empty":
        comparison = comparison_of({"fifo": empty_result(), "sjf": empty_result("sjf")}, "fifo")
    for name, figure in every_figure(comparison).items():
        png, svg = plots.save(figure, tmp_path / name)
        assert png.read_bytes().startswith(b"\x89PNG") and b"</svg>" in svg.read_bytes()


def test_axes_carry_units_and_policies_are_named():
    figures = every_figure(pair(200))
    assert "time since first submission (" in words_in(figures["load_over_time"])
    assert "mean JCT, 95 % interval" in words_in(figures["mean_jct"])
    assert "bound" in words_in(figures["mean_jct"])
    assert "GPUs held (%)" in words_in(figures["occupancy"])
    assert "share of all GPU-seconds (%)" in words_in(figures["gpu_seconds"])
    for name in ("jct_distribution", "queue_lengths", "jct_by_size", "gpu_seconds", "mean_jct"):
        assert "fifo" in words_in(figures[name]) and "sjf" in words_in(figures[name])


def test_the_number_of_a_mean_stands_at_its_mark_and_the_axis_speaks_its_units():
    comparison = pair(200)
    (axes,) = plots.mean_jct(comparison).axes
    means = comparison.ranked["avg_jct_s"].to_list()
    assert [(t.xy, t.get_text()) for t in axes.texts if t.get_text() != "bound"] == [
        ((mean_s, row), duration(mean_s)) for row, mean_s in enumerate(means)
    ]
    ticks = axes.get_xticks()
    assert [t.get_text() for t in axes.get_xticklabels()][1:] == [duration(t) for t in ticks[1:]]


def test_a_policy_has_one_colour_and_one_place_in_every_figure():
    run = run_result(60)
    names = ["slow", "recorded", "fast"]
    results = {
        name: replace(run, summary={**run.summary, "policy": name, "avg_jct_s": mean_s})
        for name, mean_s in zip(names, (900.0, 500.0, 100.0), strict=True)
    }
    comparison = comparison_of(results, "slow")
    assert in_order(results) == ["recorded", "fast", "slow"]
    assert [r["policy"] for r in rows_in_order(comparison)] == ["recorded", "fast", "slow"]
    assert best_of(comparison) == "fast"
    assert canvas.colour(canvas.colour_places(results)["recorded"]) == RECORDED_COLOUR
    paint = {name: look["color"] for name, look in canvas.looks(results).items()}
    assert len(set(paint.values())) == 3
    for draw in (plots.jct_distribution, plots.queue_lengths):
        (axes,) = draw(results).axes
        handles, labels = axes.get_legend_handles_labels()
        assert labels == ["recorded", "fast", "slow"]
        shown = [h.get_color() if hasattr(h, "get_color") else h.get_edgecolor() for h in handles]
        assert [to_hex(c) for c in shown] == [paint[name] for name in labels]
    (axes,) = plots.mean_jct(comparison).axes
    assert [t.get_text() for t in axes.get_yticklabels()] == ["recorded", "fast", "slow"]


def test_a_figure_grows_until_its_legend_leaves_the_axes_room(tmp_path: Path):
    results = {f"policy-number-{i:02d}": run_result(3) for i in range(60)}
    figure = plots.jct_distribution(results)
    before = figure.get_figheight()
    plots.save(figure, tmp_path / "many")  # a warning would fail this test
    assert figure.get_figheight() > before


def test_time_starts_at_the_first_submission_whatever_the_clock_of_the_trace():
    run = run_result(150)
    late = replace(
        run,
        jobs=run.jobs.with_columns(pl.col("submit_s", "start_s", "finish_s") + 1.6e9),
        series=run.series.with_columns(pl.col("t_s") + 1.6e9),
        spans=run.spans.with_columns(pl.col("start_s", "end_s") + 1.6e9),
    )
    for draw in (plots.load_over_time, plots.occupancy):
        limits = [f.axes[0].get_xlim() for f in (draw(run), draw(late))]
        assert limits[0] == pytest.approx(limits[1], abs=1e-3)


def test_the_same_result_gives_the_same_bytes(tmp_path: Path):
    once, twice = every_figure(pair(80)), every_figure(pair(80))
    for name in once:
        for a, b in zip(
            plots.save(once[name], tmp_path / f"{name}1"),
            plots.save(twice[name], tmp_path / f"{name}2"),
            strict=True,
        ):
            assert a.read_bytes() == b.read_bytes(), name


def test_names_that_look_like_formulas_or_hidden_entries_are_text(tmp_path: Path):
    run = run_result(30)
    results = dict.fromkeys(("fifo", r"$\frac{1", "_hidden", "a\nb", "<b>"), run)
    comparison = comparison_of(results, "fifo")
    for name, figure in every_figure(comparison).items():
        plots.save(figure, tmp_path / name)
    assert "_hidden" in words_in(plots.jct_distribution(results))


def test_the_users_own_matplotlib_settings_are_left_alone():
    import matplotlib as mpl

    before = mpl.rcParams["font.size"]
    mpl.rcParams["font.size"] = 23.0
    try:
        plots.jct_distribution({"fifo": run_result(20)})
        assert mpl.rcParams["font.size"] == 23.0
    finally:
        mpl.rcParams["font.size"] = before


def test_changes_are_paired_by_job_and_ordered_by_user():
    jobs = {"job_id": ["a", "b", "c"], "user": ["u", "u", "v"], "size_class": ["1"] * 3}
    base = pl.DataFrame({**jobs, "jct_s": [100.0, 300.0, 50.0]})
    ours = pl.DataFrame({**jobs, "jct_s": [50.0, 150.0, None]})
    comparison = pair(10)
    comparison = replace(
        comparison,
        results={
            n: replace(r, jobs=j)
            for (n, r), j in zip(comparison.results.items(), (base, ours), strict=True)
        },
    )
    assert plots.job_ratios(comparison, "sjf")["ratio"].to_list() == [0.5, 0.5]
    changes = plots.user_changes(comparison, "sjf").to_dicts()
    assert changes == [{"user": "u", "jobs": 2, "base_s": 200.0, "jct_s": 100.0, "ratio": 0.5}]


def test_a_million_points_are_thinned_not_sampled():
    n = 1_000_000
    t = np.arange(n, dtype=float)
    values = np.zeros(n)
    values[765_432] = 1000.0  # one row among a million
    steps = binned_steps(t, values, float(n), 600)
    assert len(steps) == 600
    assert steps.greatest.max() == 1000.0
    assert steps.mean.sum() * (n / 600) == pytest.approx(1000.0)


def test_the_scene_speaks_the_contract():
    assert run_result(5).jobs.schema == pl.Schema(dict(JOB_COLUMNS))
