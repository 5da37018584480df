"""The interval programme: its optimum by hand, and what a grid may and may not change."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.algorithms.demand import plain_demand, rigid_demand
from dovetail.algorithms.interval_lp import interval_grid, solve_intervals
from dovetail.algorithms.priced_bound import priced_flow_s
from dovetail.algorithms.speed import SpeedTimeline

JOBS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 5), st.integers(1, 3)), min_size=1, max_size=5
)
ONE_GPU, THREE_GPUS = SpeedTimeline.constant(1), SpeedTimeline.constant(3)


def test_two_equal_jobs_share_the_first_intervals() -> None:
    # Sizes 2, 2 on one GPU, edges 0 1 2 3 4: mean starts 0 1 2 3 make the means sum to 3 over
    # two jobs of 2 units each: sum F = (0 + 1 + 2 + 3) / 2 + 2 * (2 / 2) = 5.
    demand = rigid_demand([0, 0], [2, 2], [1, 1])
    assert solve_intervals(demand, ONE_GPU, np.arange(5.0)).flow_s == pytest.approx(5)


def test_a_job_without_area_still_takes_its_time() -> None:
    demand = plain_demand([0, 0], [2, 7], [2, 0])
    assert solve_intervals(demand, ONE_GPU, np.arange(5.0)).flow_s == pytest.approx(9)


def test_no_capacity_in_the_grid_pushes_jobs_past_it() -> None:
    outage = SpeedTimeline.of([0, 10], [0, 1])
    solution = solve_intervals(rigid_demand([0], [2], [1]), outage, np.array([0.0, 5.0, 10.0]))
    assert solution.flow_s == pytest.approx(10 + 2 / 2)


@settings(max_examples=60)
@given(JOBS)
def test_a_coarser_grid_never_bounds_more(jobs: list[tuple[int, int, int]]) -> None:
    demand = rigid_demand(*zip(*jobs, strict=True))
    edges = np.arange(0.0, 21.0, 1.0)
    flows = [solve_intervals(demand, THREE_GPUS, edges[::k]).flow_s for k in (1, 2, 4, 20)]
    assert bool((np.diff(flows) <= 1e-6).all())
    assert flows[-1] >= demand.shortest_s.sum() - 1e-6


@settings(max_examples=60)
@given(JOBS, st.integers(1, 8))
def test_its_prices_certify_at_least_its_optimum(
    jobs: list[tuple[int, int, int]], intervals: int
) -> None:
    demand = rigid_demand(*zip(*jobs, strict=True))
    edges = np.linspace(0.0, 16.0, intervals + 1)
    solution = solve_intervals(demand, THREE_GPUS, edges)
    assert priced_flow_s(demand, THREE_GPUS, solution.prices) >= solution.flow_s - 1e-6


def test_a_grid_is_denser_where_more_happens_and_keeps_the_ends() -> None:
    instants = np.concatenate((np.linspace(0, 10, 900), np.linspace(10, 100, 101)))
    edges = interval_grid(instants, 20)
    assert (edges[0], edges[-1], edges.size) == (0, 100, 21)
    # Density goes with the root: 0 to 10 has 9 of 10 instants but no nine tenths of the edges.
    assert 3 <= int((edges < 10).sum()) <= 17
    assert np.diff(edges)[0] < np.diff(edges)[-1]


def test_one_instant_makes_one_interval() -> None:
    assert interval_grid([5.0, 5.0], 7).tolist() == [5, 6]
    with pytest.raises(ValueError, match="some instants"):
        interval_grid([], 3)
