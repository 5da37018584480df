"""Who trains on which samples: every sample once, whoever shares them in whatever way."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.train.data.samples import (
    BatchSplit,
    SampleOrder,
    merge_small_shares,
    split,
)

FEW = settings(max_examples=60, deadline=None)


@FEW
@given(st.integers(0, 500), st.lists(st.integers(0, 50), min_size=1).filter(sum))
def test_shares_add_up_and_are_within_one_of_proportion(count: int, weights: list[int]) -> None:
    shares = split(count, weights)
    assert sum(shares) == count
    for share, weight in zip(shares, weights, strict=True):
        assert abs(share - count * weight / sum(weights)) < 1


@FEW
@given(st.lists(st.integers(0, 50), min_size=1).filter(sum))
def test_weights_that_sum_to_the_count_are_the_shares(weights: list[int]) -> None:
    assert split(sum(weights), weights) == tuple(weights)


@FEW
@given(
    length=st.integers(1, 60),
    epochs=st.integers(1, 3),
    batch_size=st.integers(1, 70),
    draws=st.randoms(use_true_random=False),
)
def test_each_sample_is_used_once_a_pass_whoever_trains(
    length: int, epochs: int, batch_size: int, draws: object
) -> None:
    """Members, shares, steps and even the batch size change from iteration to iteration."""
    order = SampleOrder(length, epochs, batch_size, seed=3)
    used: list[int] = []
    position = 0
    while position < order.total:
        members = draws.randint(1, 5)  # type: ignore[attr-defined]
        weights = tuple(draws.randint(0, 4) for _ in range(members))  # type: ignore[attr-defined]
        split = BatchSplit(
            draws.randint(1, 40),  # type: ignore[attr-defined]
            members,
            draws.randint(1, 4),  # type: ignore[attr-defined]
            weights if sum(weights) else (),
        )
        learning = [draws.random() < 0.3 for _ in range(members - 1)] + [False]  # type: ignore[attr-defined]
        batch = order.batch_at(position, split.batch_size)
        for rank in range(members):
            mine = split.micro_batches(batch, rank, learning)
            assert all(len(m) > 0 for m in mine)
            if learning[rank]:
                assert mine == []
            used += [int(i) for m in mine for i in m]
        position += len(batch)
    assert position == order.total
    assert sorted(used) == sorted(list(range(length)) * epochs)


def test_a_pass_ends_with_what_is_left_or_without_it() -> None:
    assert SampleOrder(10, 1, 4).total == 10
    assert [len(SampleOrder(10, 2, 4).batch_at(p)) for p in (0, 4, 8, 10, 18)] == [4, 4, 2, 4, 2]
    assert SampleOrder(10, 2, 4, drop_last=True).total == 16


def test_passes_have_orders_of_their_own_and_seeds_too() -> None:
    first, second = SampleOrder(50, 2, 50).batch_at(0), SampleOrder(50, 2, 50).batch_at(50)
    other = SampleOrder(50, 2, 50, seed=1).batch_at(0)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, other)
    assert np.array_equal(SampleOrder(9, 1, 4, shuffle=False).batch_at(4), [4, 5, 6, 7])


def test_while_some_learn_the_others_compute_their_samples_at_once() -> None:
    batch = np.arange(60)
    split = BatchSplit(60, members=3)
    alone = split.micro_batches(batch, 0, (False, True, True))
    assert [len(m) for m in alone] == [60]
    asked = split.micro_batches(batch, 0, (False, True, True), at_most=30)
    assert [len(m) for m in asked] == [30, 30]


def test_where_memory_is_short_no_micro_batch_is_larger_than_it_will_be() -> None:
    batch = np.arange(60)
    split = BatchSplit(60, members=3, steps=2)
    assert [len(m) for m in split.micro_batches(batch, 0)] == [10, 10]
    alone = split.micro_batches(batch, 0, (False, True, True), in_pieces=True)
    assert [len(m) for m in alone] == [10] * 6


@FEW
@given(
    count=st.integers(2, 40),
    weights=st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(sum),
    steps=st.integers(1, 6),
    at_most=st.sampled_from([0, 3, 5]),
)
def test_no_worker_is_given_a_single_sample_if_the_model_cannot_train_on_one(
    count: int, weights: list[int], steps: int, at_most: int
) -> None:
    """Batch normalization fails on one, which the last batch of a pass left some workers."""
    split = BatchSplit(16, len(weights), steps, tuple(weights), at_least=2)
    batch = np.arange(count)
    parts = [
        m for rank in range(len(weights)) for m in split.micro_batches(batch, rank, at_most=at_most)
    ]
    assert np.array_equal(np.concatenate(parts), batch)
    assert min(map(len, parts)) >= 2
    assert not at_most or max(map(len, parts)) <= at_most


def test_single_samples_go_to_who_has_least() -> None:
    assert merge_small_shares((1, 1, 1, 1), 2) == (2, 2, 0, 0)
    assert merge_small_shares((8, 1, 3), 2) == (8, 0, 4)
    assert merge_small_shares((0, 1), 2) == (0, 1)


def test_even_shares_put_the_larger_first() -> None:
    assert split(7, (1, 1, 1)) == (3, 2, 2)


@pytest.mark.parametrize("more", [{"members": 2, "samples": (1,)}, {"steps": 0}, {"batch_size": 0}])
def test_splits_that_cannot_be_are_refused(more: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"shares|at least"):
        BatchSplit(**{"batch_size": 4, **more})  # type: ignore[arg-type]
