"""The example of GIMBAL's section 4.1: two jobs on one GPU whose mean falls from 7.5 h to 6 h."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from dovetail.core.beliefs import Neighbour
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable
from dovetail.core.placement import Placement
from dovetail.core.policy import parse_policy
from dovetail.core.trace import Trace
from dovetail.core.units import HOUR_S
from dovetail.forecast.forecasts import Known
from dovetail.physics.linear import LinearSharing, LinearStructure, linear_physics
from dovetail.physics.sharing.pair_law import Injected
from dovetail.sim.scene import Scene
from papers.gimbal_sets import MANNERS, PACKING, mean_jct_h, searched
from papers.trials import Numbers

ALONE_H = 5.0


class ExampleSharing(LinearSharing):
    """Free, job A takes 10 h beside job B, B takes 5 h; with B at a half, 5 h and 7 h.

    Alone each is taken to need 5 h. Between the two settings the paper says nothing: straight.
    """

    def utilization(self, job: int) -> float:
        """Returns that of a small job and of one that fills the GPU: B is the one to squeeze."""
        return 0.1 if job == 0 else 1.0

    def slowdown(self, job: int, placement: Placement, neighbours: Sequence[Neighbour]) -> float:
        """Returns the slowdown that the example implies."""
        return 1.0 / self._speed(job, placement, neighbours)

    def _speed(self, job: int, placement: Placement, neighbours: Sequence[Neighbour]) -> float:
        b = placement if job == 1 else neighbours[0][1] if neighbours else None
        limit = 0.0 if b is None else min(b.fractions or (1.0,))
        squeezed = min(1.0, (1 - limit) / 0.5)
        if job == 0:
            return 0.5 + 0.5 * squeezed
        return (1 - 2 / 7 * squeezed) * min(1.0, limit / 0.5) if neighbours else 1.0


@dataclass(frozen=True, slots=True)
class ExampleTrial:
    """The example under GIMBAL."""

    def play(self) -> Numbers:
        """Returns the means by the speeds of the moment, and through the world, in hours."""
        jobs = JobTable.build(
            ["A", "B"], np.zeros(2), np.ones(2, np.int64), shareable=np.ones(2, bool)
        )
        trace = Trace.of(jobs, np.full(2, ALONE_H * HOUR_S))
        sharing = ExampleSharing(LinearStructure(jobs), Injected())
        truth = replace(linear_physics(jobs), sharing=sharing)
        cluster = Cluster.parse("1x1")
        scene = Scene(
            trace=trace,
            cluster=cluster,
            truth=truth,
            belief=truth,
            forecast=Known(trace.duration_s),
        )
        policies = {
            name: parse_policy(f"gimbal:inner={PACKING}{MANNERS[name]}")
            for name in ("free competition", "early exit")
        }
        ends = {name: mean_jct_h(scene, policy) for name, policy in policies.items()}
        gain = searched(scene, policies["early exit"])["gain"]
        one = Placement(((0, 1),), ((0,),))
        free_h = fmean(ALONE_H / truth.rate(i, one, [(1 - i, one)]) for i in (0, 1))
        return {
            "free": free_h,
            "found": free_h / gain,
            "free through the world": ends["free competition"],
            "found through the world": ends["early exit"],
        }
