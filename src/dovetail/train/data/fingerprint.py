"""A number for the data of a job, by which workers notice that they do not have the same.

A script runs once in each worker. What it draws without a seed (a split into training and
validation, the order of a vocabulary) is another thing in each of them; samples would be trained
on twice or never, or be among those that it validates on.

Only whole numbers are looked at: labels, tokens, the places of a subset, what a sampler draws.
Others may differ in their last digits between machines. And nothing is read from a data set, which
may take long, and draw at random.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from torch import Tensor, strided
from torch.utils.data import Dataset

ROWS, COLUMNS = 256, 64
"""So much of a table is looked at, at most: some may lie on a disk."""
NARROWER = 8
"""How many times less of each list in a list."""
DEEPEST = 16
"""How deep data sets and lists are looked into."""


def fingerprint(*what: Any) -> int:
    """Returns a number for data sets, tensors and arrays; workers that have the same agree."""
    number, known = 0, set[int]()
    for one in what:
        # It serves a warning alone: what cannot be looked at is left.
        with suppress(Exception):
            for numbers in _whole_numbers(one, known, fields=True):
                number = zlib.crc32(repr(numbers).encode(), number)
    return number


def _whole_numbers(
    value: Any, known: set[int], *, fields: bool = False, most: int = ROWS, depth: int = DEEPEST
) -> Iterator[Any]:
    """Yields what is looked at, also in data sets that others are made of."""
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
    elif type(value) in (list, tuple, range):  # others may read a sample for each element
        known.add(id(value))
        for one in value[:: -(-len(value) // most) or 1]:
            if isinstance(one, (int, np.integer)):
                yield int(one)
            else:
                narrower = max(1, most // NARROWER)
                yield from _whole_numbers(one, known, most=narrower, depth=depth - 1)
    elif fields or isinstance(value, Dataset):
        known.add(id(value))
        for one in getattr(value, "__dict__", {}).values():
            yield from _whole_numbers(one, known, depth=depth - 1)


def _holds_whole_numbers(value: Tensor) -> bool:
    plain = value.layout == strided and not (value.is_nested or value.is_quantized or value.is_meta)
    return plain and not (value.is_floating_point() or value.is_complex())


def _some_of(table: Any) -> Iterator[Any]:
    if table.ndim:
        yield tuple(table.shape)
        for row in table[:: -(-len(table) // ROWS) or 1]:
            yield row.reshape(-1)[:COLUMNS].tolist()
