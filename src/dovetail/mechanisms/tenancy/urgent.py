"""Starts the jobs that go before all others: overdue ones, and those within guarantees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from dovetail.core.policy import Decision
from dovetail.core.view import View
from dovetail.mechanisms.tenancy import gate
from dovetail.mechanisms.tenancy.ledger import TenantLedger
from dovetail.mechanisms.tenancy.reclaim import Reclaim, Reclaimed, Terms
from dovetail.mechanisms.tenancy.standing import TenantStanding
from dovetail.mechanisms.tenancy.turns import TenantTurn


@dataclass(frozen=True, slots=True)
class Urgent:
    """Jobs that waited beyond the guard, and jobs within what is guaranteed to their queue.

    `by_hand` are all jobs, in order, if none is left to the inner policy.
    """

    guarded: Sequence[int]
    due: Sequence[int]
    by_hand: Sequence[int] = ()

    @staticmethod
    def of(
        waiting: Sequence[TenantTurn], overdue: Sequence[int], *, reclaim: bool, by_hand: bool
    ) -> Urgent:
        """Returns the jobs that the wrapper starts by itself.

        With `by_hand` it starts all jobs while one is overdue: an inner policy with an order of its
        own would not start that one first.
        """
        free = [turn for turn in waiting if not turn.held]
        guarded = [turn.job for turn in free[: len(overdue)] if turn.job in overdue]
        due = [turn.job for turn in free if turn.guaranteed and reclaim]
        return Urgent(guarded, due, [turn.job for turn in free] if guarded and by_hand else [])


def overdue_jobs(view: View, guard_s: float) -> tuple[list[int], float]:
    """Returns the jobs that waited too long, the longest first, and when the next one will."""
    if guard_s == inf or not len(view.waiting):
        return [], inf
    since_s = view.progress.pending_since_s
    due = sorted((since_s(job) + guard_s, job) for job in view.waiting)
    later = (due_s for due_s, _ in due if due_s > view.now)
    return [job for due_s, job in due if due_s <= view.now], next(later, inf)


def given_back(
    standing: TenantStanding,
    terms: Terms,
    memory: TenantLedger,
    urgent: Urgent,
    *,
    by_itself: bool = False,
) -> Reclaimed:
    """Tries to start urgent jobs, on the GPUs of borrowers if need be.

    With `by_itself` also those that fit without it, if the inner policy would not start them.
    """
    if not urgent.guarded and not urgent.due:
        return Reclaimed()
    stays = gate.protected(standing.view, Terms(), memory)
    reclaim = Reclaim(standing, terms, dict(memory.stops), dict(memory.noticed), stays)
    for job in urgent.guarded:
        reclaim.reserve(job)
    claims = dict(memory.claims)
    # Who waits for noticed borrowers keeps its place, whoever comes meanwhile.
    others = [job for job in urgent.due if job not in urgent.guarded]
    for job in sorted(others, key=lambda j: claims.get(j, inf)):
        reclaim.serve(job)
    if urgent.by_hand:
        first = {*urgent.guarded, *urgent.due}
        reclaim.fill(job for job in urgent.by_hand if job not in first)
    given = reclaim.finish(by_itself=by_itself)
    given.claims = {job: claims.get(job, since_s) for job, since_s in given.claims.items()}
    return given


def relieved(
    memory: TenantLedger, given: Reclaimed, standing: TenantStanding, guard_s: float
) -> TenantLedger:
    """Returns the memory of an inner policy that begins anew, with the jobs the guard started.

    They may not be stopped for as long as the guard, or they would wait as long again.
    """
    now = standing.view.now
    until = dict(memory.relieved) | dict.fromkeys(given.relieved, now + guard_s)
    kept = tuple(sorted((job, t) for job, t in until.items() if now < t < inf))
    return replace(memory, known=frozenset(), relieved=kept)


def stops(decision: Decision) -> bool:
    """Returns whether a decision stops any job."""
    changes = () if decision.draft is None else decision.draft.changes()
    return any(change.after is None for change in changes)


def places(view: View, decision: Decision, jobs: Sequence[int]) -> bool:
    """Returns whether all jobs run after a decision."""
    placed = view.running if decision.draft is None else decision.draft.placed
    return all(job in placed for job in jobs)
