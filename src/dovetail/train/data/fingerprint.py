"""A checksum of the data of a job, to detect workers that have different data.

The script runs once in each worker. What it draws without a seed (a split into training and
validation, the order of a vocabulary) differs between workers. Samples would then be trained on
twice or never, or be part of the validation set.

Only integers are read: labels, tokens, indices of a subset, draws of a sampler. Floating-point
values may differ in the last digits between machines. No sample is read from a data set, since
that may be slow and draw random numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import cast

import numpy as np
import numpy.typing as npt
from torch import Tensor, strided
from torch.utils.data import Dataset

ROWS, COLUMNS = 256, 64
"""At most this much of a table is read: it may be on a disk."""
NARROWER = 8
"""The factor by which less of each nested list is read."""
DEEPEST = 16
"""The maximum depth of nested data sets and lists."""


def fingerprint(*what: object) -> int:
    """Returns a checksum of data sets, tensors and arrays: equal on workers with equal data."""
    number, known = 0, set[int]()
    for one in what:
        # The checksum only serves a warning: values that cannot be read are skipped.
        with suppress(Exception):
            for numbers in _whole_numbers(one, known, fields=True):
                number = zlib.crc32(repr(numbers).encode(), number)
    return number


def _whole_numbers(
    value: object, known: set[int], *, fields: bool = False, most: int = ROWS, depth: int = DEEPEST
) -> Iterator[object]:
    """Yields integers of the data, including data sets that others are built from."""
    if depth == 0:
        return
    if isinstance(value, Tensor):
        if _holds_whole_numbers(value):
            yield from _some_of(value)
    elif isinstance(value, np.ndarray):
        if value.dtype.kind in "iub":
            yield from _some_of(value)
    elif id(value) in known:
        return
    elif type(value) in (list, tuple, range):  # subclasses may read a sample per element
        known.add(id(value))
        yield from _in_list(cast(Sequence[object], value), known, most, depth)
    elif fields or isinstance(value, Dataset):
        known.add(id(value))
        for one in getattr(value, "__dict__", {}).values():
            yield from _whole_numbers(one, known, depth=depth - 1)


def _in_list(values: Sequence[object], known: set[int], most: int, depth: int) -> Iterator[object]:
    """Yields the integers of at most `most` elements, spread evenly over a list."""
    for one in values[:: -(-len(values) // most) or 1]:
        if isinstance(one, (int, np.integer)):
            yield int(one)
        else:
            narrower = max(1, most // NARROWER)
            yield from _whole_numbers(one, known, most=narrower, depth=depth - 1)


def _holds_whole_numbers(value: Tensor) -> bool:
    plain = value.layout == strided and not (value.is_nested or value.is_quantized or value.is_meta)
    return plain and not (value.is_floating_point() or value.is_complex())


def _some_of(table: Tensor | npt.NDArray[np.generic]) -> Iterator[object]:
    if table.ndim:
        yield tuple(table.shape)
        for row in table[:: -(-len(table) // ROWS) or 1]:
            yield row.reshape(-1)[:COLUMNS].tolist()
