"""AFS-L: elastic shares for the least mean completion time, with job lengths known.

Stage one gives every job a GPU, the shortest first. Stage two hands out the rest one at a time:
of two jobs the longer gets it if its gain, relative to its speed afterwards, exceeds
the gain of the shorter relative to its speed now (inequality 3), assuming that future jobs leave
both with at most their present shares. Shares are computed anew at every churn event.

Source: AFS sections 3.2 and 3.3, Algorithm 1 with the corrections of ALGORITHMS section 2.2.
Knows: lengths and scaling. Stops running jobs: only with more jobs than GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.job import Ints
from dovetail.core.order import Order
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.elastic.afs_round import ElasticRules
from dovetail.mechanisms.elastic.estimation import Measured
from dovetail.mechanisms.elastic.shares import Contenders, churned, satisfied, waits
from dovetail.mechanisms.elastic.shortest_first import least_lengths, left_s_of, shortest_first


@register("afs-l")
@dataclass(frozen=True, slots=True)
class AfsL:
    """Apathetic future share with known lengths; elastic, preemptive."""

    packing: str = "none"
    estimates: str = "exact"
    measure_s: float = 60.0

    knows: ClassVar[frozenset[str]] = frozenset({"length", "scaling"})
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate", "resize"})
    order: ClassVar[Order] = Order(least_lengths)
    initial: ClassVar[Measured] = ()

    def __post_init__(self) -> None:
        ElasticRules(self.packing, self.estimates, self.measure_s)

    def decide(self, view: View, memory: object) -> Decision:
        """Computes new shares after changes of jobs or nodes, or when a job reports."""
        assert isinstance(memory, tuple)
        rules = ElasticRules(self.packing, self.estimates, self.measure_s)
        report_s = rules.next_report_s(view, None, memory)
        if not churned(view.changes) and report_s > view.now:
            return Decision(None, memory, report_s)

        def hand_out(who: Contenders, gpus: int) -> Ints:
            from dovetail.algorithms.afs import shares_by_length

            shares = satisfied(who, gpus)
            if shares is not None:
                return shares
            left_s = left_s_of(view, who.jobs)
            return shares_by_length(left_s, who.rates, who.kind, who.cap, gpus, who.low)

        measured = rules.known(view, memory)
        pool = rules.pool(view)
        draft = rules.share_out(view, pool, shortest_first(view, pool), measured, hand_out)
        wake_at = rules.next_report_s(view, draft, measured)
        return Decision(draft, measured, wake_at, waits(view, draft))
