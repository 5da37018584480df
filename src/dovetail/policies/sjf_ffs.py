"""SJF-FFS: shortest job first; with too few free GPUs, share the first GPUs that fit.

Like SJF-BSBF without its theorem: free GPUs first, then GPUs with one job in order of their
numbers, if both jobs fit the memory, with the largest sub-batch that fits.

Source: SJF-BSBF section VI.A (baseline 4), as settled in ALGORITHMS section 1.4. Knows: length,
memory. Stops running jobs: no.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dovetail.core.job import Floats, Ints
from dovetail.core.order import Order
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.sharing.named_gpus import Gpu
from dovetail.mechanisms.sharing.shared_gpus import Seat, SharedGpus
from dovetail.mechanisms.sharing.sharing_pass import decide
from dovetail.policies.sjf_bsbf import PRIORITIES, left_s, left_service


@dataclass(frozen=True, slots=True)
class FirstFit:
    """Takes all free GPUs and then the first GPUs with one job and enough memory."""

    weighs: ClassVar[bool] = False

    def offered(self, gpus: SharedGpus, guests: Ints, shortest_s: Floats) -> Ints:
        """Returns the GPUs with memory for a job of each class, of any length."""
        return (gpus.rules.pairs.fewest[guests[:, None], gpus.hosts] > 0) @ gpus.alone

    def seat(self, gpus: SharedGpus, guest: int, length_s: float, need: int) -> Seat | None:
        """Returns the first GPUs that fit, by node and number."""
        gpus.rules.pairs.row(guest)
        fewest = gpus.rules.pairs.fewest[guest][gpus.hosts]
        if int(gpus.alone[fewest > 0].sum()) < need:
            return None
        counts: dict[int, int] = {}
        chosen: list[Gpu] = []
        for gpu, row in _in_order(gpus, fewest):
            chosen.append(gpu)
            counts[row] = counts.get(row, 0) + 1
            if len(chosen) == need:
                steps = max(int(fewest[row]) for row in counts)
                return Seat(tuple(counts.items()), steps, tuple(chosen))
        return None

    def single_hosts(self, gpus: SharedGpus, guest: int, length_s: float) -> list[Seat]:
        """Returns places for the whole gang beside one host each, by its first GPU."""
        wanted = int(gpus.rules.guest_gpus[guest])
        fewest = gpus.rules.pairs.fewest[guest][gpus.hosts]
        rows = dict.fromkeys(row for _, row in _in_order(gpus, fewest))
        whole = (row for row in rows if gpus.alone[row] >= wanted)
        return [Seat(((row, wanted),), int(fewest[row])) for row in whole]


def _in_order(gpus: SharedGpus, fewest: Ints) -> Iterator[tuple[Gpu, int]]:
    """Yields the GPUs that a guest may share and the row of their host, by node and number.

    `fewest` are the steps with which it fits each row, 0 where it does not.
    """
    gpus.name_hosts()
    usable = np.flatnonzero((gpus.alone > 0) & (fewest > 0))
    row_of = dict(zip(gpus.jobs[usable].tolist(), usable.tolist(), strict=True))
    for gpu, job in gpus.single():
        if job in row_of:
            yield gpu, row_of[job]


_RANK = {"time": Order(left_s), "service": Order(left_service)}


@register("sjf-ffs")
@dataclass(frozen=True, slots=True)
class SjfFfs:
    """Shortest job first with first-fit sharing; non-preemptive."""

    priority: str = "time"

    knows: ClassVar[frozenset[str]] = frozenset({"length", "memory"})
    powers: ClassVar[frozenset[str]] = frozenset({"share"})
    initial: ClassVar[None] = None

    def __post_init__(self) -> None:
        if self.priority not in PRIORITIES:
            raise ValueError(f"priority is time or service, not '{self.priority}'")

    @property
    def order(self) -> Order:
        """Returns the rank of the waiting jobs: forecast length, or length times GPUs."""
        return _RANK[self.priority]

    def decide(self, view: View, memory: object) -> Decision:
        """Starts the shortest jobs on free GPUs or beside one other job."""
        return decide(view, memory, FirstFit(), by_service=self.priority == "service")
