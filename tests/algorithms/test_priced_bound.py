"""Bounds certified by prices: each job's best answer to them, by hand and by search."""

from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from dovetail.algorithms.demand import JobDemand, ScalingCurve, elastic_demand, rigid_demand
from dovetail.algorithms.priced_bound import Prices, least_payments_s, priced_flow_s
from dovetail.algorithms.speed import SpeedTimeline
from patience import MUCH_CPU_S

PRICE_LISTS = st.lists(st.integers(0, 8), min_size=1, max_size=5)


def prices_of(units: list[int], length_s: int = 2) -> Prices:
    edges = np.arange(0, (len(units) + 1) * length_s, length_s, dtype=np.float64)
    return Prices(edges, np.array(units) / 4)


def test_no_prices_certify_the_span() -> None:
    demand = rigid_demand([0, 1], [4, 2], [1, 1])
    assert priced_flow_s(demand, SpeedTimeline.constant(1), prices_of([0, 0])) == 6


def test_the_right_price_certifies_the_optimum() -> None:
    # Two jobs of one second on one GPU end at 1 and 2. At price 1 for the first second both
    # ends cost a job 2; the second sold for 1: 2 + 2 - 1.
    demand = rigid_demand([0, 0], [1, 1], [1, 1])
    prices = Prices(np.array([0.0, 1.0]), np.array([1.0]))
    assert least_payments_s(demand, prices).tolist() == [2, 2]
    assert priced_flow_s(demand, SpeedTimeline.constant(1), prices) == 3


def test_a_job_buys_around_a_dear_stretch() -> None:
    # Needs 2 s on 3 GPUs; seconds cost 0, 3 x 0.5, 0. Straight through: 2 + 1.5; around: 3 + 0.
    demand = rigid_demand([0], [2], [3])
    prices = Prices(np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.5]))
    assert least_payments_s(demand, prices).tolist() == [3]
    cheaper = Prices(np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.25]))
    assert least_payments_s(demand, cheaper).tolist() == [2.75]


def test_an_elastic_job_buys_only_its_thrifty_gpus() -> None:
    # Work 4: 2 s on GPU one and two (rates 1.5, 0.5), price 0.5 for 4 s: full width costs
    # 2 + 2; GPU one alone 8/3 s for 8/3 + 4/3, the same; at price 0.6 only that is best.
    demand = elastic_demand([0], [4], [0], [ScalingCurve.of([1, 2], [1.5, 2])])
    dear = Prices(np.array([0.0, 4.0]), np.array([0.6]))
    assert least_payments_s(demand, dear) == pytest.approx([8 / 3 * 1.6])
    cheap = Prices(np.array([0.0, 4.0]), np.array([0.4]))
    assert least_payments_s(demand, cheap) == pytest.approx([2 + 4 * 0.4])


@settings(max_examples=300)
@given(st.integers(0, 6), st.integers(1, 5), st.integers(1, 3), PRICE_LISTS)
def test_a_rigid_job_pays_what_whole_second_search_finds(
    release: int, duration: int, gpus: int, units: list[int]
) -> None:
    second = [units[t // 2] / 4 if t // 2 < len(units) else 0.0 for t in range(40)]
    found = min(
        end - release + gpus * sum(sorted(second[release:end])[:duration])
        for end in range(release + duration, 30)
    )
    paid = least_payments_s(rigid_demand([release], [duration], [gpus]), prices_of(units))
    assert paid[0] == pytest.approx(found)


def cheapest_by_programme(demand: JobDemand, prices: Prices, end_s: float) -> float:
    """Returns end - release + the least price of the area, for one end; inf if it is too early."""
    opening = np.concatenate(([-99.0], prices.edge_s))
    closing = np.concatenate((prices.edge_s, [999.0]))
    release = float(demand.release_s[0])
    length = np.clip(np.minimum(closing, end_s) - np.maximum(opening, release), 0, None)
    price = np.concatenate(([0.0], prices.per_gpu_s, [0.0]))
    most = np.outer(demand.segments.width_gpus, length).ravel()
    rate = np.repeat(demand.segments.rate_per_gpu_s, length.size)
    answer = linprog(
        np.tile(price, demand.segments.width_gpus.size).astype(np.float64),
        A_eq=rate.reshape(1, -1).astype(np.float64),
        b_eq=np.ones(1),
        bounds=[(0.0, amount) for amount in most.tolist()],
    )
    return np.inf if answer.fun is None else end_s - release + float(answer.fun)


@settings(max_examples=20)
@given(
    st.integers(0, 3),
    st.integers(2, 8),
    st.lists(st.floats(0.2, 1.0), min_size=2, max_size=3),
    PRICE_LISTS,
)
def test_an_elastic_job_pays_what_a_solver_finds(
    release: int, work: int, gains: list[float], units: list[int]
) -> None:
    curve = ScalingCurve.of(range(1, len(gains) + 1), np.cumsum(gains))
    demand = elastic_demand([release], [work], [0], [curve])
    prices = prices_of(units, 3)
    paid = float(least_payments_s(demand, prices)[0])
    step = 0.5
    ends = release + float(demand.shortest_s[0]) + step * np.arange(60)
    found = min(cheapest_by_programme(demand, prices, float(end)) for end in ends[ends < 60])
    # The search tries one end in `step` seconds, so it may be dearer by that much at most.
    assert paid - 1e-6 <= found <= paid + step + 1e-6


def test_many_segments_and_falling_prices_stay_cheap_to_search() -> None:
    # Lots once multiplied with every interval: this took minutes.
    curve = ScalingCurve.of(range(1, 10), np.cumsum(0.9 ** np.arange(9)))
    demand = elastic_demand(np.arange(20.0), [400.0] * 20, [0] * 20, [curve])
    falling = Prices(np.arange(201.0), np.linspace(2, 0, 200))
    began = process_time()
    paid = least_payments_s(demand, falling)
    assert process_time() - began < MUCH_CPU_S
    assert bool((paid > demand.shortest_s).all())


def test_senseless_prices_are_refused() -> None:
    for edges, values in (([0.0, 1.0], [-1.0]), ([0.0], [1.0]), ([1.0, 0.0], [1.0])):
        with pytest.raises(ValueError, match="prices"):
            Prices(np.array(edges), np.array(values))
