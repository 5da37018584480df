"""Reads samples: in the training process, or ahead of time in processes of its own.

Random augmentation of a sample depends on the seed, the pass and the sample only, not on the
process that reads it. So training sees the same samples on any number of workers.
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
from typing import Any, cast

import numpy as np
import torch
import torch.multiprocessing  # tensors travel between processes in shared memory
from torch.utils.data import IterableDataset, TensorDataset, default_collate
from torch.utils.data._utils.pin_memory import pin_memory

from dovetail.train.data.samples import Indices, sample_of

PREFETCH = 2
"""Micro-batches that each loader process reads ahead, unless a DataLoader specifies it."""
SEED_MASK = (1 << 63) - 1
Batch = Any
"""A micro-batch, of any type that the script's data set and `collate` produce."""
Collate = Callable[[list[Any]], Batch]


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """A micro-batch, and the seconds that reading it waited and computed."""

    batch: Batch
    storage_s: float
    cpu_s: float


def mix_seeds(*numbers: int) -> int:
    """Returns a seed derived from several numbers; similar numbers give unrelated seeds."""
    value = 0x9E3779B97F4A7C15
    for n in numbers:
        value = ((value ^ (n & SEED_MASK)) * 0xBF58476D1CE4E5B9) & ((1 << 64) - 1)
        value ^= value >> 31
    return value & SEED_MASK


def seed_all(seed: int) -> None:
    """Seeds the generators of random, numpy and torch.

    NOTE: unless a GPU is in use, `torch.manual_seed` would record the stack, 0.4 ms each time.
    """
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


class SampleReader:
    """Reads the data of a job: a map-style data set, or tensors with one row per sample."""

    def __init__(self, data: object, *, seed: int, collate: Collate | None) -> None:
        self._seed = seed
        self._collate = collate or default_collate
        self._data: tuple[torch.Tensor, ...] | Sequence[object]
        if isinstance(data, tuple):
            _check_tensors(data)
            self._data = data if collate is None else cast(Sequence[object], TensorDataset(*data))
        elif isinstance(data, IterableDataset) or not (
            hasattr(data, "__getitem__") and hasattr(data, "__len__")
        ):
            raise ValueError(
                "data must be a data set with a length, a DataLoader of one, or a tuple of tensors:"
                " a stream (IterableDataset) cannot be split among workers and resumed"
            )
        else:
            self._data = cast(Sequence[object], data)

    def __len__(self) -> int:
        """Returns the number of samples."""
        return len(self._data[0]) if isinstance(self._data, tuple) else len(self._data)

    def read(self, epoch: int, indices: Indices) -> ReadBatch:
        """Returns the samples at some indices as one batch."""
        # Wall time without CPU time is the time spent waiting for storage.
        wall, cpu = time.perf_counter(), time.thread_time()
        at, times = sample_of(indices)
        if isinstance(self._data, tuple):
            places = torch.from_numpy(at)
            batch: Batch = tuple(t[places] for t in self._data)
        else:
            drawn = zip(at.tolist(), times.tolist(), strict=True)
            batch = self._collate([self._sample(self._data, epoch, i, n) for i, n in drawn])
        cpu_s = time.thread_time() - cpu
        return ReadBatch(batch, max(0.0, time.perf_counter() - wall - cpu_s), cpu_s)

    def _sample(self, data: Sequence[object], epoch: int, index: int, repeat: int) -> object:
        """Returns a sample; each `repeat` of it in a pass draws other random numbers."""
        seed_all(mix_seeds(self._seed, epoch, index, *([repeat] if repeat else ())))
        return data[index]


def _check_tensors(tensors: tuple[object, ...]) -> None:
    """Raises ValueError unless all elements are tensors with the same number of rows."""
    if not tensors or not all(isinstance(t, torch.Tensor) for t in tensors):
        raise ValueError("data in a tuple must be tensors (torch.from_numpy converts arrays)")
    if len({len(cast(torch.Tensor, t)) for t in tensors}) != 1:
        raise ValueError("the tensors of the data must have one row for each sample")


_source: SampleReader | None = None
"""The reader of a loader process."""


