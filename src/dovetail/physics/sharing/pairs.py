"""Measured slowdown of two jobs on one GPU, as profile sets carry it, and between its batches."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.core.job import Floats


@dataclass(frozen=True, slots=True)
class PairRatio:
    """Two models on one GPU: iteration time shared over alone, of each (eq. 5, 6; >= 1)."""

    first: str
    first_batch: int
    second: str
    second_batch: int
    first_ratio: float
    second_ratio: float

    def __post_init__(self) -> None:
        if min(self.first_ratio, self.second_ratio) <= 0:
            raise ValueError(f"interference ratios must be positive: {self}")
        if min(self.first_batch, self.second_batch) < 1:
            raise ValueError(f"batches must be at least 1: {self}")

    def sides(self) -> tuple[tuple[str, int, str, int, float], ...]:
        """Returns (mine, my batch, other, its batch, my ratio), seen from each of the two."""
        one = (self.first, self.first_batch, self.second, self.second_batch, self.first_ratio)
        two = (self.second, self.second_batch, self.first, self.first_batch, self.second_ratio)
        return one, two


Measured = tuple[int, int, float]
"""The micro-batches of two jobs, and the ratio of the first."""


class MeasuredPair:
    """The ratios of one model beside another at the batches that were measured.

    Between and beyond these the curve has the law's shape: the measured excess over the law's is
    interpolated, linearly over the logarithms of both batches. A cell that was not measured has
    the value of the nearest one that was.
    """

    def __init__(self, measured: Sequence[Measured], by_law: Sequence[float]) -> None:
        """Takes measured ratios, and of each the excess over 1 by the law, positive."""
        cells: dict[tuple[float, float], list[float]] = {}
        for (mine, other, ratio), excess in zip(measured, by_law, strict=True):
            factor = max(0.0, ratio - 1) / excess
            cells.setdefault((math.log2(mine), math.log2(other)), []).append(factor)
        known = {at: sum(factors) / len(factors) for at, factors in cells.items()}
        self._rows = sorted({mine for mine, _ in known})
        self._columns = sorted({other for _, other in known})
        self._factor = np.array(
            [[_nearest(known, row, column) for column in self._columns] for row in self._rows]
        )

    def factors(self, mine: Sequence[float], others: Sequence[float]) -> Floats:
        """Returns measured over computed excess [mine, others] at micro-batches of both."""
        (row, down), (column, across) = (
            zip(*(_between(points, math.log2(at)) for at in some), strict=True)
            for points, some in ((self._rows, mine), (self._columns, others))
        )
        upper, left = np.array(row)[:, None], np.array(column)[None, :]
        lower = np.minimum(upper + 1, len(self._rows) - 1)
        right = np.minimum(left + 1, len(self._columns) - 1)
        beside, below = np.array(across)[None, :], np.array(down)[:, None]
        known = self._factor
        top = (1 - beside) * known[upper, left] + beside * known[upper, right]
        bottom = (1 - beside) * known[lower, left] + beside * known[lower, right]
        return np.asarray((1 - below) * top + below * bottom)


def _nearest(known: dict[tuple[float, float], float], row: float, column: float) -> float:
    # Of equally near cells the one with the smaller batches counts, whatever the order of the rows.
    def distance(at: tuple[float, float]) -> tuple[float, tuple[float, float]]:
        return abs(at[0] - row) + abs(at[1] - column), at

    return known[min(known, key=distance)]


def _between(points: list[float], at: float) -> tuple[int, float]:
    """Returns the point below and how far on to the next; the ends where beyond them."""
    below = max(0, bisect_right(points, at) - 1)
    if at <= points[0] or below == len(points) - 1:
        return below, 0.0
    return below, (at - points[below]) / (points[below + 1] - points[below])
