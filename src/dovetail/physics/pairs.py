"""Measured slowdown of two jobs on one GPU, as profile sets carry it."""

from __future__ import annotations

from dataclasses import dataclass


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
