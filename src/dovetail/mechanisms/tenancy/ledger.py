"""What the wrapper remembers: the use of tenants, stops of jobs, and the inner policy."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import inf

from dovetail.core.messages import Reason
from dovetail.core.order import Order
from dovetail.core.policy import Decision
from dovetail.core.view import View
from dovetail.mechanisms.tenancy.reclaim import Reclaimed
from dovetail.mechanisms.tenancy.standing import TenantStanding
from dovetail.mechanisms.tenancy.usage import NO_USE, Path, Usage, charged


@dataclass(frozen=True, slots=True)
class TenantLedger:
    """The memory of the inner policy with the jobs it knows, and the accounts of all tenants.

    `stops` are the times that each job was stopped; `noticed` when borrowers were chosen, `claims`
    since when jobs wait for them. `order` is the last that the inner policy returned,
    `relieved` are jobs that the guard started, and until when they may not be stopped.
    """

    inner: object
    wake_s: float = inf
    known: frozenset[int] = frozenset()
    alone: bool = True
    usage: Usage = NO_USE
    stops: tuple[tuple[int, int], ...] = ()
    noticed: tuple[tuple[int, float], ...] = ()
    claims: tuple[tuple[int, float], ...] = ()
    order: Order | None = None
    relieved: tuple[tuple[int, float], ...] = ()


def noted(
    standing: TenantStanding,
    memory: TenantLedger,
    used: Mapping[Path, float],
    decision: Decision,
    shown: list[int],
    given: Reclaimed,
    wake_s: float,
    unseen: Collection[int] = (),
) -> Decision:
    """Returns a decision with the accounts of all tenants in its memory.

    `shown` are the jobs that the inner policy saw, `given` what was reclaimed. `unseen` jobs may
    run, but not for all that the inner policy knows.
    """
    view, draft = standing.view, decision.draft
    placed = view.running if draft is None else draft.placed
    held = {job: placement.gpus for job, placement in placed.items()}
    stops = {job: n for job, n in memory.stops if job not in view.changes.ended}
    for change in draft.changes() if draft is not None else ():
        if change.after is None:
            stops[change.job] = stops.get(change.job, 0) + 1
    ledger = replace(
        memory,
        inner=decision.memory,
        wake_s=decision.wake_at,
        known=frozenset(shown).union(held).difference(unseen),
        order=decision.order or memory.order,
        usage=Usage.after(view.now, used, standing.tree, charged(view, standing.tree, held)),
        stops=tuple(sorted(stops.items())),
        noticed=tuple(sorted(given.notices.items())),
        claims=tuple(sorted(given.claims.items())),
    )
    because = _because(view, decision, shown, given)
    return replace(decision, memory=ledger, wake_at=wake_s, because=because)


def _because(
    view: View, decision: Decision, shown: list[int], given: Reclaimed
) -> tuple[Reason, ...] | None:
    """Returns why jobs wait: those with guarantees or too long, those seen, and all others."""
    inner = decision.because
    if inner is None and not given.because:
        return None
    seen = [reason for reason in inner or () if reason.job not in given.blocked]
    general = any(reason.job < 0 and reason.shape < 0 for reason in seen)
    if len(shown) < len(view.waiting) and not general:
        seen.append(Reason("Priority"))
    return (*given.because, *seen)