def _become_loader(source: SampleReader, parent: int) -> None:
    global _source
    _source = source
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Loaders run side by side; each with all threads would only slow the others down.
    torch.set_num_threads(1)
    if sys.platform == "linux":
        # NOTE: a loader that outlives its worker would keep the worker's connections open, and the
        # other workers would wait for it as for one that hangs.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    # The worker may have died before prctl took effect.
    if os.getppid() != parent:
        os._exit(1)


def _read(epoch: int, indices: Indices) -> ReadBatch:
    assert _source is not None
    return _source.read(epoch, indices)


def _pinned(read: ReadBatch) -> ReadBatch:
    """Returns a copy of a micro-batch in pinned memory, for asynchronous copies to a GPU."""
    return dataclasses.replace(read, batch=pin_memory(read.batch))  # type: ignore[no-untyped-call]


def _pinned_result(future: Future[ReadBatch]) -> ReadBatch:
    return _pinned(future.result())


Upcoming = Callable[[], Iterator[tuple[int, Indices]]]
"""Returns the micro-batches from the current one on, as far as they are known."""


class BatchLoader:
    """Returns micro-batches in order; loader processes read the next ones ahead."""

    def __init__(
        self,
        source: SampleReader,
        loaders: int,
        *,
        prefetch: int = PREFETCH,
        pins_for: torch.device | None = None,
    ) -> None:
        """Each process reads `prefetch` micro-batches ahead; memory is pinned for `pins_for`."""
        self._source, self.loaders = source, loaders
        self._most_ahead, self._pins_for = loaders * prefetch, pins_for
        self._pinning = ThreadPoolExecutor(1, "dovetail-pin", self._begin_pinning)
        self._ahead: deque[tuple[tuple[int, bytes], Future[ReadBatch]]] = deque()
        self._upcoming: Iterator[tuple[int, Indices]] = iter(())
        self._pool: ProcessPoolExecutor | None = None
        if loaders > 0:
            self._pool = ProcessPoolExecutor(
                loaders,
                mp_context=multiprocessing.get_context("fork"),
                initializer=_become_loader,
                initargs=(source, os.getpid()),
            )
            # Forking with other threads can deadlock, so the processes fork now, before any starts.
            self._pool.submit(os.getpid).result()

    def take(self, epoch: int, indices: Indices, upcoming: Upcoming) -> ReadBatch:
        """Returns the micro-batch of the given samples."""
        if self._pool is None:
            read = self._source.read(epoch, indices)
            return read if self._pins_for is None else _pinned(read)
        key = (epoch, indices.tobytes())
        if not self._ahead or self._ahead[0][0] != key:
            self.forget()
            # Not the micro-batch that was read ahead: the split has changed, and reading ahead
            # starts over.
            self._upcoming = upcoming()
            self._fill()
        read_key, future = self._ahead.popleft()
        assert read_key == key, "the upcoming micro-batches must begin with the current one"
        self._fill()  # before waiting, so that the loaders are never idle
        return future.result()

    def forget(self) -> None:
        """Discards what was read ahead, since workers now split samples differently."""
        for _, future in self._ahead:
            future.cancel()
        self._ahead.clear()

    def close(self) -> None:
        """Stops the loader processes."""
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
                # NOTE: on a thread, as in DataLoader: pinning takes as long as copying.
                future = self._pinning.submit(_pinned_result, future)
            self._ahead.append(((epoch, indices.tobytes()), future))


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Returns a batch with its tensors on a device, however they are nested."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if callable(getattr(batch, "to", None)):  # a batch type of the script, such as a graph
        return batch.to(device)
    if isinstance(batch, dict):
        moved = copy.copy(batch)
        for key, value in batch.items():
            moved[key] = to_device(value, device)
        return moved
    if isinstance(batch, (list, tuple)):
        parts = [to_device(v, device) for v in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        # Frozen dataclasses refuse plain assignment, and `replace` would run their `__post_init__`.
        other = copy.copy(batch)
        for field in dataclasses.fields(batch):
            object.__setattr__(other, field.name, to_device(getattr(batch, field.name), device))
        return other
    return batch
