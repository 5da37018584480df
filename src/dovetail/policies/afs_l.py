"""AFS-L: elastic shares for the least mean completion time, with job lengths known.

Stage one gives every job a GPU, the shortest first. Stage two hands out the rest one at a time:
of two jobs the longer gets it if what it gains, relative to its speed afterwards, is more than
what the shorter would gain relative to its speed now (inequality 3), because the jobs to come
will leave both with no more than they have. Shares are reckoned anew at every churn event.

Source: AFS sections 3.2 and 3.3, Algorithm 1 with the corrections of ALGORITHMS section 2.2.
Knows: lengths and scaling. Stops running jobs: only with more jobs than GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.budget import pool_gpus
from dovetail.mechanisms.elastic import (
    churned,
    contenders,
    drafted,
    satisfied,
    waits,
    widest,
    within_limits,
)
from dovetail.mechanisms.shortest_first import least_lengths, shortest_first


@register("afs-l")
@dataclass(frozen=True, slots=True)
class AfsL:
    """Apathetic future share with known lengths; elastic, preemptive."""

    knows: ClassVar[frozenset[str]] = frozenset({"length", "scaling"})
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate", "resize"})
    order: ClassVar[Order] = Order(least_lengths)
    initial: ClassVar[None] = None

    def decide(self, view: View, memory: object) -> Decision:
        """Hands out the GPUs anew if jobs or nodes came or went."""
        if not churned(view.changes):
            return Decision()
        from dovetail.algorithms.afs_compiled import shares_by_length

        gpus = pool_gpus(view)
        who = contenders(view, gpus, shortest_first(view, gpus))
        rates = view.physics.rates(widest(view))
        shares = satisfied(rates, who)
        if shares is None:
            left_s = view.progress.left_s(who.jobs.tolist())
            shares = shares_by_length(left_s, rates, who.kind, who.cap, gpus, who.low)
        draft = drafted(view, who, within_limits(view, who, shares))
        return Decision(draft, because=waits(view, draft))
