"""The best placement of a pipelined job on given GPUs, by integer programming: a yardstick.

Heavy-Edge cuts a graph and hopes for a short iteration; this minimises the iteration (7) itself,
as the paper's comparison does (A-SRPT section V.B.2-e). Minutes for what Heavy-Edge does in less
than a millisecond, so nothing schedules with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dovetail.algorithms.job_graph import GraphStage
from dovetail.algorithms.pipeline_time import Links, iteration_s, stage_parts

GAP = 1e-4
"""Relative gap at which a solution counts as best."""


class Exact(NamedTuple):
    """The iteration of the best placement found, what none can beat, and the placement.

    `replicas[m][s]` as in `pipeline_time.iteration_s`. Proven best where both seconds agree.
    """

    iteration_s: float
    bound_s: float
    replicas: list[list[float]]


def exact_replicas(
    stages: Sequence[GraphStage], capacities: Sequence[int], links: Links, *, limit_s: float = 60.0
) -> Exact | None:
    """Returns the best placement found within the time; None where nothing fits or was found."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    programme = _Programme(stages, capacities, links)
    found = milp(
        c=programme.cost,
        constraints=LinearConstraint(programme.rows, programme.low, programme.high),
        integrality=programme.whole,
        bounds=Bounds(0.0, programme.most),
        options={"time_limit": limit_s, "mip_rel_gap": GAP},
    )
    if found.x is None:
        return None
    replicas = programme.replicas(found.x)
    return Exact(iteration_s(stages, replicas, links), float(found.mip_dual_bound), replicas)


class _Programme:
    """Variable y[m, s, v] is 1 where server m holds v replicas of stage s; the last one is alpha.

    With the count known AllReduce (6) is a number and activations (5) are linear in the counts
    of the stages beside. A stage that is absent (v = 0) binds nothing.
    """

    def __init__(
        self, stages: Sequence[GraphStage], capacities: Sequence[int], links: Links
    ) -> None:
        self._stages, self._capacities = stages, capacities
        self._at: dict[tuple[int, int, int], int] = {}
        for m, gpus in enumerate(capacities):
            for s, stage in enumerate(stages):
                for v in range(min(stage.replicas, gpus // stage.slices) + 1):
                    self._at[m, s, v] = len(self._at)
        n = len(self._at) + 1
        self.cost = np.zeros(n)
        self.cost[-1] = 1.0
        self.whole = np.ones(n, np.int64)
        self.whole[-1] = 0
        self.most = np.ones(n)
        self.most[-1] = np.inf
        rows, low, high = [], [], []
        for row, least, most in (*self._counts(n), *self._times(n, links)):
            rows.append(row)
            low.append(least)
            high.append(most)
        self.rows, self.low, self.high = np.array(rows), np.array(low), np.array(high)

    def _counts(self, n: int) -> list[tuple[np.ndarray, float, float]]:
        """Returns: one count for each server and stage, all replicas placed, servers not over."""
        found = []
        servers, stages = range(len(self._capacities)), range(len(self._stages))
        one = np.zeros((len(self._capacities), len(self._stages), n))
        held = np.zeros_like(one)
        for (m, s, v), at in self._at.items():
            one[m, s, at] = 1.0
            held[m, s, at] = v
        found += [(one[m, s], 1.0, 1.0) for m in servers for s in stages]
        for s, stage in enumerate(self._stages):
            found.append((held[:, s].sum(axis=0), float(stage.replicas), float(stage.replicas)))
        widths = np.array([stage.slices for stage in self._stages])
        for m, gpus in enumerate(self._capacities):
            found.append((widths @ held[m], 0.0, float(gpus)))
        return found

    def _times(self, n: int, links: Links) -> list[tuple[np.ndarray, float, float]]:
        """Returns `alpha >= comp + comm + AR` wherever a stage is present."""
        found = []
        for m in range(len(self._capacities)):
            for s in range(len(self._stages)):
                alone = [0.0] * len(self._stages)
                alone[s] = 1.0
                compute_s, apart_s, _ = stage_parts(self._stages, s, alone, links)
                row = np.zeros(n)
                row[-1] = -1.0
                for v in range(1, self._most(m, s) + 1):
                    held = list(alone)
                    held[s] = float(v)
                    reduce_s = stage_parts(self._stages, s, held, links).all_reduce_s
                    row[self._at[m, s, v]] = reduce_s + compute_s + apart_s
                for near in (s - 1, s + 1):
                    if 0 <= near < len(self._stages):
                        saved_s = self._saved_s(s, near, alone, apart_s, links)
                        for v in range(1, self._most(m, near) + 1):
                            row[self._at[m, near, v]] -= v * saved_s
                found.append((row, -np.inf, 0.0))
        return found

    def _most(self, m: int, s: int) -> int:
        stage = self._stages[s]
        return min(stage.replicas, self._capacities[m] // stage.slices)

    def _saved_s(
        self, s: int, near: int, alone: Sequence[float], apart_s: float, links: Links
    ) -> float:
        """Returns what one replica of the stage beside saves by being on the same server."""
        beside = list(alone)
        beside[near] = 1.0
        return apart_s - stage_parts(self._stages, s, beside, links).exchange_s

    def replicas(self, chosen: np.ndarray) -> list[list[float]]:
        """Returns the counts of a solution."""
        held = [[0.0] * len(self._stages) for _ in self._capacities]
        for (m, s, v), at in self._at.items():
            if v and chosen[at] > 0.5:
                held[m][s] = float(v)
        return held
