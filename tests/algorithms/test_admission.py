"""Admission by count against the plain loop."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.algorithms.admission import admitted


def test_whoever_does_not_fit_is_passed_over() -> None:
    assert admitted([4, 3, 2, 1, 1], 6).tolist() == [True, False, True, False, False]
    assert admitted([8, 1], 4).tolist() == [False, True]


def test_strictly_the_first_that_does_not_fit_ends_it() -> None:
    assert admitted([4, 3, 2, 1], 6, strict=True).tolist() == [True, False, False, False]


def test_nobody_and_nonsense() -> None:
    assert admitted([], 3).tolist() == []
    with pytest.raises(ValueError, match="none negative"):
        admitted([-1], 3)


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(0, 40), st.booleans())
@settings(max_examples=200, deadline=None)
def test_it_admits_whom_the_plain_loop_admits(sizes: list[int], pool: int, strict: bool) -> None:
    taken, left, closed = [], pool, False
    for size in sizes:
        fits = size <= left and not closed
        taken.append(fits)
        left -= size if fits else 0
        closed = closed or (strict and not fits)
    assert admitted(np.array(sizes, np.int64), pool, strict=strict).tolist() == taken
