"""The Gittins index against its definition, and against numbers worked by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.algorithms.gittins import gittins_table, quantile_index

SAMPLES = st.lists(st.integers(1, 40), min_size=1, max_size=12)


def by_definition(service: list[int], age: float, deltas: list[float]) -> float:
    left = [s - age for s in service if s > age]
    return max(
        (sum(x <= d for x in left) / sum(min(x, d) for x in left) for d in deltas), default=0.0
    )


def best_delta(service: list[int], age: float) -> float:
    """Only the samples' own ends can be the best delta: between them only the cost grows."""
    return by_definition(service, age, [s - age for s in service if s > age])


def test_two_sizes_worked_by_hand() -> None:
    # At 0: delta 2 ends one of two for 2 + 2, delta 10 both for 2 + 10: 1/4 beats 1/6.
    # At 2 one is left with 8 to go. At 6 it has 4 to go.
    table = gittins_table([2, 10])
    assert table.at([0, 1, 2, 6, 10, 11]).tolist() == [1 / 4, 1 / 2, 1 / 8, 1 / 4, 0, 0]


def test_the_best_delta_changes_inside_one_piece() -> None:
    # Samples 4, 5, 5. At 0: all three for 14 (3/14) beats one for 12 (1/12). The two are equal
    # where 3 / (14 - 3a) = 1 / (12 - 3a), so at a = 11/3; from there on the first end is best.
    table = gittins_table([4, 5, 5])
    assert table.start.tolist() == pytest.approx([0, 11 / 3, 4, 5])
    assert table.at([0, 3, 3.8]) == pytest.approx([3 / 14, 3 / 5, 1 / 0.6])


def test_one_delta_worked_by_hand() -> None:
    # Samples 2, 10 and delta 3. At 0: one ends, 2 + 3 spent. At 1: one ends, 1 + 3 spent.
    # At 2: none ends. At 7: the last ends, 3 spent. At 8: 2 spent.
    table = gittins_table([2, 10], delta=3)
    assert table.at([0, 1, 2, 7, 8, 10]).tolist() == [1 / 5, 1 / 4, 0, 1 / 3, 1 / 2, 0]


@settings(max_examples=300)
@given(SAMPLES, st.floats(0, 45))
def test_the_exact_index_is_the_best_over_all_deltas(service: list[int], age: float) -> None:
    if min((abs(age - s) for s in service), default=1.0) < 1e-6:
        age = float(round(age))
    assert gittins_table(service).at([age])[0] == pytest.approx(best_delta(service, age))


@settings(max_examples=300)
@given(SAMPLES, st.integers(0, 90), st.integers(1, 90))
def test_the_fixed_index_is_the_definition(service: list[int], age2: int, delta2: int) -> None:
    age, delta = age2 / 2, delta2 / 2
    expected = by_definition(service, age, [delta]) if age < max(service) else 0.0
    assert gittins_table(service, delta).at([age])[0] == pytest.approx(expected)


@given(SAMPLES, st.integers(1, 20), st.lists(st.integers(0, 45), min_size=1, max_size=9))
def test_no_fixed_delta_beats_the_exact_index(
    service: list[int], delta: int, ages: list[int]
) -> None:
    exact, fixed = gittins_table(service), gittins_table(service, delta)
    assert bool((exact.at(ages) >= fixed.at(ages) - 1e-12).all())


@given(SAMPLES, st.lists(st.floats(0, 45), min_size=1, max_size=9))
def test_one_age_reads_as_many(service: list[int], ages: list[float]) -> None:
    for table in (gittins_table(service), gittins_table(service, 3.0)):
        assert [table.at_one(age) for age in ages] == table.at(ages).tolist()


def test_memoryless_service_has_a_flat_index() -> None:
    mean = 50.0
    draws = np.random.default_rng(3).exponential(mean, 200_000)
    index = gittins_table(draws, delta=20.0).at([0, 20, 60, 100])
    assert index == pytest.approx([1 / mean] * 4, rel=0.02)


def test_a_long_history_gives_a_table_of_linear_size() -> None:
    draws = np.random.default_rng(4).lognormal(8, 2, 100_000)
    table = gittins_table(draws)
    assert draws.size < table.start.size <= 2 * draws.size + 2
    assert bool((np.diff(table.start) >= 0).all())


@pytest.mark.parametrize(
    ("service", "delta"),
    [([], None), ([0.0], None), ([-1.0], None), ([float("nan")], None), ([1.0], 0.0)],
)
def test_unusable_input_is_refused(service: list[float], delta: float | None) -> None:
    with pytest.raises(ValueError, match=r"service|sample|delta"):
        gittins_table(service, delta)


def test_one_point_has_the_index_of_shortest_remaining_time() -> None:
    lengths = np.repeat([[100.0], [50.0], [7.0]], 20, axis=1)
    index = quantile_index(lengths, np.zeros(3), np.array([40.0, 60.0, 0.0]), 2.0)
    assert index.tolist() == pytest.approx([1 / 60, np.inf, 1 / 7])


def test_of_one_distribution_the_index_is_that_of_its_samples() -> None:
    # Uniform: the hazard rises, so the best is to run on to the end.
    samples = np.linspace(0.0, 1000.0, 20_001)[1:]
    quantiles = np.quantile(samples, np.arange(20) / 20)[None]
    tail = np.array([samples[samples > 950.0].mean() / 950.0 - 1.0])
    table = gittins_table(samples)
    for age in (0.0, 100.0, 480.0, 900.0):
        index = quantile_index(quantiles, tail, np.array([age]), 2.0)
        assert index[0] == pytest.approx(table.at_one(age), rel=0.02)


def test_an_index_that_falls_is_held_to_the_next_quantile() -> None:
    lengths = np.geomspace(1.0, 1e4, 20)[None]
    ages = np.linspace(lengths[0, 10], lengths[0, 11] * 0.999, 5)
    index = [quantile_index(lengths, np.ones(1), np.array([age]), 2.0)[0] for age in ages]
    later = quantile_index(lengths, np.ones(1), lengths[:, 12], 2.0)[0]
    assert min(index) >= index[0] > later > 0.0


def test_in_the_tail_the_index_falls_by_steps() -> None:
    lengths = np.repeat([[100.0]], 20, axis=1)
    ages = np.array([100.0, 190.0, 210.0, 410.0])
    index = [quantile_index(lengths, np.ones(1), np.array([age]), 2.0)[0] for age in ages]
    assert index == pytest.approx([1 / 100, 1 / 100, 1 / 200, 1 / 400])
