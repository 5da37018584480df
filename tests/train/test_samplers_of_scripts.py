"""What samplers draw is what is trained on: all of it, nothing else, and each draw by itself."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    WeightedRandomSampler,
)

from dovetail.train import Job
from dovetail.train.data.samples import number_repeats, sample_of

COUNT = 40


class Marked(Dataset[Any]):
    """Samples that draw at random, and that cannot be copied."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return index, random.random() + float(torch.rand(()))

    def __deepcopy__(self, memo: object) -> Any:
        raise AssertionError("a data set is not copied")


class Backwards(SequentialSampler):
    """A sampler with an order of its own."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(COUNT - 1, -1, -1))


def drawn(sampler: Sampler[int], *, passes: int = 1, loaders: int = 0) -> list[tuple[int, float]]:
    """Returns the samples trained on, and what they drew at random."""
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    loader = DataLoader(Marked(), batch_size=8, sampler=sampler, num_workers=loaders)
    job = Job(model, optimizer, data=loader, epochs=passes, environment={})
    found = []
    for index, value in job.batches():
        found += list(zip(index.tolist(), value.tolist(), strict=True))
        job.backward(model(torch.ones(1, 1)).sum())
        job.step()
    return found


def test_an_order_of_ones_own_is_kept() -> None:
    assert [i for i, _ in drawn(Backwards(range(COUNT)))] == list(range(COUNT - 1, -1, -1))


@pytest.mark.parametrize("kind", [SequentialSampler, RandomSampler])
def test_a_sampler_of_a_part_draws_that_part(kind: Any) -> None:
    assert sorted(i for i, _ in drawn(kind(range(10)))) == list(range(10))
    assert sorted(i for i, _ in drawn(kind(range(COUNT)))) == list(range(COUNT))


def test_a_sample_that_is_drawn_again_is_cut_and_turned_otherwise() -> None:
    """Few samples of a rare class are drawn often: all alike they would be learned by heart."""
    weights = [1.0, 1.0] + [0.0] * (COUNT - 2)
    alone = drawn(WeightedRandomSampler(weights, 24), passes=2)
    assert {i for i, _ in alone} == {0, 1}
    assert len({value for _, value in alone}) == 48
    assert drawn(WeightedRandomSampler(weights, 24), passes=2, loaders=2) == alone


def test_a_sampler_that_knows_the_data_does_not_copy_them() -> None:
    data = Marked()
    sampler = RandomSampler(data, replacement=True, num_samples=16)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = nn.Linear(1, 1)
    job = Job(model, torch.optim.SGD(model.parameters()), data=loader, environment={})
    assert len(next(job.batches())[0]) == 8


@given(st.lists(st.integers(-5, 5) | st.integers(-(1 << 38), 1 << 38), max_size=30))
def test_draws_that_were_told_apart_are_those_samples_each_once(numbers: list[int]) -> None:
    draws = np.array(numbers, dtype=np.int64)
    apart = number_repeats(draws)
    assert len(set(apart.tolist())) == len(numbers)
    samples, times = sample_of(apart)
    assert samples.tolist() == numbers
    assert times.tolist() == [numbers[:i].count(n) for i, n in enumerate(numbers)]
