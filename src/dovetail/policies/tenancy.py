"""Tenants around another policy: fair shares, guarantees that come back, and nobody starves.

The queues, accounts and users of the cluster's file take turns: jobs within what is guaranteed to
their queue first, then by tier (guaranteed, normal, spot) and priority of the queue, then whoever
holds and has used least for its weight, level by level; use counts half after `half-life-s`. The
jobs of one tenant go by `priority` and then as `inner` ranks them, which also chooses the GPUs. An
`inner` that stops, resizes or shares sees about a cluster full of the first turns.

`reclaim`: GPUs that are guaranteed to a queue and lent to others come back on demand. Jobs are
stopped for it, spot queues first, then those furthest above what they deserve, the youngest first;
none before it ran `min-run-s`, none more often than `budget` times (0: no limit), each `grace-s`
after it was chosen. `min-run-s` and `budget` also hold for `inner`. A job that waits longer than
`guard-s` goes before all others, and GPUs that get free are kept for it.

Source: water filling and reclaim as in YARN's capacity scheduler, Kueue and Run:ai; fair tree and
decay as in Slurm. Knows: what `inner` knows. Stops running jobs: if `reclaim` or `inner` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from dovetail.core.order import Order
from dovetail.core.parameters import check_period
from dovetail.core.policy import Decision, Policy, register
from dovetail.core.view import View
from dovetail.mechanisms.tenancy import gate
from dovetail.mechanisms.tenancy.ledger import TenantLedger, noted
from dovetail.mechanisms.tenancy.reclaim import Reclaim, Reclaimed, Terms
from dovetail.mechanisms.tenancy.standing import TenantStanding
from dovetail.mechanisms.tenancy.turns import turns
from dovetail.policies.fifo import Fifo

SOON_S = 1.0
"""When the inner policy is asked again after GPUs were reclaimed."""


@register("tenancy")
@dataclass(frozen=True, slots=True)
class Tenancy:
    """`inner`, with turns for tenants. Times in seconds."""

    inner: Policy = field(default_factory=Fifo)
    half_life_s: float = 604800.0
    reclaim: bool = True
    min_run_s: float = 0.0
    budget: int = 0
    grace_s: float = 0.0
    guard_s: float = inf

    def __post_init__(self) -> None:
        check_period("half-life-s", self.half_life_s)
        if self.guard_s != inf:
            check_period("guard-s", self.guard_s)
        if not (0 <= self.min_run_s < inf and 0 <= self.grace_s < inf):
            raise ValueError("min-run-s and grace-s are numbers of seconds from 0 on")
        if self.budget < 0:
            raise ValueError(f"budget is a number of stops, 0 for no limit, not {self.budget}")
        if isinstance(self.inner, Tenancy):
            raise ValueError("inner is another policy: tenants take turns once")

    @property
    def knows(self) -> frozenset[str]:
        """Returns the knowledge of the inner policy."""
        return self.inner.knows

    @property
    def powers(self) -> frozenset[str]:
        """Returns the powers of the inner policy, and `preempt` to reclaim."""
        return self.inner.powers | ({"preempt"} if self.reclaim else frozenset())

    @property
    def heeds(self) -> frozenset[str]:
        """Returns the wishes of jobs that it heeds."""
        return frozenset({"priority"})

    @property
    def order(self) -> Order:
        """Returns the order of the inner policy."""
        return self.inner.order

    @property
    def initial(self) -> TenantLedger:
        """Returns the memory before the first decision."""
        return TenantLedger(self.inner.initial)

    def decide(self, view: View, memory: object) -> Decision:
        """Calls the inner policy for the jobs whose turn it is, or gives lent GPUs back."""
        assert isinstance(memory, TenantLedger)
        alone = self._is_alone(view)
        if alone != memory.alone:
            memory = replace(memory, inner=self.inner.initial, known=frozenset(), alone=alone)
        if alone:
            decided = self.inner.decide(view, memory.inner)
            return replace(decided, memory=replace(memory, inner=decided.memory))
        return self._taking_turns(view, memory)

    def _taking_turns(self, view: View, memory: TenantLedger) -> Decision:
        used = memory.usage.until(view.now, self.half_life_s)
        standing = TenantStanding.of(view, used)
        makes_room = bool(self.inner.powers & gate.MAKES_ROOM)
        gpus = view.cluster.gpus if makes_room else view.plan.free_gpus
        waiting = turns(standing, gpus) if len(view.waiting) else []
        guarded, guard_s = self._guarded(view)
        jobs = list(dict.fromkeys([*guarded, *(t.job for t in waiting)]))
        due = [t.job for t in waiting if t.guaranteed and self.reclaim]
        urgent = list(dict.fromkeys([*guarded, *due]))
        given = self._given_back(standing, memory, guarded, urgent)
        if given.draft is not None and "resize" not in self.inner.powers:
            return self._stopped(standing, memory, used, given)
        # The inner policy must find the plan as it runs.
        view.plan.discard()
        shown = self._shown(view, jobs, given, makes_room)
        decision = self._asked(view, memory, standing, shown, makes_room)
        passed = makes_room and not given.blocked and not _places(view, decision, guarded)
        if passed:
            shown = guarded
            decision = self._asked(view, memory, standing, shown, makes_room)
        # The inner policy may have made room by itself, without stopping anybody.
        if given.draft is not None and not _places(view, decision, given.served):
            given = self._given_back(standing, memory, guarded, urgent)
            return self._stopped(standing, memory, used, given)
        soon_s = view.now + SOON_S if passed else inf
        wake_s = min(decision.wake_at, guard_s, given.wake_s, soon_s, self._settled_until(view))
        return noted(standing, memory, used, decision, shown, given, wake_s)

    def _is_alone(self, view: View) -> bool:
        """Returns whether there is one tenant, and nothing for the wrapper to decide."""
        cluster = view.cluster
        if len(cluster.queues) > 1 or cluster.accounts or self.guard_s < inf:
            return False
        # Jobs that name no queue of the file are another tenant, who may have borrowed.
        ranks = any(q.guaranteed for q in cluster.queues)
        ranks = ranks or bool(view.jobs.priority.any()) or any(q.priority for q in cluster.qos)
        return not (ranks or self.min_run_s or self.budget)

    @property
    def _terms(self) -> Terms:
        return Terms(self.min_run_s, self.budget, self.grace_s)

    def _guarded(self, view: View) -> tuple[list[int], float]:
        """Returns the jobs that waited too long, the longest first, and when the next one will."""
        if self.guard_s == inf or not len(view.waiting):
            return [], inf
        since_s = view.progress.pending_since_s
        due = sorted((since_s(job) + self.guard_s, job) for job in view.waiting)
        later = (due_s for due_s, _ in due if due_s > view.now)
        return [job for due_s, job in due if due_s <= view.now], next(later, inf)

    def _given_back(
        self, standing: TenantStanding, memory: TenantLedger, guarded: list[int], urgent: list[int]
    ) -> Reclaimed:
        """Tries to start jobs that go before all others, on the GPUs of borrowers if need be."""
        if not urgent:
            return Reclaimed()
        reclaim = Reclaim(standing, self._terms, dict(memory.stops), dict(memory.noticed))
        for job in urgent:
            if job in guarded:
                reclaim.reserve(job)
            else:
                reclaim.serve(job)
        return reclaim.result

    def _shown(
        self,
        view: View,
        jobs: list[int],
        given: Reclaimed,
        makes_room: bool,
    ) -> list[int]:
        """Returns the jobs that the inner policy sees, in order of their turns."""
        if given.blocked or given.draft is not None:
            first = [*given.ready, *given.blocked, *given.served]
            others = [job for job in jobs if job not in first]
            return [*first, *gate.beside(view, others, first)]
        return gate.first_turns(view, jobs) if makes_room else jobs

    def _asked(
        self,
        view: View,
        memory: TenantLedger,
        standing: TenantStanding,
        shown: list[int],
        makes_room: bool,
    ) -> Decision:
        """Returns the decision of the inner policy on the jobs that it sees."""
        queue = (gate.by_own_key if makes_room else gate.in_order)(view, shown)
        woke = view.changes.woke and memory.wake_s <= view.now
        changes = gate.changes_of(view, memory.known, frozenset(shown), woke=woke)
        seen = replace(view, waiting=queue, changes=changes)
        if makes_room:
            kept = gate.settled(standing, shown, self._terms, dict(memory.stops))
            seen = gate.with_settled(seen, kept)
        return self.inner.decide(seen, memory.inner)

    def _settled_until(self, view: View) -> float:
        """Returns when the next running job has run long enough to be stopped."""
        if not (self.min_run_s and len(view.waiting) and "preempt" in self.inner.powers):
            return inf
        since_s = view.progress.running_since_s
        ends = (since_s(job) + self.min_run_s for job in view.running)
        return min((end_s for end_s in ends if end_s > view.now), default=inf)

    def _stopped(
        self,
        standing: TenantStanding,
        memory: TenantLedger,
        used: Mapping[tuple[str, ...], float],
        given: Reclaimed,
    ) -> Decision:
        """Returns the decision that gives GPUs back; the inner policy begins anew after it."""
        began = Decision(given.draft, self.inner.initial)
        soon_s = standing.view.now + SOON_S
        anew = replace(memory, inner=self.inner.initial, known=frozenset())
        return noted(standing, anew, used, began, [], given, min(soon_s, given.wake_s))


def _places(view: View, decision: Decision, jobs: list[int]) -> bool:
    """Returns whether all jobs run after a decision."""
    placed = view.running if decision.draft is None else decision.draft.placed
    return all(job in placed for job in jobs)
