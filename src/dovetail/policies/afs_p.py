"""AFS-P: elastic shares without job lengths; turns of a fixed unit when not all jobs can run.

While all jobs fit, each has a GPU, and each further GPU goes to a job that inequality (3) of AFS
prefers whichever of two jobs ends first; a tie goes to the earlier candidate (`tie=keep`) or to the
first in an order shuffled at each decision (`tie=random`). With more jobs than GPUs each running
job has one GPU for `unit_s`, jobs with the fewest units first.

Source: AFS section 3.3; unit of two hours: its footnote 11; ALGORITHMS section 2.3.
Knows: scaling, and the service of each job. Stops running jobs: at the end of a unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dovetail.algorithms.draws import uniform_draws
from dovetail.core.job import Ints
from dovetail.core.order import Order
from dovetail.core.parameters import check_period, check_seed
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.elastic.afs_round import ElasticRules, TurnMemory, share_in_turns
from dovetail.mechanisms.elastic.shares import Contenders, satisfied

TIES = ("keep", "random")


@register("afs-p")
@dataclass(frozen=True, slots=True)
class AfsP:
    """Apathetic future share without lengths, and processor sharing; elastic, preemptive."""

    unit_s: float = 7200.0
    tie: str = "keep"
    seed: int = 0
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
        check_seed(self.seed)
        if self.tie not in TIES:
            raise ValueError(f"tie is keep or random, not '{self.tie}'")

    def decide(self, view: View, memory: object) -> Decision:
        """Computes new shares after changes of jobs or nodes, and as units or measurements end."""
        rules = ElasticRules(self.packing, self.estimates, self.measure_s)

        def hand_out(who: Contenders, gpus: int) -> Ints:
            shares = satisfied(who, gpus)
            return self._shares(view, who, gpus) if shares is None else shares

        return share_in_turns(view, memory, rules, self.unit_s, hand_out)

    def _shares(self, view: View, who: Contenders, gpus: int) -> Ints:
        from dovetail.algorithms.afs import shares_without_length

        scan = np.arange(len(who.jobs))
        if self.tie == "random":
            instant = int(np.float64(view.now).view(np.int64))
            keys = view.jobs.draw_keys(who.jobs)
            scan = np.argsort(uniform_draws(self.seed, instant, keys))
        shares = np.empty(len(scan), np.int64)
        shares[scan] = shares_without_length(
            who.rates, who.kind[scan], who.cap[scan], gpus, who.low[scan]
        )
        return shares
