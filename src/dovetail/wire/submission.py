"""What one submit hands over: a job, or an array of jobs that differ in their index alone."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.wire.spec import JobSpec

TASKS_MAX = 10_000
"""Jobs of one submit at most, all its arrays together."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One job, or one for each index of `array`.

    A dependency of `spec` on job -k means the k-th submission (from 1) handed over beside it.
    """

    spec: JobSpec
    array: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.array)) != len(self.array) or min(self.array, default=0) < 0:
            raise ValueError("the indices of an array are distinct and not below zero")
        if self.spec.terminal and self.array:
            raise ValueError("an interactive job is one job, and no array")
