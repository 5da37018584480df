"""The `data` argument of a job: a data set, tensors, or the DataLoader the script already had."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sized
from dataclasses import dataclass
from itertools import islice
from typing import cast

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
from dovetail.train.data.loader import (
    PREFETCH,
    BatchLoader,
    Collate,
    SampleReader,
    mix_seeds,
    seed_all,
)
from dovetail.train.data.samples import Indices, SampleOrder, number_repeats

DRAWN_MAX = 1 << 27
"""Samples that a sampler may draw in a pass; they are kept with their order, at most 5 GiB."""


@dataclass(frozen=True, slots=True)
class DataSource:
    """The data of a job and how to read it; the defaults are those of a job's arguments.

    `draws` returns the samples of each pass, if not None. `prefetch` is the number of micro-batches
    that each loader process reads ahead.
    """

    data: object
    batch_size: int | None = None
    shuffle: bool = True
    drop_last: bool = False
    loaders: int = 0
    collate: Collate | None = None
    draws: SamplerDraws | None = None
    pin_memory: bool = False
    prefetch: int = PREFETCH

    def resolve(self, seed: int) -> DataSource:
        """Returns the source with the settings of its DataLoader, if it is one. Raises ValueError.

        `seed` is for the sampler.
        """
        if isinstance(self.data, DataLoader):
            if self != DataSource(self.data):
                raise ValueError(
                    "a DataLoader already specifies how to read its data: pass batch_size, shuffle,"
                    " drop_last, num_workers and collate_fn to it, and not to the Job"
                )
            return self._of_loader(self.data, seed)
        if self.batch_size is None:
            raise ValueError("specify batch_size, the samples of an iteration over all workers")
        return self

    def fingerprint(self) -> int:
        """Returns a checksum of the data and the sampler's first pass, to compare workers."""
        return fingerprint(self.data, () if self.draws is None else self.draws(0))

    def loader(self, source: SampleReader, device: torch.device) -> BatchLoader:
        """Returns a loader for a model on a device."""
        pins = self.pin_memory and torch.accelerator.is_available()
        return BatchLoader(
            source, self.loaders, prefetch=self.prefetch, pins_for=device if pins else None
        )

    def order(self, length: int, *, seed: int, epochs: int, steps: int | None) -> SampleOrder:
        """Returns the order of the samples. Raises ValueError."""
        assert self.batch_size is not None
        return SampleOrder(
            length if self.draws is None else self.draws.length,
            epochs,
            self.batch_size,
            seed,
            self.shuffle,
            self.drop_last,
            steps,
            self.draws,
        )

    @staticmethod
    def _of_loader(loader: DataLoader[object], seed: int) -> DataSource:
        if isinstance(loader.dataset, IterableDataset):
            draws, shuffle = None, False  # `SampleReader` refuses all streams
        else:
            draws, shuffle = sampler_draws(loader, seed)
            if loader.batch_size is None:
                raise ValueError(
                    "a DataLoader with a batch_sampler of its own (or without batches) cannot be"
                    " split among workers: pass batch_size, and a sampler for the order"
                )
        return DataSource(
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


class SamplerDraws:
    """The samples that a sampler draws in each pass, the same on every worker and after a resume.

    Each worker draws all passes from the first on, as a plain loop would: a sampler may have
    generators or counters of its own.
    """

    def __init__(self, sampler: Iterable[int], data: object, seed: int) -> None:
        self._pristine, self._data, self._seed = sampler, data, seed
        self._check_length()
        self._restart()
        self.length = len(self(0))

    def __call__(self, epoch: int) -> Indices:
        """Returns the samples of a pass."""
        if epoch not in self._drawn:
            # A sampler cannot go back, so an earlier pass is drawn again from the first one on.
            if epoch < self._next:
                self._restart()
            while self._next <= epoch:
                self._draw()
        return self._drawn[epoch]

    def _check_length(self) -> None:
        """Raises ValueError for a sampler that draws too many samples to keep."""
        try:
            count = len(self._pristine)  # type: ignore[arg-type]
        except TypeError:
            return
        if count > DRAWN_MAX:
            raise ValueError(_too_many(f"{count:,}"))

    def _restart(self) -> None:
        # Copied without the data that it may refer to, which are large and may not be copyable.
        self._sampler = copy.deepcopy(self._pristine, {id(self._data): self._data})
        self._next = 0
        self._drawn: dict[int, Indices] = {}

    def _draw(self) -> None:
        epoch = self._next
        seed_all(mix_seeds(self._seed, epoch))
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)
        numbers = islice((int(i) for i in self._sampler), DRAWN_MAX + 1)
        drawn = number_repeats(np.fromiter(numbers, dtype=np.int64))
        if len(drawn) > DRAWN_MAX:
            raise ValueError(_too_many(f"more than {DRAWN_MAX:,}"))
        # All positions are counted in passes of one length.
        if self._drawn and len(drawn) != self.length:
            raise ValueError("a sampler must draw the same number of samples in each pass")
        self._drawn = {e: d for e, d in self._drawn.items() if e == epoch - 1}
        self._drawn[epoch] = drawn
        self._next = epoch + 1


def _too_many(count: str) -> str:
    return (
        f"the sampler draws {count} samples in a pass, and a Job keeps them in memory: draw at most"
        f" {DRAWN_MAX:,} (num_samples) and train for more passes (epochs, or steps)"
    )


def sampler_draws(loader: DataLoader[object], seed: int) -> tuple[SamplerDraws | None, bool]:
    """Returns the draws of a sampler, or None and whether the job itself is to shuffle."""
    sampler: Iterable[int] = loader.sampler
    if isinstance(sampler, DistributedSampler):
        raise ValueError("remove DistributedSampler: the Job splits samples among workers itself")
    if type(sampler) is SequentialSampler and _is_of_all(sampler, loader.dataset):
        return None, False
    if (
        type(sampler) is RandomSampler
        and not sampler.replacement
        and sampler._num_samples is None
        and _is_of_all(sampler, loader.dataset)
    ):
        return None, True
    return SamplerDraws(sampler, loader.dataset, seed), False


def _is_of_all(sampler: SequentialSampler | RandomSampler, data: object) -> bool:
    """Returns whether a sampler draws all samples of the data, not only some of them."""
    return sampler.data_source is data or len(sampler.data_source) == len(cast(Sized, data))
