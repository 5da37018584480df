"""A description says what is there, fits 80 columns and draws its figure."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from dovetail.core.job import JobTable, Labels
from dovetail.core.trace import CANCELLED, COMPLETED, Trace
from dovetail.core.units import HOUR_S
from dovetail.traces.describe import describe
from dovetail.traces.describe_plots import plot_description
from dovetail.traces.describe_text import print_description, span
from dovetail.traces.generate import Recipe, generate


@pytest.fixture
def trace() -> Trace:
    """Four jobs from Tuesday noon to Wednesday noon."""
    noon = 36 * HOUR_S
    jobs = JobTable.build(
        ["a", "b", "c", "d"],
        np.array([noon, noon + 600.0, noon + HOUR_S, noon + 24 * HOUR_S]),
        np.array([1, 1, 4, 32]),
        user=Labels.of(["ann", "bob", "ann", ""]),
        recurrence=Labels.of(["r", "r", "s", ""]),
    )
    return Trace(
        jobs,
        np.array([HOUR_S, 2 * HOUR_S, HOUR_S, HOUR_S / 2]),
        np.full(4, np.nan),
        np.array([COMPLETED, CANCELLED, COMPLETED, COMPLETED], dtype=np.int8),
        "four",
        {"read": 5, "usable": 4, "rejected: no GPU": 1},
    )


def test_numbers_are_those_of_the_trace(trace: Trace) -> None:
    told = describe(trace, gpus=16)
    assert (told.jobs, told.users, told.queues, told.recurrence_groups) == (4, 2, 0, 2)
    assert told.gpu_hours == 1 + 2 + 4 + 16
    assert told.span_days == 1.0
    assert [(r.gpus, r.jobs, r.gpu_hours) for r in told.sizes] == [
        (1, 2, 3),
        (4, 1, 4),
        (32, 1, 16),
    ]
    assert [(r.sizes, r.jobs, r.longest_s) for r in told.durations] == [
        ("all", 4, 7200.0),
        ("1", 2, 7200.0),
        ("2-4", 1, 3600.0),
        ("17+", 1, 1800.0),
    ]
    assert told.durations[1].quantiles_s[2] == 1.5 * HOUR_S
    assert [(r.end, r.jobs) for r in told.ends] == [("completed", 3), ("cancelled", 1)]
    assert told.ends[1].gpu_hours_share == pytest.approx(2 / 23)
    assert told.load is not None
    assert told.load.mean == pytest.approx(23 / (16 * 24))
    assert told.load.by_day == pytest.approx((7 / 384, 16 / 384))
    assert told.load.too_large_jobs == 1
    assert told.arrivals.busiest_hour_jobs == 2
    assert told.arrivals.by_hour_of_day[12] == 1.5
    assert told.arrivals.by_hour_of_day[13] == 1.0
    assert told.arrivals.by_weekday[1] == 3 / 12


def test_the_dictionary_is_plain_json(trace: Trace) -> None:
    values = json.loads(json.dumps(describe(trace, gpus=16).to_dict(), allow_nan=False))
    assert values["counts"] == {"read": 5, "usable": 4, "rejected: no GPU": 1}
    burst = describe(generate(Recipe("burst", 5)), gpus=16)
    assert json.loads(json.dumps(burst.to_dict(), allow_nan=False))["load"]["mean"] is None


@pytest.mark.parametrize("jobs", [1, 30, 3000, 1_000_000])
def test_the_text_fits_80_columns(jobs: int) -> None:
    trace = generate(Recipe("philly-like", jobs, 30.0, 0, deadlines=0.5, time_limits=0.5))
    stream = io.StringIO()
    print_description(describe(trace, gpus=64), Console(file=stream, width=80))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in stream.getvalue()
    assert any(line.startswith("by weekday") and " Sun " in line for line in lines)
    assert any(line.startswith("Offered load on 64 GPUs") for line in lines)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0.4, "0 s"), (45, "45 s"), (119, "119 s"), (150, "2.5 min"), (7200, "2.0 h")),
        (86400 * 12, "12.0 d"),
    ],
)
def test_times_are_said_as_people_do(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize("gpus", [None, 16])
def test_the_figure_is_written_twice_and_the_same_each_time(
    trace: Trace, tmp_path: Path, gpus: int | None
) -> None:
    paths = plot_description(describe(trace, gpus), trace, tmp_path / "a" / "b")
    assert [p.name for p in paths] == ["four.describe.png", "four.describe.svg"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert b"Run times by size" in paths[1].read_bytes() or b"<svg" in paths[1].read_bytes()
    before = [p.read_bytes() for p in paths]
    plot_description(describe(trace, gpus), trace, tmp_path / "a" / "b")
    assert [p.read_bytes() for p in paths] == before


def test_a_trace_of_one_moment_can_be_drawn(tmp_path: Path) -> None:
    burst = generate(Recipe("burst", 5))
    assert len(plot_description(describe(burst, 4), burst, tmp_path)) == 2


def test_it_says_how_much_of_their_limits_jobs_use(trace: Trace) -> None:
    assert describe(trace).limits is None
    limits_s = np.array([2 * HOUR_S, 10 * HOUR_S, np.inf, HOUR_S])
    limited = replace(trace, jobs=replace(trace.jobs, time_limit_s=limits_s))
    told = describe(limited).limits
    assert told is not None
    # One hour of two, two of ten, half of one: the median is a half, one of three uses little.
    assert (told.used_median, told.used_little_share) == (0.5, pytest.approx(1 / 3))
    shown = io.StringIO()
    print_description(describe(limited), Console(file=shown, width=80))
    assert "of their limits jobs use 50% at the median; 33% use less than 25%" in shown.getvalue()
