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
from dovetail.core.job import Ints
from dovetail.core.order import Order
from dovetail.core.parameters import check_period
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.elastic.afs_round import ElasticRules, TurnMemory, share_in_turns
from dovetail.mechanisms.elastic.shares import Contenders, best_counts


@register("afs-s")
@dataclass(frozen=True, slots=True)
class AfsS:
    """Max-Min up to the best number of GPUs, and processor sharing; elastic, preemptive."""

    unit_s: float = 7200.0
    packing: str = "none"
    estimates: str = "exact"
    measure_s: float = 60.0

    knows: ClassVar[frozenset[str]] = frozenset({"attained service", "scaling"})
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate", "resize"})
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[TurnMemory] = TurnMemory()

    def __post_init__(self) -> None:
        ElasticRules(self.packing, self.estimates, self.measure_s)
        check_period("unit-s", self.unit_s)

    def decide(self, view: View, memory: object) -> Decision:
        """Hands out the GPUs anew if jobs or nodes came or went, or a unit or measurement ends."""

        def hand_out(who: Contenders, gpus: int) -> Ints:
            return water_filling_from(who.low, best_counts(who), gpus)

        rules = ElasticRules(self.packing, self.estimates, self.measure_s)
        return share_in_turns(view, memory, rules, self.unit_s, hand_out)
