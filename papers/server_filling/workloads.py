"""The jobs of the ServerFilling paper: Poisson arrivals at eight servers.

A job needs 1, 2, 4 or 8 GPUs with equal chance. Its size, GPUs times seconds, has mean 1 whatever
it needs: exponential, or hyperexponential with a squared coefficient of variation of 10 (figure 4
of the paper; the authors' program, setting 0 and 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.core.job import JobTable
from dovetail.core.trace import Trace
from papers.server_filling.published import EXPONENTIAL

SERVERS = 8
UNIT_S = 1000.0
"""Seconds of the paper's unit of time."""
RARE = 0.5 - 1.5 / 11**0.5
"""The chance of the long branch, by which both branches carry half of the work."""


@dataclass(frozen=True, slots=True)
class MultiserverWorkload:
    """So many jobs at a load; with `one_server` all for one server that is eight times as fast."""

    sizes: str
    load: float
    jobs: int
    seed: int = 0
    one_server: bool = False

    def trace(self) -> Trace:
        """Returns the jobs; the same seed has the same sizes and arrivals on both clusters."""
        draw = np.random.default_rng([self.seed, round(1000 * self.load)])
        gpus = 2 ** draw.integers(0, 4, self.jobs)
        size = draw.exponential(1.0, self.jobs)
        if self.sizes != EXPONENTIAL:
            chance = np.where(draw.random(self.jobs) < RARE, RARE, 1 - RARE)
            size = size / (2 * chance)
        arrivals = np.cumsum(draw.exponential(1 / (self.load * SERVERS), self.jobs))
        width = np.full(self.jobs, SERVERS) if self.one_server else gpus
        asked = np.ones(self.jobs, np.int64) if self.one_server else gpus
        names = [str(i) for i in range(self.jobs)]
        return Trace.of(
            JobTable.build(names, UNIT_S * arrivals, asked), UNIT_S * size / width, "drawn"
        )
