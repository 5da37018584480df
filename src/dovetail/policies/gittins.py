"""Tiresias-G: jobs with the best chance to end per service run first (2D Gittins index).

The two-dimensional Gittins index of a job's attained service (GPU-seconds) under the empirical
distribution of total service ranks the jobs, larger first. The distribution is learned from
the jobs that have ended so far, and renewed as they grow by a tenth; until `samples_min` have
ended, the job with the least service goes first, as in Tiresias-L without queues.

Ranks change while jobs run, so a running job is ranked again whenever its service has grown by the
factor `step` (and first at the service quantum `delta`).

Source: ALGORITHMS section 6; delta 3250 GPU-s as in the public artifact, 0 for the exact index.
Knows: attained service, and the service of ended jobs. Stops running jobs: yes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.passes import Because, Keys, check_bypass, rank
from dovetail.core.plan import Draft
from dovetail.core.policy import register
from dovetail.core.view import View
from dovetail.mechanisms.ranking.learned_index import IndexPolicy


@register("gittins")
@dataclass(frozen=True, slots=True)
class Gittins(IndexPolicy):
    """2D Gittins index, preemptive. `delta` in GPU-seconds; `step` is a growth factor."""

    delta: float = 3250.0
    bypass: str = "skip"

    takes_parts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        # A dataclass with slots is made twice, which `super()` without arguments does not survive.
        IndexPolicy.__post_init__(self)
        check_bypass(self.bypass)

    def serve(self, view: View, keys: Keys) -> tuple[Draft | None, Because]:
        """Gives the GPUs to the jobs of the largest index."""
        return rank(view, keys, self.bypass)
