"""Assigns samples to iterations and to workers: pure functions of integers.

The whole state of reading the data is one number, the samples consumed so far (`position`).
However many workers there are and however often they change, each iteration takes the next
samples of the same order. So each sample is used once per pass over the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
SHUFFLED_MAX = 1 << 32
"""The most samples that can be shuffled: their order is kept in memory, then 32 GiB."""
REPEAT_OFFSET = 1 << 40
"""Added to the number of a sample for each time that it was drawn before in a pass."""


@lru_cache(maxsize=2)
def permutation(seed: int, epoch: int, length: int) -> Indices:
    """Returns the order of the samples in one pass, drawn from the seed and the pass."""
    return np.random.default_rng([seed, epoch]).permutation(length).astype(np.int64)


def number_repeats(drawn: Indices) -> Indices:
    """Makes repeated samples distinct: each repeat is `REPEAT_OFFSET` above the one before.

    So each repeat gets random numbers of its own for its augmentation (crops, flips).
    """
    # Sorting brings repeats of a sample together. A repeat's number is its distance from the first
    # of its run.
    order = np.argsort(drawn, kind="stable")
    places = np.arange(len(drawn))
    begins = np.diff(drawn[order], prepend=np.nan) != 0  # of draws of the same sample
    numbers = drawn.copy()
    numbers[order] += REPEAT_OFFSET * (places - np.maximum.accumulate(np.where(begins, places, 0)))
    return numbers


def sample_of(number: Indices) -> tuple[Indices, Indices]:
    """Splits numbers from `number_repeats` into samples, and how often each was drawn before."""
    times = (number + REPEAT_OFFSET // 2) // REPEAT_OFFSET
    return number - REPEAT_OFFSET * times, times


@dataclass(frozen=True, slots=True)
class SampleOrder:
    """The order of `length` samples over `epochs` passes, in global batches.

    The last batch of a pass may be smaller, or is dropped with `drop_last`. With `steps`, training
    ends after that many iterations instead. `draw` returns the samples of a pass, for a sampler.
    """

    length: int
    epochs: int
    batch_size: int
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    steps: int | None = None
    draw: Callable[[int], Indices] | None = None

    def __post_init__(self) -> None:
        if min(self.batch_size, self.epochs, 1 if self.steps is None else self.steps) < 1:
            raise ValueError("batch_size, epochs and steps must be at least 1")
        if self.shuffle and self.draw is None and self.length > SHUFFLED_MAX:
            raise ValueError(
                f"{self.length:,} samples cannot be shuffled (at most {SHUFFLED_MAX:,}): pass"
                " shuffle=False, or a sampler that draws some of them in each pass"
            )
        if self.per_epoch < 1:
            raise ValueError(f"{self.length} samples do not fill a batch of {self.batch_size}")

    @property
    def per_epoch(self) -> int:
        """Returns the samples used in one pass."""
        return self.length - (self.length % self.batch_size if self.drop_last else 0)

    @property
    def total(self) -> int:
        """Returns the samples used in all passes."""
        if self.steps is None:
            return self.per_epoch * self.epochs
        passes, rest = divmod(self.steps, -(-self.per_epoch // self.batch_size))
        return passes * self.per_epoch + min(rest * self.batch_size, self.per_epoch)

    def identity(self) -> dict[str, int]:
        """Returns what must match on resume, or samples would be used twice."""
        return {"seed": self.seed, "samples": self.per_epoch, "shuffled": int(self.shuffle)}

    def batch_at(self, position: int, batch_size: int = 0) -> Indices:
        """Returns the samples of the iteration that starts at a position."""
        epoch, offset = divmod(position, self.per_epoch)
        left = min(self.per_epoch - offset, self.total - position)
        end = offset + min(batch_size or self.batch_size, left)
        if self.draw is not None:
            return self.draw(epoch)[offset:end]
        if self.shuffle:
            return permutation(self.seed, epoch, self.length)[offset:end]
        return np.arange(offset, end)


def split(count: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Splits `count` in proportion to weights (largest remainder).

    Weights that sum to `count` are returned as they are. Raises ValueError for negative weights, or
    none above 0.
    """
    whole = sum(weights)
    if whole <= 0 or min(weights) < 0:
        raise ValueError("weights must be at least 0, and not all 0")
    shares = [count * w // whole for w in weights]
    # The largest remainders get the samples that are left; ties go to the lowest rank.
    rest = sorted(range(len(weights)), key=lambda i: (-(count * weights[i] % whole), i))
    for i in rest[: count - sum(shares)]:
        shares[i] += 1
    return tuple(shares)


def merge_small_shares(shares: Sequence[int], least: int) -> tuple[int, ...]:
    """Merges shares below `least` into others, until each is 0 or at least `least`, if possible."""
    merged = list(shares)
    while True:
        some = [i for i, n in enumerate(merged) if n]
        few = [i for i in some if merged[i] < least]
        if not few or len(some) == 1:
            return tuple(merged)
        # The last small share joins the smallest other one, so that shares stay as even as
        # possible.
        gives = few[-1]
        takes = min((i for i in some if i != gives), key=merged.__getitem__)
        merged[takes] += merged[gives]
        merged[gives] = 0


def weights_without_joiners(weights: Sequence[int], learning: Sequence[bool]) -> list[int]:
    """Returns the weights with 0 for workers that are catching up; equal ones if none is left."""
    present = [0 if learns else w for w, learns in zip(weights, learning, strict=True)]
    return present if sum(present) else [0 if learns else 1 for learns in learning]


@dataclass(frozen=True, slots=True)
class BatchSplit:
    """How the workers of a generation split an iteration, in rank order.

    `samples` are weights of the workers, all equal if empty; `steps` is the number of micro-batches
    of each; `batch_size` the samples of an iteration. No micro-batch is smaller than `at_least`
    unless there are fewer samples.
    """

    batch_size: int
    members: int = 1
    steps: int = 1
    samples: tuple[int, ...] = ()
    at_least: int = 1

    def __post_init__(self) -> None:
        if self.samples and len(self.samples) != self.members:
            raise ValueError(f"{len(self.samples)} shares of samples for {self.members} members")
        if self.steps < 1 or self.batch_size < 1:
            raise ValueError("steps and batch_size must be at least 1")

    def shares(self, count: int, learning: Sequence[bool] = ()) -> tuple[int, ...]:
        """Returns the samples of each worker out of `count`; 0 for workers that are catching up."""
        weights = self.samples or (1,) * self.members
        shares = split(
            count, weights_without_joiners(weights, learning) if any(learning) else weights
        )
        return merge_small_shares(shares, self.at_least)

    def micro_batches(
        self,
        batch: Indices,
        rank: int,
        learning: Sequence[bool] = (),
        *,
        at_most: int = 0,
        in_pieces: bool = False,
    ) -> list[Indices]:
        """Returns the micro-batches of one worker, each of `at_most` samples (0: no limit).

        While some workers catch up, the others compute their samples too. By default micro-batches
        grow; with `in_pieces` they keep the size they will have afterwards, where memory is short.
        """
        whole, shares = self.shares(len(batch)), self.shares(len(batch), learning)
        begin = sum(shares[:rank])
        mine = batch[begin : begin + shares[rank]]
        steps = self.steps
        if in_pieces and shares[rank] > whole[rank]:
            largest = max(-(-w // self.steps) for w in whole)
            steps = -(-shares[rank] // largest)
        if at_most:
            steps = max(steps, -(-len(mine) // at_most))
        parts = max(1, min(steps, len(mine) // self.at_least))
        return [part for part in np.array_split(mine, parts) if len(part)]
