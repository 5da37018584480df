"""One round of elastic sharing with the options common to the AFS policies.

`packing`: shares are numbers of GPUs anywhere (`none`), or likewise with spread jobs brought
together where that pays (`defragment`), or parts of machines and whole machines whose jobs do not
share the network (`network`). `estimates`: throughput is known from the start
(`exact`), or measured while a job runs (`overestimate`, for `measure_s` each time).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.core.job import Ints
from dovetail.core.parameters import check_period
from dovetail.core.plan import Draft
from dovetail.core.policy import Decision
from dovetail.core.view import View
from dovetail.mechanisms.elastic.budget import Pool, cut_to_limits, pool_of
from dovetail.mechanisms.elastic.defragmenting import DEFRAGMENT, check_packing, defragmented
from dovetail.mechanisms.elastic.estimation import Measured, believed, next_report_s, remeasured
from dovetail.mechanisms.elastic.network_packing import machine_pool, packed
from dovetail.mechanisms.elastic.rotation import NO_TURNS, Rotation, next_turns
from dovetail.mechanisms.elastic.shares import (
    Contenders,
    churned,
    contenders,
    drafted,
    waits,
)

ESTIMATES = ("exact", "overestimate")

HandOut = Callable[[Contenders, int], Ints]
"""Returns the shares of contenders in a pool of this many GPUs."""


@dataclass(frozen=True, slots=True)
class ElasticRules:
    """The options of a round. Raises ValueError for unknown values."""

    packing: str = "none"
    estimates: str = "exact"
    measure_s: float = 60.0

    def __post_init__(self) -> None:
        check_packing(self.packing, "network")
        if self.estimates not in ESTIMATES:
            raise ValueError(f"estimates are exact or overestimate, not '{self.estimates}'")
        check_period("measure-s", self.measure_s)

    def pool(self, view: View) -> Pool:
        """Returns the GPUs to share out."""
        return machine_pool(view) if self.packing == "network" else pool_of(view)

    def known(self, view: View, measured: Measured) -> Measured:
        """Returns the measurements by now."""
        if self.estimates == "exact":
            return measured
        return remeasured(view, measured, self.measure_s)

    def next_report_s(self, view: View, draft: Draft | None, measured: Measured) -> float:
        """Returns when the next measurement is due."""
        if self.estimates == "exact":
            return float("inf")
        return next_report_s(view, draft, measured, self.measure_s)

    def share_out(
        self,
        view: View,
        pool: Pool,
        served: Sequence[int] | None,
        measured: Measured,
        hand_out: HandOut,
    ) -> Draft | None:
        """Returns the draft with the new shares of the served jobs (None: all jobs)."""
        who = contenders(view, pool, served)
        if self.estimates == "overestimate":
            who = believed(view, pool, who, measured)
        gpus = pool.gpus
        if served is not None and self.packing != "network":
            # Jobs on draining nodes may hold more than the pool: they keep their least shares.
            gpus = max(gpus, int(who.low.sum()))
        shares = hand_out(who, gpus)
        # GPUs that a limit takes from its jobs go to others, in another round with lower caps.
        while ((fitting := cut_to_limits(view, who.jobs, who.low, shares)) < shares).any():
            who = replace(who, cap=np.where(fitting < shares, fitting, who.cap))
            shares = hand_out(who, gpus)
        if self.packing == "network":
            return packed(view, pool, who, shares)
        draft = drafted(view, who, shares)
        return defragmented(view, draft) if self.packing == DEFRAGMENT else draft


@dataclass(frozen=True, slots=True)
class TurnMemory:
    """The memory of a policy that shares elastically while all jobs fit and rotates otherwise."""

    turns: Rotation = NO_TURNS
    measured: Measured = ()


def share_in_turns(
    view: View, memory: object, rules: ElasticRules, unit_s: float, hand_out: HandOut
) -> Decision:
    """Returns the decision: shares for all jobs, or for those whose turn it is."""
    assert isinstance(memory, TurnMemory)
    next_s = min(memory.turns.wake_at, rules.next_report_s(view, None, memory.measured))
    if not churned(view.changes) and next_s > view.now:
        return Decision(None, memory, next_s)
    measured = rules.known(view, memory.measured)
    pool = rules.pool(view)
    turns = next_turns(view, memory.turns, pool, unit_s)
    draft = rules.share_out(view, pool, turns.runners, measured, hand_out)
    turns = turns.settled(view.running if draft is None else draft.placed)
    wake_at = min(turns.wake_at, rules.next_report_s(view, draft, measured))
    return Decision(draft, TurnMemory(turns, measured), wake_at, waits(view, draft))
