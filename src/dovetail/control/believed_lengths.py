"""What is believed of the lengths of jobs: one number each, or the mean of a distribution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.core.length_distribution import (
    PARTS,
    DistributionTable,
    LengthDistribution,
    LengthQuantiles,
)

Told = tuple[float, tuple[float, ...]]
"""A length, and the numbers of its distribution; () of one that is a single number."""


class BelievedLengths:
    """The `mean_s` of each job; some have a row in `distributions` while they have not ended."""

    def __init__(self, jobs: int) -> None:
        self.mean_s: list[float] = [0.0] * jobs
        self.distributions = DistributionTable()
        self._row: dict[int, int] = {}

    def __contains__(self, job: int) -> bool:
        """True if the length of a job is a distribution."""
        return job in self._row

    def row(self, job: int) -> int:
        """Returns the row of a job, -1 without one."""
        return self._row.get(job, -1)

    def tell(self, job: int, length_s: float, told: LengthDistribution | None) -> None:
        """Writes the length of a job: the mean of its distribution if it has one."""
        self.forget(job)
        self.mean_s[job] = length_s
        if told is not None:
            row = self._row[job] = self.distributions.add(told)
            self.mean_s[job] = float(self.distributions.left_s(np.array([row]), np.zeros(1))[0])

    def forget(self, job: int) -> None:
        """Gives back the row of a job, if it has one; its mean stays."""
        if self._row and (row := self._row.pop(job, None)) is not None:
            self.distributions.drop(row)

    def told(self, job: int) -> Told:
        """Returns what is believed of a job that has not ended."""
        row = self._row.get(job) if self._row else None
        return self.mean_s[job], () if row is None else self.distributions.told(row).numbers

    def left_s(self, jobs: Sequence[int], done_s: Sequence[float]) -> list[float]:
        """Returns the mean of what is left of jobs, given their progress."""
        mean_s = self.mean_s
        left_s = [max(0.0, mean_s[j] - d) for j, d in zip(jobs, done_s, strict=True)]
        told = (
            [(n, self._row[j]) for n, j in enumerate(jobs) if j in self._row] if self._row else ()
        )
        if told:
            at, rows = np.array(told).T
            values = self.distributions.left_s(rows, np.array(done_s)[at])
            for n, value in zip(at.tolist(), values.tolist(), strict=True):
                left_s[n] = value
        return left_s

    def quantiles(self, jobs: Sequence[int]) -> LengthQuantiles:
        """Returns the distributions of the lengths of jobs that have not ended."""
        rows = np.array([self.row(job) for job in jobs], np.int64)
        points_s = np.array([self.mean_s[job] for job in jobs])
        found = LengthQuantiles(np.tile(points_s[:, None], PARTS), np.zeros(len(jobs)))
        told = np.flatnonzero(rows >= 0)
        found.quantiles_s[told], found.tail[told] = self.distributions.quantiles(rows[told])
        return found
