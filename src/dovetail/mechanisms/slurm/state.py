"""What the scheduler remembers between decisions.

While jobs wait, something always happens (priorities, the main scheduler), so passes of backfill
follow each other; those that could not change anything are not made here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import cast

from dovetail.core.policy import Kept
from dovetail.core.units import LONG_AGO_S, NEVER_S
from dovetail.mechanisms.slurm.completing import Completing
from dovetail.mechanisms.slurm.cycles import Cycles
from dovetail.mechanisms.slurm.fair_share import FairShares
from dovetail.mechanisms.slurm.kept_usage import SLURM, KeptUsage, until_of
from dovetail.mechanisms.slurm.ranked_queue import RankedQueue
from dovetail.mechanisms.slurm.site import Site

NO_PARTITIONS: Mapping[int, str] = MappingProxyType({})
NO_BEGINS: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SlurmState:
    """The memory of the policy; times are those of the last decision.

    `main_s` is the last pass of the main scheduler; `begins` are the times before
    which requeued jobs may not start. `news_s` is the first change since the last backfill;
    `ending` are running jobs in their GraceTime, and when it is over.
    `partitions` are those in which running jobs that name several were started.
    `dirty` says that another pass could start a job. `recalled` is the usage that an earlier
    controller kept, until the first decision.
    """

    site: Site | None = field(default=None, compare=False)
    cycles: Cycles = field(default_factory=Cycles)
    shares: FairShares = field(default_factory=FairShares)
    queue: RankedQueue = field(default_factory=RankedQueue)
    begins: Mapping[int, float] = field(default_factory=lambda: NO_BEGINS, hash=False)
    completing: Completing = field(default_factory=Completing)
    ending: Mapping[int, float] = field(default_factory=lambda: NO_BEGINS, hash=False)
    partitions: Mapping[int, str] = field(default_factory=lambda: NO_PARTITIONS, hash=False)
    decided_s: float = -1.0
    backfilled_s: float = 0.0
    news_s: float = NEVER_S
    main_s: float = LONG_AGO_S
    main_due_s: float = NEVER_S
    dirty: bool = False
    recalled: KeptUsage | None = None

    def kept(self, name_of: Callable[[int], str]) -> Kept:
        """Returns what outlives a controller as values for JSON, nothing if there is nothing."""
        usage = KeptUsage.of(self.shares) if self.recalled is None else self.recalled
        own = dict(usage.kept(name_of))
        if self.begins:
            own["begins"] = {name_of(job): begin_s for job, begin_s in self.begins.items()}
        return {SLURM: own} if own else {}

    @staticmethod
    def of(kept: Kept, row_of: Mapping[str, int]) -> SlurmState:
        """Returns the first memory after that of an earlier controller.

        Raises TypeError, ValueError or LookupError if that is damaged.
        """
        if SLURM not in kept:
            return SlurmState()
        own = cast(Kept, kept[SLURM])
        begins = cast("Mapping[str, float]", own.get("begins", {})).items()
        return SlurmState(
            begins=MappingProxyType({row_of[j]: float(t) for j, t in begins if j in row_of}),
            recalled=KeptUsage.recalled(own, row_of, until_of(kept)),
        )


def last_backfill_s(state: SlurmState, interval_s: float, now: float) -> tuple[float, float]:
    """Returns when backfill last ran before now, and the first change since.

    Counts the passes that were not made because they could not change anything.
    """
    last_s, news_s, cycles = state.backfilled_s, state.news_s, state.cycles
    if len(state.queue):
        return cycles.backfilled_before_s(last_s, interval_s, now), state.decided_s
    if news_s < NEVER_S and (ran_s := cycles.backfill_s(last_s, interval_s, news_s)) < now:
        return ran_s, NEVER_S
    return last_s, news_s
