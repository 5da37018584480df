"""A trace: the requests of a `JobTable` and their outcomes, which only worlds may see."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dovetail.core.job import Floats, JobTable

COMPLETED, FAILED, CANCELLED, TIMEOUT = 0, 1, 2, 3
ENDS = ("completed", "failed", "cancelled", "timeout")
"""How a job can end; the position is the code used in `Trace.end`."""


@dataclass(frozen=True)
class Trace:
    """Requests and outcomes, row by row.

    `duration_s` is the run time alone on the requested GPUs, well placed: the job's work.
    `iterations` is NaN where the trace has none. `end` has positions in `ENDS`.
    `counts`: the source rows that were read, rejected and adjusted, by reason.
    """

    jobs: JobTable
    duration_s: Floats
    iterations: Floats
    end: NDArray[np.int8]
    name: str = ""
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.jobs)
        for name in ("duration_s", "iterations", "end"):
            if len(getattr(self, name)) != n:
                raise ValueError(f"{name} must have one entry for each of the {n} jobs")
        if n and not (np.isfinite(self.duration_s).all() and (self.duration_s > 0).all()):
            raise ValueError("every duration must be finite and positive")

    @staticmethod
    def of(jobs: JobTable, duration_s: Floats, name: str = "") -> Trace:
        """Returns a trace of jobs that all complete after `duration_s`."""
        n = len(jobs)
        return Trace(jobs, duration_s, np.full(n, np.nan), np.zeros(n, np.int8), name)

    def __len__(self) -> int:
        return len(self.jobs)

    def take(self, rows: NDArray[np.int64]) -> Trace:
        """Returns the trace restricted to `rows`, which must keep the order of submission."""
        return Trace(
            self.jobs.take(rows),
            self.duration_s[rows],
            self.iterations[rows],
            self.end[rows],
            self.name,
            self.counts,
        )
