"""Max-Min shares against the plain loop that hands out one GPU at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.algorithms.water_filling import water_filling


def one_gpu_at_a_time(caps: list[int], pool_gpus: int) -> list[int]:
    shares = [0] * len(caps)
    for _ in range(pool_gpus):
        thirsty = [j for j in range(len(caps)) if shares[j] < caps[j]]
        if not thirsty:
            break
        shares[min(thirsty, key=lambda j: (shares[j], j))] += 1
    return shares


@pytest.mark.parametrize(
    ("caps", "pool_gpus", "shares"),
    [
        ([4, 4, 4], 8, [3, 3, 2]),
        ([1, 8, 8], 8, [1, 4, 3]),
        ([2, 1, 9], 100, [2, 1, 9]),
        ([5, 5, 5, 5], 2, [1, 1, 0, 0]),
        ([0, 3, 0, 3], 1, [0, 1, 0, 0]),
        ([3, 3], 0, [0, 0]),
        ([], 4, []),
    ],
)
def test_shares_worked_by_hand(caps: list[int], pool_gpus: int, shares: list[int]) -> None:
    assert water_filling(caps, pool_gpus).tolist() == shares


@settings(max_examples=400)
@given(st.lists(st.integers(0, 9), max_size=9), st.integers(0, 40))
def test_shares_equal_the_plain_loop(caps: list[int], pool_gpus: int) -> None:
    assert water_filling(caps, pool_gpus).tolist() == one_gpu_at_a_time(caps, pool_gpus)


def test_a_large_crowd_is_poured_exactly() -> None:
    caps = np.random.default_rng(7).integers(0, 65, 100_000)
    shares = water_filling(caps, 1_000_003)
    assert int(shares.sum()) == 1_000_003
    assert bool((shares <= caps).all())
    below_cap = shares[shares < caps]
    assert int(shares.max()) - int(below_cap.min()) <= 1


@pytest.mark.parametrize(("caps", "pool_gpus"), [([-1, 2], 4), ([1, 2], -4)])
def test_negative_numbers_are_refused(caps: list[int], pool_gpus: int) -> None:
    with pytest.raises(ValueError, match="none negative"):
        water_filling(caps, pool_gpus)
