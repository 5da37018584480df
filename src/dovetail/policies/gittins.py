"""Tiresias-G: jobs with the best chance to end per service run first (2D Gittins index).

The two-dimensional Gittins index of a job's attained service (GPU-seconds) under the empirical
distribution of total service ranks the jobs, larger first. The distribution is learned from
the jobs that have ended so far, and renewed as they grow by a tenth; until `samples_min` have
ended, the job with the least service goes first, as in Tiresias-L without queues.

Ranks change while jobs run, so a running job is ranked again whenever its service has grown by the
factor `step` (and first at the service quantum `delta`).

With `size-estimates` (ours) each job has a distribution of its own, that of its forecast (as in
`--forecast predicted,expected`), and is ranked by its exact index given its progress, per GPU.
Where lengths are single numbers that is the shortest remaining service.

Source: ALGORITHMS section 6; delta 3250 GPU-s as in the public artifact, 0 for the exact index.
Knows: attained service, and the service of ended jobs; with `size-estimates` lengths too.
Stops running jobs: yes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from dovetail.algorithms.gittins import GittinsTable, quantile_index
from dovetail.core.job import Floats, Ints
from dovetail.core.passes import Because, Keys, check_bypass, rank
from dovetail.core.plan import Draft
from dovetail.core.policy import Decision, register
from dovetail.core.view import Running, View
from dovetail.mechanisms.ranking.learned_index import IndexPolicy

LEAST_GPUS = 0.001
"""A job without GPU is ranked as one of the least part of one."""
SOONEST_PER_S = 1e9
"""The index of a job that has outlived a known length; finite, so that keys can be compared."""


@register("gittins")
@dataclass(frozen=True, slots=True)
class Gittins(IndexPolicy):
    """2D Gittins index, preemptive. `delta` in GPU-seconds; `step` is a growth factor."""

    delta: float = 3250.0
    bypass: str = "skip"
    size_estimates: bool = False

    takes_parts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        # A dataclass with slots is made twice, which `super()` without arguments does not survive.
        IndexPolicy.__post_init__(self)
        check_bypass(self.bypass)

    @property
    def knows(self) -> frozenset[str]:
        """Returns attained service, and lengths where they are estimated."""
        return frozenset({"attained service"} | ({"length"} if self.size_estimates else set()))

    def decide(self, view: View, memory: object) -> Decision:
        """Learns from ended jobs and ranks all; wakes when a running job must be ranked again."""
        if not self.size_estimates:
            return IndexPolicy.decide(self, view, memory)
        draft, because = self.serve(view, partial(self._estimated_keys, view))
        return Decision(draft, memory, self._next_look_s(view, draft), because)

    def _keys(self, table: GittinsTable | None, view: View, jobs: Sequence[int]) -> list[float]:
        if not self.size_estimates:
            return IndexPolicy._keys(self, table, view, jobs)
        keys: list[float] = self._indices(view, np.asarray(jobs, np.int64)).tolist()
        return keys

    def _estimated_keys(self, view: View, running: Running) -> Floats:
        return self._indices(view, running.jobs)

    def _indices(self, view: View, jobs: Ints) -> Floats:
        """Returns the negative index of each job by the distribution of its own length."""
        rows = jobs.tolist()
        lengths, done_s = view.progress.length_quantiles(rows), view.progress.done_s(rows)
        per_s = quantile_index(*lengths, np.array(done_s, np.float64), self.step)
        gpus = np.maximum(view.jobs.asked_gpus[jobs], LEAST_GPUS)
        return np.asarray(-np.minimum(per_s, SOONEST_PER_S) / gpus)

    def serve(self, view: View, keys: Keys) -> tuple[Draft | None, Because]:
        """Gives the GPUs to the jobs of the largest index."""
        return rank(view, keys, self.bypass)
