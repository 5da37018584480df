"""Hosts for a waiting job by what the pair gains (SJF-BSBF Algorithm 2, Theorem 1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dovetail.core.job import Floats, Ints
from dovetail.mechanisms.sharing.pair_tables import offers
from dovetail.mechanisms.sharing.shared_gpus import Seat, SharedGpus

GENEROUS = 1.0 + 1e-5
"""Factor of bounds, so that rounding excludes no host that the exact comparison accepts."""


@dataclass(frozen=True, slots=True)
class BestBenefit:
    """Joins the hosts that gain from it, best first."""

    by_benefit: bool
    weighs: ClassVar[bool] = True

    def offered(self, gpus: SharedGpus, guests: Ints, shortest_s: Floats) -> Ints:
        """Returns the GPUs of the hosts that gain from a job of each class and length."""
        bounds = _bounds_s(gpus, guests)
        return (bounds > shortest_s[:, None]) @ gpus.alone

    def seat(self, gpus: SharedGpus, guest: int, length_s: float, need: int) -> Seat | None:
        """Returns GPUs of the best hosts until the gang is complete, part of the last host's."""
        wanted = int(gpus.rules.guest_gpus[guest])
        hosts: list[tuple[int, int]] = []
        steps, taken = 1, 0
        for row, steps_there in self._best(gpus, guest, length_s, need):
            count = min(int(gpus.alone[row]), wanted - taken)
            hosts.append((row, count))
            steps = max(steps, steps_there)
            taken += count
            if taken == wanted:
                break
        return Seat(tuple(hosts), steps) if taken >= need else None

    def single_hosts(self, gpus: SharedGpus, guest: int, length_s: float) -> list[Seat]:
        """Returns places for the whole gang beside one host each, the best first."""
        wanted = int(gpus.rules.guest_gpus[guest])
        best = self._best(gpus, guest, length_s, wanted)
        return [Seat(((row, wanted),), steps) for row, steps in best if gpus.alone[row] >= wanted]

    def _best(
        self, gpus: SharedGpus, guest: int, length_s: float, need: int
    ) -> Iterator[tuple[int, int]]:
        """Yields the rows of hosts that gain, the best first, and the steps for each.

        Yields nothing if all of them together have fewer than `need` GPUs.
        """
        pairs = gpus.rules.pairs.row(guest)
        bounds = _bounds_s(gpus, np.array([guest]))[0]
        rows = np.flatnonzero((bounds > length_s) & (gpus.alone > 0))
        if int(gpus.alone[rows].sum()) < need:
            return
        offered = offers(pairs, gpus.hosts[rows], gpus.left_s[rows], length_s)
        value = -offered.benefit_s if self.by_benefit else offered.pair_s
        best = np.lexsort((gpus.jobs[rows], value))
        for place in best[offered.pays[best]].tolist():
            yield int(rows[place]), int(offered.steps[place])


def _bounds_s(gpus: SharedGpus, guests: Ints) -> Floats:
    """Returns, by class and host, the length from which on sharing does not pay."""
    reach = gpus.rules.pairs.reach[guests[:, None], gpus.hosts]
    return np.where(gpus.left_s > 0, gpus.left_s * reach * GENEROUS, 0.0)
