"""Kinds of jobs: those that are alike in every answer of a physics, numbered as they appear.

So the number of a kind does not depend on jobs that come later, and a table that grows while a
run goes on gives the same numbers as the whole one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dovetail.core.growth import Growing
from dovetail.core.job import Floats, Ints


class Kinds:
    """The kind of each job, and the first job of each kind."""

    def __init__(self, keys: Ints) -> None:
        """Numbers jobs by their keys, an array of shape [columns, jobs]."""
        _, first, place = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        appearance = np.argsort(first)
        number = np.empty(len(first), np.int64)
        number[appearance] = np.arange(len(first))
        self._of: Growing[np.int64] = Growing(number[place.reshape(-1)])
        self.numbers: list[int] = self._of.rows.tolist()
        self.example: list[int] = first[appearance].tolist()
        columns = keys[:, self.example].T.tolist()
        self._number_of = {tuple(key): kind for kind, key in enumerate(columns)}

    def __len__(self) -> int:
        return len(self.example)

    @property
    def of(self) -> Ints:
        """Returns the kind of each job."""
        return self._of.rows

    def admit(self, keys: Ints) -> range:
        """Numbers more jobs by their keys, of the same shape; returns the kinds that are new."""
        known = len(self.example)
        for key in map(tuple, keys.T.tolist()):
            kind = self._number_of.setdefault(key, len(self.example))
            if kind == len(self.example):
                self.example.append(len(self.numbers))
            self.numbers.append(kind)
        self._of.extend(self.numbers[len(self._of.rows) :])
        return range(known, len(self.example))


class RateTables:
    """The speeds of each kind on 0 to so many GPUs; a row is reckoned when it is first wanted."""

    def __init__(self, row: Callable[[int, int], Floats]) -> None:
        """Takes what gives the row of a kind up to a number of GPUs."""
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
        made = table.extend(
            np.array([self._row(k, max_gpus) for k in new]).reshape(-1, max_gpus + 1)
        )
        made.setflags(write=False)
        self._sealed[max_gpus] = made
        return made
