"""The integer split of a batch: the worked example, brute force, and what must always hold."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.algorithms.sample_split import Line, real_split, split

EXAMPLE = [(0.2, 0.1), (0.2, 0.1), (0.2, 0.3)]
"""ALGORITHMS section 8, number 7."""

seconds = st.integers(0, 40).map(lambda x: x / 8)
slopes = st.integers(1, 24).map(lambda x: x / 8)
workers_of = st.lists(st.tuples(seconds, slopes), min_size=1, max_size=4)


def slowest_s(workers: list[Line], samples: tuple[int, ...]) -> float:
    return max(a + b * n for (a, b), n in zip(workers, samples, strict=True))


def every_split(count: int, batch: int) -> list[tuple[int, ...]]:
    """Returns all ways to write a batch as so many counts of at least 1."""
    ends = ((0, *cuts, batch) for cuts in combinations(range(1, batch), count - 1))
    return [tuple(b - a for a, b in pairwise(e)) for e in ends]


def test_the_worked_example() -> None:
    done_s, shares = real_split(EXAMPLE, 24)
    assert done_s == pytest.approx(1.2286, abs=5e-5)
    assert shares == pytest.approx((10.286, 10.286, 3.429), abs=5e-4)
    samples = split(EXAMPLE, 24)
    assert samples == (11, 10, 3)
    assert slowest_s(EXAMPLE, samples) == pytest.approx(1.3)
    assert slowest_s(EXAMPLE, (8, 8, 8)) == pytest.approx(2.6)


def test_ties_go_to_the_lower_rank() -> None:
    assert split([(0.0, 1.0)] * 4, 6) == (2, 2, 1, 1)


def test_a_worker_slower_than_all_others_keeps_one_sample() -> None:
    assert split([(0.0, 1.0), (50.0, 1.0), (0.0, 1.0)], 21) == (10, 1, 10)
    assert real_split([(0.0, 1.0), (50.0, 1.0)], 20) == (20.0, (20.0, 0.0))


@given(workers_of, st.integers(0, 8))
@settings(max_examples=150)
def test_no_split_is_faster(workers: list[Line], more: int) -> None:
    batch = len(workers) + more
    samples = split(workers, batch)
    assert sum(samples) == batch
    assert min(samples) >= 1
    best = min(slowest_s(workers, other) for other in every_split(len(workers), batch))
    assert slowest_s(workers, samples) == best


@given(st.lists(st.tuples(seconds, slopes), min_size=1, max_size=12), st.integers(0, 400))
@settings(max_examples=60)
def test_the_jump_to_the_real_solution_changes_nothing(workers: list[Line], more: int) -> None:
    batch = len(workers) + more
    done = sorted((a + b * n, w) for w, (a, b) in enumerate(workers) for n in range(2, more + 2))
    slow = [w for _, w in done[:more]]
    assert split(workers, batch) == tuple(1 + slow.count(w) for w in range(len(workers)))


def test_rounding_cannot_hand_out_too_many() -> None:
    workers = [(1e6, 1e-12), (1e6, 3e-12), (1e6, 2e-12)]
    samples = split(workers, 1000)
    assert sum(samples) == 1000


def test_hundreds_of_workers_get_hundreds_of_thousands_of_samples() -> None:
    workers = [(0.01 + 0.001 * (w % 7), 1e-4 * (1 + w % 5)) for w in range(256)]
    samples = split(workers, 400_000)
    assert sum(samples) == 400_000
    done_s, _ = real_split(workers, 400_000)
    slope = max(b for _, b in workers)
    assert done_s <= slowest_s(workers, samples) <= done_s + slope


def test_what_cannot_be_split_is_refused() -> None:
    with pytest.raises(ValueError, match="2 samples cannot be split over 3"):
        split(EXAMPLE, 2)
    with pytest.raises(ValueError, match="some time for a sample"):
        split([(1.0, 0.0)], 4)
