"""One decision of a policy that shares elastically while all fit and takes turns when not."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.core.policy import Decision
from dovetail.core.view import View
from dovetail.mechanisms.elastic.afs_round import ElasticRules, HandOut
from dovetail.mechanisms.elastic.estimation import Measured
from dovetail.mechanisms.elastic.rotation import NO_TURNS, Rotation, next_turns
from dovetail.mechanisms.elastic.shares import churned, waits


@dataclass(frozen=True, slots=True)
class TurnMemory:
    """What is remembered from one decision to the next."""

    turns: Rotation = NO_TURNS
    measured: Measured = ()


def share_in_turns(
    view: View, memory: object, manner: ElasticRules, unit_s: float, hand_out: HandOut
) -> Decision:
    """Returns the decision: shares for everybody, or for those whose turn it is."""
    assert isinstance(memory, TurnMemory)
    next_s = min(memory.turns.wake_at, manner.next_report_s(view, None, memory.measured))
    if not churned(view.changes) and next_s > view.now:
        return Decision(None, memory, next_s)
    measured = manner.known(view, memory.measured)
    pool = manner.pool(view)
    turns = next_turns(view, memory.turns, pool, unit_s)
    draft = manner.share_out(view, pool, turns.runners, measured, hand_out)
    turns = turns.settled(view.running if draft is None else draft.placed)
    wake_at = min(turns.wake_at, manner.next_report_s(view, draft, measured))
    return Decision(draft, TurnMemory(turns, measured), wake_at, waits(view, draft))
