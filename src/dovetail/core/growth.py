"""A column that takes new rows at its end, for tables that grow while a run goes on.

Readers see an array of exactly the rows there are. Behind it lies a buffer with room to spare
that doubles when it is full, so that a new row costs amortised constant time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

S = TypeVar("S", bound=np.generic)
_ROOM = 64
"""Rows of the smallest buffer."""


class Growing(Generic[S]):
    """An array whose first axis grows. What `rows` gave before stays as it was."""

    __slots__ = ("_buffer", "_count", "_own")

    def __init__(self, rows: NDArray[S]) -> None:
        self._buffer = rows
        self._count = len(rows)
        # The first growth copies: another table may use the same array.
        self._own = False

    @property
    def rows(self) -> NDArray[S]:
        """Returns the rows there are."""
        return self._buffer[: self._count]

    def extend(self, new: Sequence[object] | NDArray[S]) -> NDArray[S]:
        """Adds rows at the end and returns all of them; what is already there is not written."""
        count, longer = self._count, self._count + len(new)
        if longer > len(self._buffer) or not self._own:
            shape = (max(_ROOM, 2 * longer), *self._buffer.shape[1:])
            buffer = np.empty(shape, self._buffer.dtype)
            buffer[:count] = self._buffer[:count]
            self._buffer, self._own = buffer, True
        self._buffer[count:longer] = new  # type: ignore[assignment]
        self._count = longer
        return self._buffer[:longer]


def sealed(rows: NDArray[S]) -> NDArray[S]:
    """Returns a read-only window on an array, which stays as writable as it was."""
    window = rows.view()
    window.setflags(write=False)
    return window
