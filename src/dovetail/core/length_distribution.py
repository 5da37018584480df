"""How long a job may be: quantiles of its length, and what is left of it once it has run a while.

What is left of a job is its mean residual life (queueing theory): `E[length | length > t] - done`,
where `t` is the last quantile that it has outlived. Between two quantiles it falls as the job
makes progress, like that of a known length: a mean that was renewed at every instant would rise
while a job runs, and two jobs would stop each other in turns. Behind the last quantile lies a
Pareto tail, in which `t` grows by steps in proportion. So a job that outlives its forecast
always has something left, unless its length is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dovetail.core.job import Floats, Ints

PARTS = 20
"""Equally likely parts of a distribution; each starts at a quantile, the last is the tail."""
_NOW = ("low_s", "high_s", "mean_s")
"""Where a job is: the length it has outlived, the one that is next, its mean length given that."""
_LEAST = 1e-9


@dataclass(frozen=True, slots=True)
class LengthDistribution:
    """The length of a job as it is believed on arrival, in solo seconds on its requested GPUs.

    `quantiles_s` are the lengths that 0, 5, ... and 95 % of such jobs do not exceed, ascending.
    Beyond the last one `tail` times the progress is left. A known length has equal quantiles and
    no tail.
    """

    quantiles_s: tuple[float, ...]
    tail: float = 0.0

    def __post_init__(self) -> None:
        if len(self.quantiles_s) != PARTS:
            raise ValueError(f"{len(self.quantiles_s)} quantiles, expected {PARTS}")

    @staticmethod
    def point(length_s: float) -> LengthDistribution:
        """Returns the distribution of a known length."""
        return LengthDistribution((length_s,) * PARTS)

    @staticmethod
    def of(numbers: Sequence[float]) -> LengthDistribution | None:
        """Returns the distribution of some `numbers`, None of none. Raises ValueError."""
        return LengthDistribution(tuple(numbers[:-1]), numbers[-1]) if numbers else None

    @property
    def numbers(self) -> tuple[float, ...]:
        """Returns the quantiles and the tail, as logs store them."""
        return (*self.quantiles_s, self.tail)

    @property
    def mean_s(self) -> float:
        """Returns the mean length."""
        return self.left_s(0.0)

    def left_s(self, done_s: float) -> float:
        """Returns the mean of what is left after some progress, given that the job still runs."""
        table = DistributionTable()
        return float(table.left_s(np.array([table.add(self)]), np.array([done_s]))[0])

    def part_means_s(self) -> tuple[float, ...]:
        """Returns the mean length in each part: equally likely lengths that stand for all."""
        pairs = zip(self.quantiles_s, self.quantiles_s[1:], strict=False)
        last_s = self.quantiles_s[-1] * (1.0 + self.tail)
        return (*((low_s + high_s) / 2.0 for low_s, high_s in pairs), last_s)


class LengthQuantiles(NamedTuple):
    """The distributions of some jobs: quantiles [jobs, PARTS] and tails [jobs].

    A length that is one number has equal quantiles and no tail.
    """

    quantiles_s: Floats
    tail: Floats


class DistributionTable:
    """The distributions of many jobs as rows of arrays, to be read at once.

    NOTE: each row remembers which length its job is known to exceed, and is searched again only
    when the job has outlived the next. 3,000 rows take 0.1 ms, and 0.3 ms if all are searched.
    """

    def __init__(self) -> None:
        self._unused: list[int] = []
        self._quantiles_s: Floats = np.zeros((0, PARTS))
        self._means_s: Floats = np.zeros((0, PARTS + 1))
        self._tail: Floats = np.zeros(0)
        self._now: Floats = np.zeros((len(_NOW), 0))

    def __len__(self) -> int:
        return len(self._tail) - len(self._unused)

    def add(self, told: LengthDistribution) -> int:
        """Returns the row that a new distribution takes."""
        if not self._unused:
            self._grow()
        row = self._unused.pop()
        self._quantiles_s[row], self._tail[row] = told.quantiles_s, told.tail
        parts_s = np.array(told.part_means_s())
        beyond_s = np.cumsum(parts_s[::-1])[::-1] / np.arange(PARTS, 0, -1)
        self._means_s[row] = np.append(beyond_s[0], beyond_s)
        self._search(np.array([row]), np.zeros(1))
        return row

    def told(self, row: int) -> LengthDistribution:
        """Returns the distribution of a row."""
        return LengthDistribution(tuple(self._quantiles_s[row].tolist()), float(self._tail[row]))

    def quantiles(self, rows: Ints) -> LengthQuantiles:
        """Returns the distributions of some rows."""
        return LengthQuantiles(self._quantiles_s[rows], self._tail[rows])

    def drop(self, row: int) -> None:
        """Gives a row back."""
        self._unused.append(row)

    def left_s(self, rows: Ints, done_s: Floats) -> Floats:
        """Returns the mean of what is left by each row, after so much progress."""
        low_s, high_s, mean_s = self._now[:, rows]
        moved = (done_s >= high_s) | (done_s < low_s)
        if moved.any():
            self._search(rows[moved], done_s[moved])
            mean_s = self._now[2, rows]
        return np.asarray(np.maximum(mean_s - done_s, 0.0))

    def _search(self, rows: Ints, done_s: Floats) -> None:
        """Writes what each row's job has outlived, what it will next, and its mean length."""
        quantiles_s, tail = self._quantiles_s[rows], self._tail[rows]
        part = (quantiles_s <= done_s[:, None]).sum(axis=1)
        each, last_s = np.arange(len(rows)), quantiles_s[:, -1]
        low_s = np.where(part > 0, quantiles_s[each, part - 1], 0.0)
        high_s = quantiles_s[each, np.minimum(part, PARTS - 1)]
        mean_s = self._means_s[rows, part]
        at = np.flatnonzero(part == PARTS)
        # In the tail the next length to outlive is half of what was left behind the last.
        step = 1.0 + np.maximum(tail[at], _LEAST) / 2.0
        steps = np.floor(np.log(done_s[at] / last_s[at]) / np.log(step) + _LEAST)
        low_s[at] = last_s[at] * step**steps
        high_s[at] = low_s[at] * step
        mean_s[at] = low_s[at] * (1.0 + tail[at])
        self._now[:, rows] = low_s, high_s, mean_s

    def _grow(self) -> None:
        count = len(self._tail)
        more = max(count, 64)
        self._unused = list(range(count, count + more))[::-1]
        self._quantiles_s = np.concatenate((self._quantiles_s, np.zeros((more, PARTS))))
        self._means_s = np.concatenate((self._means_s, np.zeros((more, PARTS + 1))))
        self._tail = np.concatenate((self._tail, np.zeros(more)))
        self._now = np.concatenate((self._now, np.zeros((len(_NOW), more))), axis=1)
