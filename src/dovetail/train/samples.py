"""Which samples belong to which iteration, and to which worker: a pure function of integers.

The whole state of reading the data is one number, the samples consumed so far (`position`).
However many workers there are and however often they change, iteration after iteration takes the
next samples of the same order, so that each is used once per pass over the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


@lru_cache(maxsize=2)
def permutation(seed: int, epoch: int, length: int) -> Indices:
    """Returns the order of the samples in one pass, drawn from the seed and the pass."""
    return np.random.default_rng([seed, epoch]).permutation(length).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Order:
    """The order of `length` samples over `epochs` passes, in global batches.

    The last batch of a pass holds what is left, or is left out with `drop_last`.
    """

    length: int
    epochs: int
    batch_size: int
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.epochs < 1:
            raise ValueError("batch_size and epochs must be at least 1")
        if self.per_epoch < 1:
            raise ValueError(f"{self.length} samples do not fill a batch of {self.batch_size}")

    @property
    def per_epoch(self) -> int:
        """Returns the samples used in one pass."""
        return self.length - (self.length % self.batch_size if self.drop_last else 0)

    @property
    def total(self) -> int:
        """Returns the samples used in all passes."""
        return self.per_epoch * self.epochs

    def batch_at(self, position: int, batch_size: int = 0) -> Indices:
        """Returns the samples of the iteration that starts at a position."""
        epoch, offset = divmod(position, self.per_epoch)
        end = min(offset + (batch_size or self.batch_size), self.per_epoch)
        if self.shuffle:
            return permutation(self.seed, epoch, self.length)[offset:end]
        return np.arange(offset, end)


def split(count: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Returns how `count` samples are shared out in proportion to weights (largest remainder).

    Weights that sum to the count are the answer themselves.
    """
    whole = sum(weights)
    if whole <= 0 or min(weights) < 0:
        raise ValueError("weights must be at least 0, and not all 0")
    shares = [count * w // whole for w in weights]
    rest = sorted(range(len(weights)), key=lambda i: (-(count * weights[i] % whole), i))
    for i in rest[: count - sum(shares)]:
        shares[i] += 1
    return tuple(shares)


def even(count: int, parts: int) -> tuple[int, ...]:
    """Returns `count` shared out evenly, the larger parts first."""
    return split(count, (1,) * parts)


def present_only(weights: Sequence[int], learning: Sequence[bool]) -> list[int]:
    """Returns the weights of those who do not learn any more; even if all those are 0."""
    present = [0 if learns else w for w, learns in zip(weights, learning, strict=True)]
    return present if sum(present) else [0 if learns else 1 for learns in learning]


@dataclass(frozen=True, slots=True)
class Manner:
    """How the members of a generation share an iteration, in rank order.

    `samples` are weights of the members, all equal if empty; `steps` the micro-batches of each;
    `batch_size` the samples of an iteration.
    """

    batch_size: int
    members: int = 1
    steps: int = 1
    samples: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.samples and len(self.samples) != self.members:
            raise ValueError(f"{len(self.samples)} shares of samples for {self.members} members")
        if self.steps < 1 or self.batch_size < 1:
            raise ValueError("steps and batch_size must be at least 1")

    def micro_batches(
        self, batch: Indices, rank: int, learning: Sequence[bool] = ()
    ) -> list[Indices]:
        """Returns the micro-batches of one member; a learning member is given none yet.

        While some learn, the others take more micro-batches, none larger than it would be
        without: what fitted in memory still fits.
        """
        weights = self.samples or (1,) * self.members
        whole = split(len(batch), weights)
        shares = split(len(batch), present_only(weights, learning)) if any(learning) else whole
        begin = sum(shares[:rank])
        mine = batch[begin : begin + shares[rank]]
        steps = self.steps
        if shares[rank] > whole[rank]:
            largest = max(-(-w // self.steps) for w in whole)
            steps = -(-shares[rank] // largest)
        sizes = even(len(mine), steps)
        ends = np.cumsum((0, *sizes))
        return [mine[a:b] for a, b in pairwise(ends) if b > a]
