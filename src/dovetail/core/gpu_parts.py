"""GPUs that jobs hold in parts: how much of each is taken, and which have room for one more part.

Parts count in whole thousandths of a GPU, so that sums of them are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from sortedcontainers import SortedList

THOUSANDTHS = 1000
"""The parts that make a whole GPU."""


def thousandths(part: float) -> int:
    """Returns a part of a GPU in thousandths."""
    return round(part * THOUSANDTHS)


def exact_sum(gpus: float) -> float:
    """Returns a sum of parts without the error that adding them left."""
    return round(gpus, 3)


class OpenGpus:
    """The GPUs of which jobs hold parts, as (node, GPU id), with the thousandths taken of each.

    Nothing more of a GPU is given away that is `closed`.
    """

    __slots__ = ("_fullest", "closed", "taken")

    def __init__(self, closed: Set[tuple[int, int]] = frozenset()) -> None:
        self.closed = closed
        self.taken: dict[tuple[int, int], int] = {}
        # Read backwards: the fullest first, of equals the lowest node and GPU.
        self._fullest: SortedList = SortedList()

    def has_room(self, gpu: tuple[int, int], part: int) -> bool:
        """True if so many more thousandths of a GPU are left, all of it if nothing is taken."""
        return gpu not in self.closed and self.taken.get(gpu, 0) + part <= THOUSANDTHS

    def book(self, gpu: tuple[int, int], part: int) -> None:
        """Takes thousandths of a GPU, or with a negative number gives them back."""
        before = self.taken.get(gpu, 0)
        after = before + part
        node, number = gpu
        if before:
            self._fullest.remove((before, -node, -number))
        if after:
            self.taken[gpu] = after
            self._fullest.add((after, -node, -number))
        else:
            del self.taken[gpu]

    def with_room(self, part: int) -> Iterator[tuple[int, int]]:
        """Yields the GPUs with so many thousandths left, the fullest first."""
        limit = (THOUSANDTHS - part, 1, 0)
        for _, node, number in self._fullest.irange(maximum=limit, reverse=True):
            if (-node, -number) not in self.closed:
                yield -node, -number
