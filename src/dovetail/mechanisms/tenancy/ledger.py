"""What the wrapper remembers: the use of tenants, stops of jobs, and the inner policy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import cast

from dovetail.core.messages import Reason
from dovetail.core.order import Order
from dovetail.core.policy import UNTIL_S, Decision, Kept
from dovetail.core.view import View
from dovetail.mechanisms.tenancy.reclaim import Reclaimed
from dovetail.mechanisms.tenancy.standing import TenantStanding
from dovetail.mechanisms.tenancy.usage import NO_USE, Path, Usage, charged

TENANTS = "tenants"
"""The name under which the accounts are kept for the next controller."""


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

    def kept(self, name_of: Callable[[int], str], half_life_s: float) -> Kept:
        """Returns the accounts for the next controller: use by tenant, stops by name of the job."""
        return {
            "half_life_s": half_life_s,
            **self.usage.kept(),
            "stops": {name_of(job): stops for job, stops in self.stops},
            "noticed": {name_of(job): t for job, t in self.noticed},
            "claims": {name_of(job): t for job, t in self.claims},
            "relieved": {name_of(job): t for job, t in self.relieved},
        }

    @staticmethod
    def recalled(
        inner: object, kept: Kept, row_of: Mapping[str, int], half_life_s: float
    ) -> TenantLedger:
        """Returns the ledger with the accounts that were kept, for the jobs that are still there.

        Raises TypeError, ValueError or LookupError if they are damaged.
        """
        if TENANTS not in kept:
            return TenantLedger(inner)
        own = cast(Kept, kept[TENANTS])
        usage = Usage.recalled(own)
        if UNTIL_S in kept:
            # What ran under another policy was not counted, so nothing counts as held since.
            until_s = float(cast(float, kept[UNTIL_S]))
            usage = Usage(until_s, tuple(usage.until(until_s, half_life_s).items()))
        stops = cast(Mapping[str, int], own["stops"])

        def times(name: str) -> tuple[tuple[int, float], ...]:
            values = cast(Mapping[str, float], own[name]).items()
            return tuple(sorted((row_of[j], float(t)) for j, t in values if j in row_of))

        return TenantLedger(
            inner,
            usage=usage,
            stops=tuple(sorted((row_of[j], int(n)) for j, n in stops.items() if j in row_of)),
            noticed=times("noticed"),
            claims=times("claims"),
            relieved=times("relieved"),
        )


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
    held = {job: placement.held_gpus for job, placement in placed.items()}
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
    # One reason for each job: what keeps it from a guarantee says more than that no GPU is free.
    known = {*given.blocked, *(reason.job for reason in given.because)}
    seen = [reason for reason in inner or () if reason.job not in known]
    general = any(reason.job < 0 and reason.shape < 0 for reason in seen)
    if len(shown) < len(view.waiting) and not general:
        seen.append(Reason("Priority"))
    return (*given.because, *seen)
