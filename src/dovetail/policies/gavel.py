"""Gavel: rounds by a linear programme for the time shares of jobs and of pairs of jobs.

At the start of each round it computes the time shares of single jobs and of pairs of equal size so
that the last job ends as early as possible (`objective=makespan`), or so that the least work per
second of any job, in GPU time, is largest (`fairness`). Then the combinations that lack most of
their share run, as many as fit, and other jobs on left-over GPUs. GPUs that become free during a
round stay idle until the next.

GIMBAL's relaxation is `unequal`: then jobs of other sizes share as well, in co-location sets
that are stars.

Source: Gavel (OSDI 2020) sections 3 to 5; ALGORITHMS section 6. Knows: length, interference,
memory. Stops running jobs: yes, between rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.parameters import check_period
from dovetail.core.plan import Draft
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.elastic.shares import waits
from dovetail.mechanisms.sharing.candidates import SharingCandidates
from dovetail.mechanisms.sharing.company_shares import ALONE, Programme
from dovetail.mechanisms.sharing.named_gpus import neighbours
from dovetail.mechanisms.sharing.rounds import Had, RoundClaims, seat


@register("gavel")
@dataclass(frozen=True, slots=True)
class Gavel:
    """Time shares by a linear programme, in rounds of `round` seconds; preemptive.

    Jobs of one kind whose times left differ by less than the part `alike` count as equal.
    """

    objective: str = "makespan"
    unequal: bool = False
    round: float = 360.0
    alike: float = 0.1

    knows: ClassVar[frozenset[str]] = frozenset({"length", "interference", "memory"})
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate", "share"})
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[Had] = Had()

    def __post_init__(self) -> None:
        Programme(self.objective, self.unequal, self.alike)
        check_period("round", self.round)

    def decide(self, view: View, memory: object) -> Decision:
        """Plans a round when the last one is over or nothing runs."""
        assert isinstance(memory, Had)
        if view.running and view.now < memory.next_s:
            return Decision(None, memory, memory.next_s, waits(view, None))
        preemptible = view.preemptible
        settled = [j for j in view.running if not preemptible[j]]
        there = [*(j for j in view.running if preemptible[j]), *view.waiting]
        if not there:
            return Decision(None, Had(), inf, ())
        draft = view.plan.draft()
        seat(view, draft, self._chosen(view, sorted(there), memory))
        self._fill(view, draft, there)
        next_s = view.now + self.round
        had = memory.after(_company_kinds(view, draft, settled), there, next_s)
        return Decision(draft, had, next_s, waits(view, draft))

    def _chosen(
        self, view: View, there: Sequence[int], memory: Had
    ) -> list[tuple[int, tuple[int, ...]]]:
        """Returns the hosts of this round, with their guests."""
        running = view.running
        held = {gpu for job in there if job in running for gpu in running[job].named()}
        counted = sum(
            running[job].gpus for job in there if job in running and not running[job].gpu_ids
        )
        gpus = view.plan.free_gpus + len(held) + counted
        if sum(view.shape(job).gpus for job in there) <= gpus:
            return [(job, ()) for job in there]
        programme = Programme(self.objective, self.unequal, self.alike)
        groups = programme.groups(view, there)
        return RoundClaims(groups, programme.solve(view, groups, gpus), memory).chosen(gpus)

    def _fill(self, view: View, draft: Draft, there: Sequence[int]) -> None:
        """Starts jobs that were not chosen on left-over GPUs, the longest left first."""
        company = SharingCandidates(view, draft, lambda job: False)
        left = dict(zip(there, view.progress.left_s(there), strict=True))
        failed: set[int] = set()
        for job in sorted(there, key=lambda j: (-left[j], j)):
            if not draft.free_gpus:
                return
            if job in draft.placed or view.shape_of[job] in failed:
                continue
            if not company.start(job):
                failed.add(view.shape_of[job])


def _company_kinds(view: View, draft: Draft, settled: Sequence[int]) -> dict[int, int]:
    """Returns the kind of the partner of each running job that may be stopped."""
    kind_of = view.physics.kind_of
    return {
        job: min((int(kind_of[n]) for n in neighbours(draft, job, placement)), default=ALONE)
        for job, placement in draft.placed.items()
        if job not in settled
    }
