"""Optimus: one GPU each, then each further GPU to the job whose remaining time falls most.

In order of submission each job gets its least share; a job that does not fit is skipped. Then, one
at a time, a GPU goes to the elastic job with the largest drop in remaining time, `left/p(c) -
left/p(c+1)`, while any drop is above zero, up to each job's limit. Decided anew at every event, as
in the study of AFS, or each `interval` seconds, as the original does (600 s). With
`packing=defragment` spread jobs are brought together where that pays.

Source: Optimus (EuroSys 2018) section 4.1, workers only; AFS section 5.1; ALGORITHMS section 6.
Knows: length and scaling, both taken as exact. Stops running jobs: yes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from dovetail.core.job import Floats, Ints
from dovetail.core.order import Order
from dovetail.core.parameters import check_period
from dovetail.core.policy import Decision, register
from dovetail.core.resizing import reshare
from dovetail.core.view import View
from dovetail.mechanisms.elastic.budget import admitted_within
from dovetail.mechanisms.elastic.by_count import by_submission, pool_gpus
from dovetail.mechanisms.elastic.defragmenting import (
    DEFRAGMENT,
    SPREAD,
    check_packing,
    defragmented,
)
from dovetail.mechanisms.elastic.marginal_shares import grown
from dovetail.mechanisms.elastic.shares import waits


@register("optimus")
@dataclass(frozen=True, slots=True)
class Optimus:
    """Greedy marginal gain in remaining time; elastic and preemptive. `interval` in seconds."""

    interval: float = 0.0
    packing: str = SPREAD

    knows: ClassVar[frozenset[str]] = frozenset({"length", "scaling"})
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate", "resize"})
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[float] = -inf

    def __post_init__(self) -> None:
        if self.interval:
            check_period("interval", self.interval)
        check_packing(self.packing)

    def decide(self, view: View, memory: object) -> Decision:
        """Computes all shares anew; between two intervals nothing changes."""
        assert isinstance(memory, float)
        due_s = memory
        if view.now < due_s:
            return Decision(memory=due_s, wake_at=due_s)
        jobs, shares = self._shares(view)
        draft = reshare(view, dict(zip(jobs.tolist(), shares.tolist(), strict=True)))
        if self.packing == DEFRAGMENT:
            draft = defragmented(view, draft)
        because = waits(view, draft)
        if not self.interval or not (draft.placed or view.waiting):
            return Decision(draft, memory=memory, because=because)
        due_s = view.now + self.interval
        return Decision(draft, memory=due_s, wake_at=due_s, because=because)

    def _shares(self, view: View) -> tuple[Ints, Ints]:
        present, pool = by_submission(view), pool_gpus(view)
        table = view.jobs
        least = np.where(table.elastic, table.min_gpus, table.gpus)[present]
        served = admitted_within(view, present, least, pool)
        jobs, shares = present[served], least[served]
        return jobs, grown(view, jobs, shares, pool - int(shares.sum()), _drops)


def _drops(view: View, jobs: Ints, speeds: Floats) -> Floats:
    """Returns the drop in remaining time by each further GPU."""
    left_s = np.array(view.progress.left_s(jobs.tolist()))
    return np.asarray(-np.diff(left_s[:, None] / speeds, axis=1))
