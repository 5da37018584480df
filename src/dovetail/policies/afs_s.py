"""AFS-S: AFS-P that knows of each job only on how many GPUs it is fastest.

While all jobs fit, the GPUs go one at a time to the job that has fewest, up to its best number:
Max-Min fairness. With more jobs than GPUs it takes turns as AFS-P does. It shows how much of the
gain of AFS-P needs the whole curve of throughput.

Source: AFS appendix D; ALGORITHMS section 2.3. Knows: the best number of GPUs, and what service
it gave. Stops running jobs: at the end of a unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.algorithms.water_filling import water_filling_from
from dovetail.core.order import Order
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.budget import pool_gpus
from dovetail.mechanisms.elastic import (
    best_counts,
    churned,
    contenders,
    drafted,
    waits,
    widest,
    within_limits,
)
from dovetail.mechanisms.turns import Turns, next_turns


@register("afs-s")
@dataclass(frozen=True, slots=True)
class AfsS:
    """Max-Min up to the best number of GPUs, and processor sharing; elastic, preemptive."""

    unit_s: float = 7200.0

    knows: ClassVar[frozenset[str]] = frozenset({"attained service", "scaling"})
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate", "resize"})
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[Turns] = Turns()

    def __post_init__(self) -> None:
        if not 0 < self.unit_s < float("inf"):
            raise ValueError("a unit is a positive number of seconds")

    def decide(self, view: View, memory: object) -> Decision:
        """Hands out the GPUs anew if jobs or nodes came or went or a unit is over."""
        assert isinstance(memory, Turns)
        if not churned(view.changes):
            return Decision(None, memory, memory.wake_at)
        gpus = pool_gpus(view)
        turns = next_turns(view, memory, gpus, self.unit_s)
        who = contenders(view, gpus, turns.runners)
        best = best_counts(view.physics.rates(widest(view)), who)
        shares = water_filling_from(who.low, best, who.gpus)
        draft = drafted(view, who, within_limits(view, who, shares))
        turns = turns.settled(view.running if draft is None else draft.placed)
        return Decision(draft, turns, turns.wake_at, waits(view, draft))
