"""The clock between work and time on a machine whose speed changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.algorithms.speed import SpeedTimeline

OUTAGE = SpeedTimeline.of([0, 10, 15], [2, 0, 4])
TIMELINES = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), min_size=1, max_size=5)


def test_work_and_time_through_an_outage() -> None:
    assert OUTAGE.work_by([-3, 0, 5, 10, 12, 15, 16]).tolist() == [0, 0, 10, 20, 20, 20, 24]
    assert OUTAGE.time_of([0, 10, 20, 24]).tolist() == [0, 5, 10, 16]


def test_the_mean_time_of_work_across_an_outage() -> None:
    # Work 18 to 24: two units over seconds 9 to 10, four over 15 to 16: 2 * 9.5 + 4 * 15.5.
    assert float(OUTAGE.time_integral(24.0) - OUTAGE.time_integral(18.0)) == pytest.approx(81)


def test_a_machine_that_stops_for_ever_never_does_more() -> None:
    stopped = SpeedTimeline.of([0, 10], [1, 0])
    assert stopped.time_of([10, 11]).tolist() == [10, np.inf]


@given(TIMELINES, st.lists(st.floats(0, 30), min_size=1, max_size=6))
def test_the_first_instant_for_some_work_does_exactly_that_work(
    steps: list[tuple[int, int]], amounts: list[float]
) -> None:
    starts = np.cumsum([length for length, _ in steps])
    timeline = SpeedTimeline.of(starts, [*(speed for _, speed in steps[:-1]), 3])
    reached = timeline.time_of(amounts)
    assert timeline.work_by(reached) == pytest.approx(amounts)
    grid = np.linspace(0, max(amounts), 20_001)
    by_sums = np.trapezoid(timeline.time_of(grid), grid)
    assert float(timeline.time_integral(max(amounts))) == pytest.approx(by_sums, rel=1e-2, abs=0.1)


@pytest.mark.parametrize(
    ("starts", "speeds"),
    [([], []), ([0, 0], [1, 2]), ([1, 0], [1, 2]), ([0], [-1]), ([0], [1, 2]), ([0], [np.nan])],
)
def test_a_senseless_timeline_is_refused(starts: list[float], speeds: list[float]) -> None:
    with pytest.raises(ValueError, match="speed"):
        SpeedTimeline.of(starts, speeds)
