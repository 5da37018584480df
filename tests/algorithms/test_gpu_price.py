"""GPUs sold at one price: a worked example, and what the rule promises."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.algorithms.arrays import Floats
from dovetail.algorithms.gpu_price import hull_jumps, sell
from dovetail.algorithms.gpu_price_compiled import best_step
from property_size import examples

NO = -np.inf


def rows_of(*rows: list[float]) -> Floats:
    return np.array(rows, np.float64)


def test_the_next_gpus_go_where_each_gains_most() -> None:
    # Gains: 5, 3, 1 for the first buyer; 4, 4 (a jump of two at 4 each) for the second.
    values = rows_of([0, 5, 8, 9], [0, 4, 8, 8])
    assert sell(values, 3).gpus.tolist() == [1, 2]
    assert sell(values, 3).price == 3
    assert sell(values, 4).gpus.tolist() == [2, 2]
    assert sell(values, 4).price == 1


def test_a_jump_may_have_any_size() -> None:
    # Nothing from one to three GPUs, 12 from four: 3 for each, more than the 2 of the other.
    values = rows_of([0, NO, NO, NO, 12], [0, 2, 4, 6, 8])
    assert sell(values, 4).gpus.tolist() == [4, 0]
    assert sell(values, 3).gpus.tolist() == [0, 3]  # the jump of four does not fit
    assert sell(values, 3).price == 3


@pytest.mark.parametrize("seed", range(20))
def test_a_jump_is_ruled_out_only_if_it_gains_less(seed: int) -> None:
    # Sums of a tenth: gains for each GPU are equal but for rounding, or a little apart.
    rng = np.random.default_rng(seed)
    row = np.concatenate([[0.0], np.cumsum(np.full(40, 0.1)) * rng.choice([1.0, 1.0 + 1e-15], 40)])
    gains = [(float(row[n] / n), n) for n in range(1, len(row))]
    slope, step = max(gains)
    assert best_step(row, 0, len(row)) == (step, slope)


def test_gpus_that_nobody_gains_from_are_free() -> None:
    sale = sell(rows_of([0, 1, 1, 1], [0, NO, NO, NO]), 3)
    assert sale.gpus.tolist() == [1, 0]
    assert sale.price == 0


def test_nobody_buys_without_gpus_or_buyers() -> None:
    assert sell(rows_of([0, 1]), 0).gpus.tolist() == [0]
    assert sell(np.zeros((0, 5)), 4).gpus.tolist() == []
    assert sell(np.zeros((3, 1)), 4).gpus.tolist() == [0, 0, 0]


def test_of_equal_gains_the_earlier_buyer_is_first() -> None:
    assert sell(rows_of([0, 2], [0, 2], [0, 2]), 2).gpus.tolist() == [1, 1, 0]


def market(seed: int) -> tuple[Floats, int]:
    """Returns values with ranges as jobs have them, many of them equal, and GPUs to sell."""
    rng = np.random.default_rng(seed)
    buyers, width = int(rng.integers(1, 5)), int(rng.integers(2, 8))
    values = np.cumsum(rng.integers(0, 4, (buyers, width)).astype(float), axis=1)
    if seed % 2:
        values += rng.uniform(0, 3, values.shape)
    low, cap = np.sort(rng.integers(1, width, (2, buyers)), axis=0)
    counts = np.arange(width)
    usable = (counts >= low[:, None]) & (counts <= cap[:, None])
    values = np.where(usable, np.maximum.accumulate(values, axis=1), NO)
    values[:, 0] = 0
    return values, int(rng.integers(0, 12))


def best_sum(values: Floats, gpus: int) -> float:
    """Returns the largest sum of values, all sales tried."""
    counts = itertools.product(range(values.shape[1]), repeat=len(values))
    return max(
        float(values[np.arange(len(values)), list(sold)].sum())
        for sold in counts
        if sum(sold) <= gpus
    )


@examples(60)
@given(seed=st.integers(0, 2**32))
def test_no_more_is_sold_than_there_is_and_to_nobody_who_cannot_use_it(seed: int) -> None:
    values, gpus = market(seed)
    sale = sell(values, gpus)
    assert sale.gpus.sum() <= gpus
    assert np.isfinite(values[np.arange(len(values)), sale.gpus]).all()
    assert sale.price >= 0
    again = sell(values, gpus)
    assert again.gpus.tolist() == sale.gpus.tolist()


def hull(row: Floats) -> Floats:
    """Returns the least concave function above a row, by all its chords."""
    known = np.flatnonzero(np.isfinite(row)).tolist()
    top = np.full(len(row), NO)
    for n in range(len(row)):
        for a, b in itertools.product(known, known):
            if a <= n <= b:
                part = (n - a) / (b - a) if b > a else 0.0
                top[n] = max(top[n], row[a] + part * (row[b] - row[a]))
    # More GPUs than a buyer can use are worth what the most are.
    return np.maximum.accumulate(top)


@examples(60)
@given(seed=st.integers(0, 2**32))
def test_sales_are_optimal_on_concave_rows(seed: int) -> None:
    values, gpus = market(seed)
    concave = np.stack([hull(row) for row in values])
    sale = sell(concave, gpus)
    made = float(concave[np.arange(len(values)), sale.gpus].sum())
    assert made == pytest.approx(best_sum(concave, gpus))


@examples(60)
@given(seed=st.integers(0, 2**32))
def test_a_sale_lacks_at_most_the_jump_that_did_not_fit(seed: int) -> None:
    values, gpus = market(seed)
    sale = sell(values, gpus)
    made = float(values[np.arange(len(values)), sale.gpus].sum())
    jumps = hull_jumps(values)
    largest = int(jumps.size.max(initial=0))
    assert made <= best_sum(values, gpus) + 1e-9
    # Fox (1966): on the hull the greedy sale is optimal but for a part of one jump.
    assert made >= best_sum(values, gpus) - sale.price * max(largest - 1, 0) - 1e-9


@examples(60)
@given(seed=st.integers(0, 2**32))
def test_the_price_is_the_first_slope_that_did_not_fit(seed: int) -> None:
    values, gpus = market(seed)
    jumps = hull_jumps(values)
    order = np.argsort(-jumps.slope, kind="stable")
    fits = np.cumsum(jumps.size[order]) <= gpus
    first = int(np.argmin(fits)) if not fits.all() else -1
    expected = 0.0 if first < 0 else float(jumps.slope[order[first]])
    assert sell(values, gpus).price == expected


@examples(60)
@given(seed=st.integers(0, 2**32))
def test_slopes_of_a_buyer_never_rise_and_its_jumps_end_on_usable_numbers(seed: int) -> None:
    values, _ = market(seed)
    jumps = hull_jumps(values)
    for buyer in range(len(values)):
        mine = jumps.buyer == buyer
        assert (np.diff(jumps.slope[mine]) <= 0).all()
        assert np.isfinite(values[buyer, np.cumsum(jumps.size[mine])]).all()
