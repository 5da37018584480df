"""The forecast ends of the running jobs in order, as a policy that reserves GPUs reads them.

The end of a job is now and the mean of what is left of it, as it was when its rate last changed. If
its length is a distribution and that time passes, the end is forecast anew on the next reading: so
no end lies in the past for long. The end of a job of one number stays where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import overload

from sortedcontainers import SortedList

Entry = tuple[float, int]
"""(forecast end, job)."""


class ForecastEnds(Sequence[Entry]):
    """Sorted entries; `renew` replaces those that have passed, before each reading."""

    def __init__(self, renew: Callable[[], None]) -> None:
        self._sorted = SortedList()
        self._renew = renew

    def add(self, entry: Entry) -> None:
        """Adds an entry."""
        self._sorted.add(entry)

    def discard(self, entry: Entry) -> None:
        """Removes an entry, if it is there."""
        self._sorted.discard(entry)

    def until(self, time_s: float) -> list[Entry]:
        """Returns the entries up to a time, as they are."""
        return list(self._sorted.irange(maximum=(time_s, float("inf"))))

    def __len__(self) -> int:
        return len(self._sorted)

    def __iter__(self) -> Iterator[Entry]:
        self._renew()
        return iter(self._sorted)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | Sequence[Entry]:
        self._renew()
        found: Entry | Sequence[Entry] = self._sorted[index]
        return found
