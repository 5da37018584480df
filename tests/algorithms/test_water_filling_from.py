"""Water filling from least shares against handing out one GPU at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.algorithms.water_filling import water_filling, water_filling_from


def one_at_a_time(low: list[int], caps: list[int], pool: int) -> list[int]:
    shares = [0] * len(low)
    for j, least in enumerate(low):
        if least <= pool:
            shares[j] = least
            pool -= least
    while pool:
        open_to = [j for j in range(len(low)) if 0 < shares[j] < caps[j]]
        if not open_to:
            break
        poorest = min(open_to, key=lambda j: (shares[j], j))
        shares[poorest] += 1
        pool -= 1
    return shares


@given(
    jobs=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6)), max_size=8),
    pool=st.integers(0, 50),
)
def test_the_poorest_gets_the_next_gpu(jobs: list[tuple[int, int]], pool: int) -> None:
    low = [least for least, _ in jobs]
    caps = [least + more for least, more in jobs]
    shares = water_filling_from(np.array(low, np.int64), np.array(caps, np.int64), pool)
    assert shares.tolist() == one_at_a_time(low, caps, pool)


def test_from_one_gpu_each_it_is_plain_water_filling() -> None:
    caps = np.array([1, 9, 4, 4])
    assert water_filling_from(np.ones(4, np.int64), caps, 15).tolist() == [1, 6, 4, 4]
    assert water_filling(caps, 15).tolist() == [1, 6, 4, 4]


def test_a_least_above_the_greatest_is_refused() -> None:
    with pytest.raises(ValueError, match="least"):
        water_filling_from(np.array([3]), np.array([2]), 5)
