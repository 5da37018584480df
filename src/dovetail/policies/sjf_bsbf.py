"""SJF-BSBF: shortest job first; who finds too few free GPUs shares where both gain most from it.

A waiting job joins running ones when the mean completion time of the pair is clearly smaller
than if it waited for the host to end, its batch cut into as many accumulation steps as memory
asks for and no more than pay. It starts on a whole gang or not at all; nobody is ever stopped.

`priority=service` ranks by length times GPUs; `order=benefit` joins the hosts in order of what
sharing saves in place of the pair's completion time.

Source: SJF-BSBF Theorem 1, Algorithms 1 and 2, as settled in ALGORITHMS section 1. Knows:
length, interference, scaling, memory. Stops running jobs: no.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dovetail.core.job import Floats, Ints
from dovetail.core.order import Order
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.sharing.pair_tables import offers
from dovetail.mechanisms.sharing.shared_gpus import Seat, SharedGpus
from dovetail.mechanisms.sharing.sharing_pass import decide

PRIORITIES = ("time", "service")
ORDERS = ("pair-jct", "benefit")
GENEROUS = 1.0 + 1e-5
"""A bound must not leave out what the comparison to the last bit would take."""


def left_s(view: View, jobs: Sequence[int]) -> list[float]:
    """Returns the solo seconds waiting jobs need; progress made before a node was lost counts."""
    return view.progress.left_s(jobs)


def left_service(view: View, jobs: Sequence[int]) -> list[float]:
    """Returns the solo seconds waiting jobs need times the GPUs they ask for."""
    gpus = view.jobs.gpus
    return [s * int(gpus[j]) for j, s in zip(jobs, view.progress.left_s(jobs), strict=True)]


@dataclass(frozen=True, slots=True)
class BestBenefit:
    """Joins the hosts that gain from it, best first."""

    by_benefit: bool
    weighs: ClassVar[bool] = True

    def offered(self, gpus: SharedGpus, guests: Ints, shortest_s: Floats) -> Ints:
        """Returns the GPUs of the hosts that gain from a job of each class, of that length."""
        bounds = _bounds_s(gpus, guests)
        return (bounds > shortest_s[:, None]) @ gpus.alone

    def seat(self, gpus: SharedGpus, guest: int, length_s: float, need: int) -> Seat | None:
        """Returns GPUs of the best hosts until the gang is full, the last host's set cut."""
        wanted = int(gpus.rules.guest_gpus[guest])
        hosts: list[tuple[int, int]] = []
        steps, taken = 1, 0
        for row, asked in self._best(gpus, guest, length_s, need):
            count = min(int(gpus.alone[row]), wanted - taken)
            hosts.append((row, count))
            steps = max(steps, asked)
            taken += count
            if taken == wanted:
                break
        return Seat(tuple(hosts), steps) if taken >= need else None

    def single_hosts(self, gpus: SharedGpus, guest: int, length_s: float) -> list[Seat]:
        """Returns seats beside one host each that holds the whole gang, the best first."""
        wanted = int(gpus.rules.guest_gpus[guest])
        best = self._best(gpus, guest, length_s, wanted)
        return [Seat(((row, wanted),), steps) for row, steps in best if gpus.alone[row] >= wanted]

    def _best(
        self, gpus: SharedGpus, guest: int, length_s: float, need: int
    ) -> Iterator[tuple[int, int]]:
        """Yields the rows of hosts that gain, the best first, and the steps each asks for.

        None where all of them have fewer than `need` GPUs.
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
    """Returns, by class and host, the length from which a job does not gain from the host."""
    reach = gpus.rules.pairs.reach[guests[:, None], gpus.hosts]
    return np.where(gpus.left_s > 0, gpus.left_s * reach * GENEROUS, 0.0)


_RANK = {"time": Order(left_s), "service": Order(left_service)}


@register("sjf-bsbf")
@dataclass(frozen=True, slots=True)
class SjfBsbf:
    """Shortest job first with best sharing benefit first; non-preemptive."""

    priority: str = "time"
    order_hosts: str = "pair-jct"

    knows: ClassVar[frozenset[str]] = frozenset({"length", "interference", "scaling", "memory"})
    powers: ClassVar[frozenset[str]] = frozenset({"share"})
    initial: ClassVar[None] = None

    def __post_init__(self) -> None:
        if self.priority not in PRIORITIES:
            raise ValueError(f"priority is time or service, not '{self.priority}'")
        if self.order_hosts not in ORDERS:
            raise ValueError(f"order-hosts is pair-jct or benefit, not '{self.order_hosts}'")

    @property
    def order(self) -> Order:
        """Returns the rank of the waiting jobs: forecast length, or length times GPUs."""
        return _RANK[self.priority]

    def decide(self, view: View, memory: object) -> Decision:
        """Starts the shortest jobs that find GPUs, free ones or with a host that gains."""
        beside = BestBenefit(self.order_hosts == "benefit")
        return decide(view, memory, beside, by_service=self.priority == "service")
