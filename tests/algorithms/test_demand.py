"""What jobs ask at the least, from durations, scaling curves and sharing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.algorithms.demand import ScalingCurve, elastic_demand, plain_demand, rigid_demand


def test_a_rigid_job_is_as_wide_as_its_gpus() -> None:
    demand = rigid_demand([0, 3], [10, 4], [2, 8])
    assert demand.area_gpu_s.tolist() == [20, 32]
    assert demand.segments.width_gpus.tolist() == [2, 8]
    assert (demand.segments.rate_per_gpu_s * demand.segments.width_gpus).tolist() == [0.1, 0.25]


def test_a_hull_skips_counts_that_are_not_worth_it() -> None:
    # 3 lies under the line from 2 to 4; 5 and 6 add nothing; counts may come in any order.
    width, slope = ScalingCurve.of([4, 1, 2, 3, 5, 6], [2.8, 1, 1.8, 2, 2.8, 2.5]).hull()
    assert width.tolist() == [1, 1, 2]
    assert slope == pytest.approx([1, 0.8, 0.5])


def test_a_superlinear_start_is_one_segment() -> None:
    width, slope = ScalingCurve.of([1, 2, 4], [1, 3, 4]).hull()
    assert (width.tolist(), slope.tolist()) == ([2, 2], [1.5, 0.5])


def test_an_elastic_job_is_short_at_its_fastest_and_small_at_its_thriftiest() -> None:
    curves = [ScalingCurve.of([1, 2, 4], [1, 1.5, 2]), ScalingCurve.of([2], [4])]
    demand = elastic_demand([0, 1, 2], [12, 8, 0], [0, 1, 1], curves)
    assert demand.shortest_s.tolist() == [6, 2, 0]
    assert demand.area_gpu_s.tolist() == [12, 4, 0]
    assert demand.segments.first.tolist() == [0, 3, 4, 4]
    assert demand.segments.rate_per_gpu_s == pytest.approx([1 / 12, 0.5 / 12, 0.25 / 12, 0.25])


@given(st.lists(st.floats(0.1, 9), min_size=1, max_size=8))
def test_a_hull_is_concave_and_covers_its_curve(rates: list[float]) -> None:
    gpus = np.arange(1, len(rates) + 1)
    width, slope = ScalingCurve.of(gpus, rates).hull()
    assert bool((np.diff(slope) < 0).all())
    corner_x = np.concatenate(([0], np.cumsum(width)))
    corner_y = np.concatenate(([0], np.cumsum(width * slope)))
    assert bool((np.interp(gpus, corner_x, corner_y) >= np.array(rates) - 1e-9).all())
    assert corner_y[-1] == pytest.approx(max(rates))


def test_a_charge_shrinks_the_area_and_leaves_the_time_alone() -> None:
    demand = rigid_demand([0, 0], [10, 10], [2, 1]).charged(np.array([0.8, 1.0]))
    assert (demand.area_gpu_s.tolist(), demand.shortest_s.tolist()) == ([16, 10], [10, 10])
    assert demand.segments.width_gpus.tolist() == [1.6, 1]
    assert demand.segments.rate_per_gpu_s.tolist() == [1 / 16, 1 / 10]


def test_merged_segments_meet_above_the_curve() -> None:
    # Slopes 1, 0.9, 0.5, 0.1: the second goes, and the first meets the third at 1.8 GPUs.
    curve = ScalingCurve.of([1, 2, 3, 4], [1, 1.9, 2.4, 2.5])
    merged = elastic_demand([0], [1], [0], [curve]).merged(0.8)
    assert merged.segments.first.tolist() == [0, 3]
    assert merged.segments.width_gpus == pytest.approx([1.8, 1.2, 1.0])
    assert merged.segments.rate_per_gpu_s == pytest.approx([1, 0.5, 0.1])
    assert merged.shortest_s.tolist() == [1 / 2.5]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.floats(0.1, 0.99))
def test_merged_curves_lie_nowhere_below_and_keep_the_top(
    rates: list[int], steepness: float
) -> None:
    if not any(rates):
        return
    gpus = np.arange(1, len(rates) + 1)
    demand = elastic_demand([0], [1], [0], [ScalingCurve.of(gpus, rates)])
    merged = demand.merged(steepness)
    width, rate = merged.segments.width_gpus, merged.segments.rate_per_gpu_s
    corner_x = np.concatenate(([0], np.cumsum(width)))
    corner_y = np.concatenate(([0], np.cumsum(width * rate)))
    assert bool((np.diff(rate) < 0).all())
    assert width.size <= demand.segments.width_gpus.size
    assert bool((np.interp(gpus, corner_x, corner_y) >= np.array(rates) - 1e-6).all())
    assert corner_y[-1] == pytest.approx(max(rates))


def test_a_subset_keeps_each_job_with_its_own_segments() -> None:
    curves = [ScalingCurve.of([1, 2, 4], [1, 1.5, 2]), ScalingCurve.of([2], [4])]
    demand = elastic_demand([0, 1, 2], [12, 8, 6], [0, 1, 0], curves)
    kept = demand.subset(np.array([2, 1]))
    assert kept.release_s.tolist() == [2, 1]
    assert kept.segments.first.tolist() == [0, 3, 4]
    assert kept.segments.rate_per_gpu_s == pytest.approx([1 / 6, 0.5 / 6, 0.25 / 6, 0.25])


@pytest.mark.parametrize(
    ("release", "shortest", "area"),
    [([0], [1, 2], [1]), ([0], [-1], [1]), ([0], [1], [-1]), ([0], [0], [1]), ([np.nan], [1], [1])],
)
def test_senseless_demand_is_refused(
    release: list[float], shortest: list[float], area: list[float]
) -> None:
    with pytest.raises(ValueError, match=r"release|negative|area"):
        plain_demand(release, shortest, area)


def test_senseless_curves_and_rates_are_refused() -> None:
    with pytest.raises(ValueError, match="scaling curve"):
        ScalingCurve.of([0, 1], [1, 2])
    for charge in (0.0, 1.1):
        with pytest.raises(ValueError, match="charge above 0"):
            rigid_demand([0], [1], [1]).charged(np.array([charge]))
