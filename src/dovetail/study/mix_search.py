"""The smallest cluster for a target where GPUs are of several types: how many nodes of each.

Almost every job can run on one type, so whether it meets the target depends on the nodes of that
type. One simulation therefore tells of each type how many jobs a number of its nodes serves. The
search combines these numbers to the mix that should reach the target with least, simulates it, and
tries numbers between until one node less of any type misses the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from dovetail.core.job import Floats

Mix = tuple[int, ...]
"""The number of nodes of each group."""
FACTORS = (1.0, 0.25, 0.5, 0.75, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
"""The sizes that are simulated first, as parts of the cluster there is."""
TRIES_MAX = 120
MIXES_MAX = 1_000_000
TOLERANCE = 1e-9


@dataclass(slots=True)
class MixSearch:
    """Which mixes to try next, given what those tried so far do.

    `weights` is what a node of each group counts, in GPUs or money. `served` are, for each group
    and number of its nodes, the fewest jobs of that group that met the target; `wanted_jobs` is
    how many must.
    """

    start: Mix
    weights: Floats
    wanted_jobs: float
    reached: dict[Mix, bool] = field(default_factory=dict)
    served: list[dict[int, float]] = field(default_factory=list)

    def wanted(self) -> list[Mix]:
        """Returns the mixes to try next; none when the search is over."""
        if not self.reached:
            return list(dict.fromkeys(self._scaled(factor) for factor in FACTORS))
        best = self.answer
        if best is None or len(self.reached) >= TRIES_MAX:
            return []
        promising = self._promising(best)
        if promising is not None:
            return [promising]
        return [mix for mix in self._smaller(best) if mix not in self.reached]

    @property
    def answer(self) -> Mix | None:
        """Returns the mix that reached the target with least so far, None if none did."""
        found = [mix for mix, enough in self.reached.items() if enough]
        return min(found, key=lambda mix: (self.weight(mix), mix), default=None)

    def weight(self, mix: Mix) -> float:
        """Returns what a mix counts."""
        return float(np.dot(self.weights, mix))

    def note(self, mix: Mix, served: Sequence[float], *, keeps_all: bool) -> None:
        """Notes how many jobs of each group a mix served, and whether it left out no job."""
        self.reached[mix] = keeps_all and sum(served) >= self.wanted_jobs - TOLERANCE
        self.served = self.served or [{} for _ in mix]
        for known, nodes, jobs in zip(self.served, mix, served, strict=True):
            known[nodes] = min(jobs, known.get(nodes, jobs))

    def _scaled(self, factor: float) -> Mix:
        return tuple(max(1, round(nodes * factor)) for nodes in self.start)

    def _promising(self, best: Mix) -> Mix | None:
        """Returns the untried mix of tried numbers that should reach it with less than `best`."""
        counts = [sorted(known) for known in self.served]
        if np.prod([len(numbers) for numbers in counts]) > MIXES_MAX:
            return None
        most, found = self.weight(best) - TOLERANCE, None
        for mix in product(*counts):
            weight = self.weight(mix)
            pairs = zip(self.served, mix, strict=True)
            if weight < most and mix not in self.reached:
                jobs = sum(known[nodes] for known, nodes in pairs)
                if jobs >= self.wanted_jobs - TOLERANCE:
                    most, found = weight, mix
        return found

    def _smaller(self, best: Mix) -> list[Mix]:
        """Returns the mixes halfway from `best` to the next tried number below, of each group."""
        mixes = []
        for at, nodes in enumerate(best):
            below = max((n for n in self.served[at] if n < nodes), default=0)
            fewer = max(1, (below + nodes) // 2 if nodes - below > 1 else nodes - 1)
            mixes.append((*best[:at], fewer, *best[at + 1 :]))
        return [mix for mix in mixes if mix != best]
