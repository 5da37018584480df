"""Speeds by kind and number of GPUs, computed on first use."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dovetail.core.growth import Growing
from dovetail.core.job import Floats


class RateTables:
    """The speeds of each kind on 0 to so many GPUs; a row is computed on first use."""

    def __init__(self, row: Callable[[int, int], Floats]) -> None:
        """Takes the function that returns the row of a kind up to a number of GPUs."""
        self._row = row
        self._tables: dict[int, Growing[np.float64]] = {}
        self._sealed: dict[int, Floats] = {}

    def upto(self, max_gpus: int, kinds: int) -> Floats:
        """Returns the table [kinds, max_gpus + 1], read only, the same until there are more."""
        known = self._sealed.get(max_gpus)
        if known is not None and len(known) == kinds:
            return known
        table = self._tables.setdefault(max_gpus, Growing(np.empty((0, max_gpus + 1))))
        new = range(len(table.rows), kinds)
        rows = np.array([self._row(k, max_gpus) for k in new]).reshape(-1, max_gpus + 1)
        sealed = self._sealed[max_gpus] = table.extend(rows)
        sealed.setflags(write=False)
        return sealed
