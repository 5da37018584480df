"""AFS-P: elastic shares without job lengths; turns of a fixed unit when not all jobs can run.

While all jobs fit, each has a GPU and the rest go where inequality (3) of AFS points whichever of
two jobs may end first; where it points nowhere the GPU stays with the earlier candidate
(`tie=keep`) or with whoever comes first in an order shuffled at each decision (`tie=random`).
With more jobs than GPUs each that runs has one GPU for `unit_s`, those with fewest units first.

Source: AFS section 3.3; unit of two hours: its footnote 11; ALGORITHMS section 2.3.
Knows: scaling, and what service it gave. Stops running jobs: at the end of a unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dovetail.core.job import Floats, Ints
from dovetail.core.order import Order
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.budget import pool_gpus
from dovetail.mechanisms.elastic import (
    Contenders,
    churned,
    contenders,
    drafted,
    satisfied,
    waits,
    widest,
    within_limits,
)
from dovetail.mechanisms.turns import Turns, next_turns

TIES = ("keep", "random")


@register("afs-p")
@dataclass(frozen=True, slots=True)
class AfsP:
    """Apathetic future share without lengths, and processor sharing; elastic, preemptive."""

    unit_s: float = 7200.0
    tie: str = "keep"
    seed: int = 0

    knows: ClassVar[frozenset[str]] = frozenset({"attained service", "scaling"})
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate", "resize"})
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[Turns] = Turns()

    def __post_init__(self) -> None:
        if not 0 < self.unit_s < float("inf"):
            raise ValueError("a unit is a positive number of seconds")
        if self.tie not in TIES:
            raise ValueError(f"tie is keep or random, not '{self.tie}'")

    def decide(self, view: View, memory: object) -> Decision:
        """Hands out the GPUs anew if jobs or nodes came or went or a unit is over."""
        assert isinstance(memory, Turns)
        if not churned(view.changes):
            return Decision(None, memory, memory.wake_at)
        gpus = pool_gpus(view)
        turns = next_turns(view, memory, gpus, self.unit_s)
        who = contenders(view, gpus, turns.runners)
        rates = view.physics.rates(widest(view))
        shares = satisfied(rates, who)
        if shares is None:
            shares = self._shares(view.now, rates, who)
        draft = drafted(view, who, within_limits(view, who, shares))
        turns = turns.settled(view.running if draft is None else draft.placed)
        return Decision(draft, turns, turns.wake_at, waits(view, draft))

    def _shares(self, now: float, rates: Floats, who: Contenders) -> Ints:
        from dovetail.algorithms.afs_compiled import shares_without_length

        if self.tie == "keep":
            return shares_without_length(rates, who.kind, who.cap, who.gpus, who.low)
        order = np.random.default_rng([self.seed, int(now * 1e6)]).permutation(len(who.jobs))
        shares = np.empty(len(order), np.int64)
        shares[order] = shares_without_length(
            rates, who.kind[order], who.cap[order], who.gpus, who.low[order]
        )
        return shares
