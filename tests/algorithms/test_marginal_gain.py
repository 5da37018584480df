"""Marginal gains against the plain loop that hands out one GPU at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.algorithms.marginal_gain import marginal_gain


def one_at_a_time(gains: list[list[float]], pool: int) -> list[int]:
    """Returns the shares by looking at every row for every GPU."""
    shares = [0] * len(gains)
    for _ in range(pool):
        best, most = -1, 0.0
        for row, own in enumerate(gains):
            if shares[row] < len(own) and own[shares[row]] > most:
                best, most = row, own[shares[row]]
        if best < 0:
            break
        shares[best] += 1
    return shares


def test_each_gpu_goes_where_it_brings_most() -> None:
    # 9 to row 1, 5 to row 0, 4 to row 1, 3 to row 0; row 0's third brings nothing.
    gains = np.array([[5.0, 3.0, 0.0], [9.0, 4.0, 2.0]])
    shares = [marginal_gain(gains, pool).tolist() for pool in range(7)]
    assert shares == [[0, 0], [0, 1], [1, 1], [1, 2], [2, 2], [2, 3], [2, 3]]


def test_a_gain_behind_a_small_one_waits_for_it_and_then_comes_at_once() -> None:
    # Row 0 gains 1 and then 10: row 1 has its 3 and its 2 first.
    gains = np.array([[1.0, 10.0], [3.0, 2.0]])
    shares = [marginal_gain(gains, pool).tolist() for pool in range(5)]
    assert shares == [[0, 0], [0, 1], [0, 2], [1, 2], [2, 2]]


def test_nothing_is_given_beyond_a_step_that_brings_nothing() -> None:
    assert marginal_gain(np.array([[0.0, 7.0], [-1.0, 7.0]]), 4).tolist() == [0, 0]


def test_ties_go_to_the_earlier_row() -> None:
    gains = np.array([[2.0, 2.0], [2.0, 2.0]])
    shares = [marginal_gain(gains, pool).tolist() for pool in range(5)]
    assert shares == [[0, 0], [1, 0], [2, 0], [2, 1], [2, 2]]


def test_rounding_errors_decide_nothing() -> None:
    gains = np.array([[0.1 + 0.2], [0.3], [0.3 * (1 + 1e-6)]])
    assert marginal_gain(gains[[1, 0]], 1).tolist() == [1, 0]
    assert marginal_gain(gains, 2).tolist() == [1, 0, 1]


def test_no_rows_and_a_negative_pool() -> None:
    assert marginal_gain(np.empty((0, 3)), 5).tolist() == []
    with pytest.raises(ValueError, match="cannot be negative"):
        marginal_gain(np.ones((1, 1)), -1)


@given(
    gains=st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.lists(st.integers(-1, 4).map(float), min_size=width, max_size=width),
            min_size=1,
            max_size=6,
        )
    ),
    pool=st.integers(0, 20),
)
@settings(max_examples=200, deadline=None)
def test_the_shares_are_those_of_the_plain_loop(gains: list[list[float]], pool: int) -> None:
    assert marginal_gain(np.array(gains), pool).tolist() == one_at_a_time(gains, pool)
