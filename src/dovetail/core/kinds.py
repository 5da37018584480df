"""Rows that are alike, numbered as they appear: kinds of jobs, classes of guests.

So a number does not depend on jobs that come later, and a table that grows while a run goes on
gives the same numbers as the whole one.
"""

from __future__ import annotations

import numpy as np

from dovetail.core.growth import Growing
from dovetail.core.job import Ints


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
