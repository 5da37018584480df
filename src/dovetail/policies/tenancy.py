"""Tenants around another policy: fair shares, guarantees that come back, and nobody starves.

The queues, accounts and users of the cluster's file take turns: jobs within what is guaranteed to
their queue first, then level by level by tier (guaranteed, normal, spot), priority of the queue,
and who holds and has used least above its guarantee for its weight; use counts half after
`half-life-s`. The jobs of one tenant go by `priority` and then as `inner` ranks them, which also
chooses the GPUs. An `inner` that stops or resizes sees the jobs whose turns fill the cluster.

`reclaim`: GPUs that are guaranteed to a queue and lent to others come back on demand. Jobs are
stopped for it, spot queues first, then those furthest above what they deserve, the youngest first;
none before it ran `min-run-s`, none more often than `budget` times (0: no limit), each `grace-s`
after it was chosen. `min-run-s` and `budget` also hold for `inner`. A job that waits longer than
`guard-s` goes before all others: GPUs that get free are kept for it, and it runs at least as long.

Source: water filling and reclaim as in YARN's capacity scheduler, Kueue and Run:ai; fair tree and
decay as in Slurm. Knows: what `inner` knows. Stops running jobs: if `reclaim` or `inner` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from dovetail.core.order import Order
from dovetail.core.parameters import check_period
from dovetail.core.policy import (
    Decision,
    Kept,
    Policy,
    heeded,
    kept_of,
    ranks_of,
    recalled,
    register,
    reserves,
    takes_parts,
)
from dovetail.core.view import View
from dovetail.mechanisms.tenancy import gate
from dovetail.mechanisms.tenancy.inner import InnerPolicy
from dovetail.mechanisms.tenancy.ledger import TENANTS, TenantLedger, noted
from dovetail.mechanisms.tenancy.reclaim import Reclaimed, Terms
from dovetail.mechanisms.tenancy.standing import TenantStanding, is_alone
from dovetail.mechanisms.tenancy.turns import TenantTurn, turns
from dovetail.mechanisms.tenancy.urgent import (
    Urgent,
    given_back,
    overdue_jobs,
    places,
    relieved,
    stops,
)
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
        """Returns the wishes that it or the inner policy heeds, and the guarantees of queues."""
        # Who may stop whom is for guarantees, terms and tiers to say, not for QOS as well.
        return heeded(self.inner) - {"preempts"} | {"priority", "guarantees"}

    @property
    def takes_parts(self) -> bool:
        """Returns whether the inner policy serves parts of GPUs."""
        return takes_parts(self.inner)

    @property
    def reserves(self) -> bool:
        """Returns whether the inner policy keeps GPUs free until a time."""
        return reserves(self.inner)

    @property
    def order(self) -> Order:
        """Returns the order of the inner policy."""
        return self.inner.order

    @property
    def initial(self) -> TenantLedger:
        """Returns the memory before the first decision."""
        return TenantLedger(self.inner.initial)

    def keep(self, memory: object, name_of: Callable[[int], str]) -> Kept:
        """Returns what outlives a controller: the accounts of tenants, and what `inner` keeps."""
        assert isinstance(memory, TenantLedger)
        own = {TENANTS: memory.kept(name_of, self.half_life_s)}
        return {**kept_of(self.inner, memory.inner, name_of), **own}

    def recall(self, kept: Kept, row_of: Mapping[str, int]) -> TenantLedger:
        """Returns the first memory after that of an earlier controller."""
        inner = recalled(self.inner, kept, row_of)
        return TenantLedger.recalled(inner, kept, row_of, self.half_life_s)

    def decide(self, view: View, memory: object) -> Decision:
        """Calls the inner policy for the jobs whose turn it is, or gives lent GPUs back."""
        assert isinstance(memory, TenantLedger)
        alone = not (self.guard_s < inf or self.min_run_s or self.budget) and is_alone(view)
        if alone != memory.alone:
            memory = replace(memory, inner=self.inner.initial, known=frozenset(), alone=alone)
        if alone:
            decided = self.inner.decide(view, memory.inner)
            if decided.memory is not memory.inner:
                memory = replace(memory, inner=decided.memory)
            return replace(decided, memory=memory)
        return self._taking_turns(view, memory)

    def _taking_turns(self, view: View, memory: TenantLedger) -> Decision:
        used = memory.usage.until(view.now, self.half_life_s)
        standing = TenantStanding.of(view, used)
        gpus = view.cluster.gpus if self._makes_room else view.plan.free_gpus
        overdue, guard_s = overdue_jobs(view, self.guard_s)
        waiting: list[TenantTurn] = []
        if len(view.waiting):
            ranks = ranks_of(self.inner, view, memory.inner)
            waiting = turns(standing, gpus, overdue, ranks=ranks)
        urgent = Urgent.of(waiting, overdue, reclaim=self.reclaim, by_hand=self._makes_room)
        given = given_back(standing, self._terms, memory, urgent)
        later_s = guard_s
        if "preempt" in self.powers:
            least_s = self.min_run_s if "preempt" in self.inner.powers else 0.0
            later_s = min(guard_s, gate.settled_until_s(view, memory, least_s))
        resized = "resize" in self.inner.powers and given.served and not urgent.by_hand
        if given.draft is not None and not resized:
            return self._stopped(standing, memory, used, given, later_s)
        # The inner policy must find the plan as it runs.
        view.plan.discard()
        answer = InnerPolicy(self.inner, self._terms, standing, memory).answer(waiting, given)
        decision = answer.decision
        # The inner policy may have made room by itself, without stopping anybody.
        if not places(view, decision, [*given.ready, *given.served]):
            given = given_back(standing, self._terms, memory, urgent, by_itself=True)
            return self._stopped(standing, memory, used, given, later_s)
        wake_s = min(decision.wake_at, given.wake_s, later_s)
        if answer.partial or (len(urgent.guarded) < len(overdue) and stops(decision)):
            # What it stopped may be what the limit of a tenant held an overdue job back for.
            wake_s = min(wake_s, view.now + SOON_S)
        return noted(standing, memory, used, decision, answer.shown, given, wake_s, answer.unseen)

    @property
    def _terms(self) -> Terms:
        return Terms(self.min_run_s, self.budget, self.grace_s)

    @property
    def _makes_room(self) -> bool:
        return bool(self.inner.powers & gate.MAKES_ROOM)

    def _stopped(
        self,
        standing: TenantStanding,
        memory: TenantLedger,
        used: Mapping[tuple[str, ...], float],
        given: Reclaimed,
        later_s: float,
    ) -> Decision:
        """Returns the decision that gives GPUs back; the inner policy begins anew after it."""
        anew = relieved(replace(memory, inner=self.inner.initial), given, standing, self.guard_s)
        draft = given.draft if given.draft is not None and given.draft.changes() else None
        soon_s = inf if draft is None else standing.view.now + SOON_S
        wake_s = min(soon_s, given.wake_s, later_s)
        return noted(standing, anew, used, Decision(draft, anew.inner), [], given, wake_s)
