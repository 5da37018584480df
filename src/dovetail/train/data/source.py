"""What a script gives as its data: a data set, tensors, or the DataLoader that it had before."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from dovetail.train.data.fingerprint import fingerprint
from dovetail.train.data.loader import PREFETCH, Loader, Source, mixed, seed_all
from dovetail.train.data.samples import Indices, Order, told_apart

Collate = Callable[[list[Any]], Any]
DRAWN_MAX = 1 << 27
"""Samples that a sampler may draw in a pass: they are kept, with their order, in 5 GiB at most."""


@dataclass(frozen=True, slots=True)
class Given:
    """The data of a job and how it is read; `draws` gives the samples of each pass, if not None.

    `prefetch` is how many micro-batches each loader process reads ahead.
    """

    data: Any
    batch_size: int
    shuffle: bool
    drop_last: bool
    loaders: int
    collate: Collate | None
    draws: Draws | None = None
    pin_memory: bool = False
    prefetch: int = PREFETCH

    @classmethod
    def of(
        cls,
        data: Any,
        *,
        batch_size: int | None,
        shuffle: bool,
        drop_last: bool,
        loaders: int,
        collate: Collate | None,
        seed: int,
    ) -> Given:
        """Returns what the arguments of a job say. Raises ValueError."""
        if isinstance(data, DataLoader):
            if batch_size is not None or collate is not None or loaders or drop_last or not shuffle:
                raise ValueError(
                    "a DataLoader says itself how it is read: give batch_size, shuffle, drop_last,"
                    " num_workers and collate_fn to it, and not to the Job"
                )
            return cls._of_loader(data, seed)
        if batch_size is None:
            raise ValueError("say batch_size, that of an iteration of all workers together")
        return cls(data, batch_size, shuffle, drop_last, loaders, collate)

    def fingerprint(self) -> int:
        """Returns a number for the data and what a sampler draws of them, to compare workers by."""
        return fingerprint(self.data, () if self.draws is None else self.draws(0))

    def loader(self, source: Source, device: torch.device) -> Loader:
        """Returns what reads such data, for a model on a device."""
        pins = self.pin_memory and torch.accelerator.is_available()
        return Loader(
            source, self.loaders, prefetch=self.prefetch, pins_for=device if pins else None
        )

    def order(self, length: int, *, seed: int, epochs: int, steps: int | None) -> Order:
        """Returns the order of the samples of such data. Raises ValueError."""
        return Order(
            length if self.draws is None else self.draws.length,
            epochs,
            self.batch_size,
            seed,
            self.shuffle,
            self.drop_last,
            steps,
            self.draws,
        )

    @classmethod
    def _of_loader(cls, loader: DataLoader[Any], seed: int) -> Given:
        if isinstance(loader.dataset, IterableDataset):
            draws, shuffle = None, False  # refused with all other streams
        else:
            draws, shuffle = draws_of(loader, seed)
            if loader.batch_size is None:
                raise ValueError(
                    "a DataLoader with a batch_sampler of its own (or without batches) cannot be"
                    " shared out: give it batch_size, and a sampler for the order"
                )
        return cls(
            loader.dataset,
            loader.batch_size or 1,
            shuffle,
            loader.drop_last,
            loader.num_workers,
            loader.collate_fn,
            draws,
            loader.pin_memory,
            loader.prefetch_factor or PREFETCH,
        )


class Draws:
    """The samples that a sampler draws in each pass, the same on every worker and when resumed.

    Each worker draws all passes from the first on, as the ordinary loop would, so that a sampler
    may have generators or counters of its own.
    """

    def __init__(self, sampler: Iterable[int], data: Any, seed: int) -> None:
        self._pristine, self._data, self._seed = sampler, data, seed
        self._look_at_length()
        self._restart()
        self.length = len(self(0))

    def __call__(self, epoch: int) -> Indices:
        """Returns the indices of a pass."""
        if epoch not in self._drawn:
            if epoch < self._next:
                self._restart()
            while self._next <= epoch:
                self._draw()
        return self._drawn[epoch]

    def _look_at_length(self) -> None:
        """Raises ValueError for a sampler that draws more than can be kept."""
        try:
            count = len(self._pristine)  # type: ignore[arg-type]
        except TypeError:
            return
        if count > DRAWN_MAX:
            raise ValueError(_too_many(f"{count:,}"))

    def _restart(self) -> None:
        # The data that it may know are many, and some cannot be copied at all.
        self._sampler = copy.deepcopy(self._pristine, {id(self._data): self._data})
        self._next = 0
        self._drawn: dict[int, Indices] = {}

    def _draw(self) -> None:
        epoch = self._next
        seed_all(mixed(self._seed, epoch))
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)
        numbers = islice((int(i) for i in self._sampler), DRAWN_MAX + 1)
        drawn = told_apart(np.fromiter(numbers, dtype=np.int64))
        if len(drawn) > DRAWN_MAX:
            raise ValueError(_too_many(f"more than {DRAWN_MAX:,}"))
        if self._drawn and len(drawn) != self.length:
            raise ValueError("a sampler must draw as many samples in each pass")
        self._drawn = {e: d for e, d in self._drawn.items() if e == epoch - 1}
        self._drawn[epoch] = drawn
        self._next = epoch + 1


def _too_many(count: str) -> str:
    return (
        f"the sampler draws {count} samples in a pass, and a Job keeps the order of a pass: have"
        f" it draw at most {DRAWN_MAX:,} (num_samples) and train for more passes (epochs, or steps)"
    )


def draws_of(loader: DataLoader[Any], seed: int) -> tuple[Draws | None, bool]:
    """Returns what a sampler draws, or None and whether it shuffles, which jobs do themselves."""
    sampler: Any = loader.sampler
    if isinstance(sampler, DistributedSampler):
        raise ValueError("leave DistributedSampler out: the Job shares the samples out itself")
    if type(sampler) is SequentialSampler and _is_of_all(sampler, loader.dataset):
        return None, False
    if (
        type(sampler) is RandomSampler
        and not sampler.replacement
        and sampler._num_samples is None
        and _is_of_all(sampler, loader.dataset)
    ):
        return None, True
    return Draws(sampler, loader.dataset, seed), False


def _is_of_all(sampler: SequentialSampler | RandomSampler, data: Any) -> bool:
    """Returns whether a sampler draws all samples, and not the first of them."""
    return sampler.data_source is data or len(sampler.data_source) == len(data)
