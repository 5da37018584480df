"""AFS-S: AFS-P that knows of each job only on how many GPUs it is fastest.

While all jobs fit, the GPUs go one at a time to the job with the fewest, up to its best number:
Max-Min fairness. With more jobs than GPUs jobs take turns as in AFS-P. It shows how much of the
gain of AFS-P needs the whole throughput curve.

Source: AFS appendix D; ALGORITHMS section 2.3. Knows: the best number of GPUs, and the
service of each job. Stops running jobs: at the end of a unit.
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
        """Computes new shares after changes of jobs or nodes, and as units or measurements end."""

        def hand_out(who: Contenders, gpus: int) -> Ints:
            return water_filling_from(who.low, best_counts(who), gpus)

        rules = ElasticRules(self.packing, self.estimates, self.measure_s)
        return share_in_turns(view, memory, rules, self.unit_s, hand_out)
