"""Reading samples: in the training process, or ahead of time in processes of their own.

What a sample draws at random (crops, flips) depends on the seed, the pass and the sample alone,
not on who reads it; so training on any number of workers sees the same samples.
"""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import multiprocessing
import os
import random
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.multiprocessing  # tensors travel between processes in shared memory
from torch.utils.data import IterableDataset, TensorDataset, default_collate
from torch.utils.data._utils.pin_memory import pin_memory

from dovetail.train.data.samples import Indices, sample_of

PREFETCH = 2
"""Micro-batches that each loader process reads ahead, where a DataLoader does not say."""
SEED_MASK = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Read:
    """A micro-batch, and what reading took: seconds of waiting and of computing."""

    batch: Any
    storage_s: float
    cpu_s: float


def mixed(*numbers: int) -> int:
    """Returns a seed made of several numbers; near ones give seeds far apart."""
    value = 0x9E3779B97F4A7C15
    for n in numbers:
        value = ((value ^ (n & SEED_MASK)) * 0xBF58476D1CE4E5B9) & ((1 << 64) - 1)
        value ^= value >> 31
    return value & SEED_MASK


def seed_torch(seed: int) -> None:
    """Seeds torch's generators.

    NOTE: without a GPU in use `torch.manual_seed` would note down the stack for later, 0.4 ms each.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


def seed_all(seed: int) -> None:
    """Seeds the generators that scripts draw from."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    seed_torch(seed)


class Source:
    """The data of a job: a map-style data set, or tensors with one row a sample."""

    def __init__(self, data: Any, *, seed: int, collate: Callable[[list[Any]], Any] | None) -> None:
        self._data, self._seed = data, seed
        self._collate = collate or default_collate
        if isinstance(data, tuple):
            if not data or not all(isinstance(t, torch.Tensor) for t in data):
                raise ValueError("a tuple of data holds tensors (torch.from_numpy makes them)")
            if len({len(t) for t in data}) != 1:
                raise ValueError("the tensors of the data must have one row for each sample")
            if collate is not None:
                self._data = TensorDataset(*data)
        elif isinstance(data, IterableDataset) or not (
            hasattr(data, "__getitem__") and hasattr(data, "__len__")
        ):
            raise ValueError(
                "data must be a data set with a length, a DataLoader of one, or a tuple of tensors;"
                " a stream (IterableDataset) has no samples that could be shared out and resumed"
            )
        self._is_tensors = isinstance(self._data, tuple)

    def __len__(self) -> int:
        """Returns the number of samples."""
        return len(self._data[0]) if self._is_tensors else len(self._data)

    def read(self, epoch: int, indices: Indices) -> Read:
        """Returns the samples at some indices as one batch."""
        wall, cpu = time.perf_counter(), time.thread_time()
        at, times = sample_of(indices)
        if self._is_tensors:
            places = torch.from_numpy(at)
            batch: Any = tuple(t[places] for t in self._data)
        else:
            drawn = zip(at.tolist(), times.tolist(), strict=True)
            batch = self._collate([self._sample(epoch, i, again) for i, again in drawn])
        cpu_s = time.thread_time() - cpu
        return Read(batch, max(0.0, time.perf_counter() - wall - cpu_s), cpu_s)

    def _sample(self, epoch: int, index: int, again: int) -> Any:
        """Returns a sample; drawn `again` in a pass it draws something else at random."""
        seed_all(mixed(self._seed, epoch, index, *([again] if again else ())))
        return self._data[index]


_source: Source | None = None
"""The data of a loader process."""


def _become_loader(source: Source, parent: int) -> None:
    global _source
    _source = source
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    if sys.platform == "linux":
        # NOTE: a loader that outlived its worker would hold the worker's connections open.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _read(epoch: int, indices: Indices) -> Read:
    assert _source is not None
    return _source.read(epoch, indices)


def _pinned(read: Read) -> Read:
    """Returns a micro-batch in memory that a GPU can copy from while the loop goes on."""
    return dataclasses.replace(read, batch=pin_memory(read.batch))  # type: ignore[no-untyped-call]


def _pinned_result(future: Future[Read]) -> Read:
    return _pinned(future.result())


Upcoming = Callable[[], Iterator[tuple[int, Indices]]]
"""Gives the micro-batches from the one wanted now on, as far as can be told."""


class Loader:
    """Gives micro-batches in order; with processes, those to come are read meanwhile."""

    def __init__(
        self,
        source: Source,
        loaders: int,
        *,
        prefetch: int = PREFETCH,
        pins_for: torch.device | None = None,
    ) -> None:
        """Each process reads `prefetch` micro-batches ahead; memory is pinned for a device."""
        self._source, self.loaders = source, loaders
        self._most_ahead, self._pins_for = loaders * prefetch, pins_for
        self._pinning = ThreadPoolExecutor(1, "dovetail-pin", self._begin_pinning)
        self._ahead: deque[tuple[tuple[int, bytes], Future[Read]]] = deque()
        self._upcoming: Iterator[tuple[int, Indices]] = iter(())
        self._pool: ProcessPoolExecutor | None = None
        if loaders > 0:
            self._pool = ProcessPoolExecutor(
                loaders,
                mp_context=multiprocessing.get_context("fork"),
                initializer=_become_loader,
                initargs=(source, os.getpid()),
            )
            self._pool.submit(os.getpid).result()  # forks now, while there are no threads

    def take(self, epoch: int, indices: Indices, upcoming: Upcoming) -> Read:
        """Returns the micro-batch of some samples."""
        if self._pool is None:
            read = self._source.read(epoch, indices)
            return read if self._pins_for is None else _pinned(read)
        key = (epoch, indices.tobytes())
        if not self._ahead or self._ahead[0][0] != key:
            self.forget()
            self._upcoming = upcoming()
            self._fill()
        found, future = self._ahead.popleft()
        assert found == key, "the micro-batches to come begin with the one wanted"
        self._fill()
        return future.result()

    def forget(self) -> None:
        """Drops what was read ahead, when the workers share samples in another way."""
        for _, future in self._ahead:
            future.cancel()
        self._ahead.clear()

    def close(self) -> None:
        """Ends the loader processes."""
        if self._pool is not None:
            self.forget()
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
            self._pinning.shutdown(wait=True, cancel_futures=True)

    def _begin_pinning(self) -> None:
        if self._pins_for is not None and self._pins_for.type == "cuda":
            torch.cuda.set_device(self._pins_for)

    def _fill(self) -> None:
        assert self._pool is not None
        while len(self._ahead) < self._most_ahead:
            following = next(self._upcoming, None)
            if following is None:
                return
            epoch, indices = following
            future = self._pool.submit(_read, epoch, indices)
            if self._pins_for is not None:
                # NOTE: on a thread, as in a DataLoader: pinning takes as long as copying.
                future = self._pinning.submit(_pinned_result, future)
            self._ahead.append(((epoch, indices.tobytes()), future))


def moved(batch: Any, device: torch.device) -> Any:
    """Returns a batch with its tensors on a device, however they are nested."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if callable(getattr(batch, "to", None)):
        return batch.to(device)
    if isinstance(batch, dict):
        found = copy.copy(batch)
        for key, value in batch.items():
            found[key] = moved(value, device)
        return found
    if isinstance(batch, (list, tuple)):
        parts: Sequence[Any] = [moved(v, device) for v in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        other = copy.copy(batch)
        for field in dataclasses.fields(batch):
            object.__setattr__(other, field.name, moved(getattr(batch, field.name), device))
        return other
    return batch
