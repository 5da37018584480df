"""What the scheduler remembers between decisions, and when its passes are due.

Backfill runs `bf_interval` after its last pass. If nothing happened since, Slurm looks every second
whether something has. While jobs wait, something always happens (priorities, the main scheduler),
so passes follow each other; those that could not change anything are not made here.

The main scheduler runs when a job ends, and by the clock: every second it looks for submitted jobs,
if its last pass by the clock is `batch_sched_delay` ago, and every `sched_interval` at all jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from types import MappingProxyType

from dovetail.core.units import LONG_AGO_S, NEVER_S
from dovetail.mechanisms.slurm.fair_share import FairShares
from dovetail.mechanisms.slurm.ranked_queue import RankedQueue
from dovetail.mechanisms.slurm.site import Site

POLL_S = 1.0
"""How often Slurm looks for news when backfill is due and there were none."""
ROUNDING_S = 1e-6
NO_BEGINS: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SlurmState:
    """The memory of the policy; times are those of the last decision.

    `main_s` is the last pass of the main scheduler by the clock; `begins` are the times before
    which requeued jobs may not start. `news_s` is the first change since the last backfill;
    `dirty` says that another pass could start a job.
    """

    site: Site | None = field(default=None, compare=False)
    shares: FairShares = field(default_factory=FairShares)
    queue: RankedQueue = field(default_factory=RankedQueue)
    begins: Mapping[int, float] = field(default_factory=lambda: NO_BEGINS, hash=False)
    decided_s: float = -1.0
    backfilled_s: float = 0.0
    news_s: float = NEVER_S
    main_s: float = LONG_AGO_S
    main_due_s: float = NEVER_S
    dirty: bool = False


def last_backfill_s(state: SlurmState, interval_s: float, now: float) -> tuple[float, float]:
    """Returns when backfill last ran before now, and the first change since.

    Counts the passes that were not made because they could not change anything.
    """
    last_s, news_s = state.backfilled_s, state.news_s
    if len(state.queue):
        passes = ceil((now - last_s - ROUNDING_S) / interval_s) - 1
        return last_s + max(0, passes) * interval_s, state.decided_s
    if news_s < NEVER_S and (ran_s := backfill_due_s(last_s, interval_s, news_s)) < now:
        return ran_s, NEVER_S
    return last_s, news_s


def backfill_due_s(last_s: float, interval_s: float, news_s: float) -> float:
    """Returns when backfill runs after a pass and a change."""
    if news_s == NEVER_S:
        return NEVER_S
    due_s = last_s + interval_s
    return due_s + POLL_S * max(0, ceil((news_s - due_s - ROUNDING_S) / POLL_S))


def tick_s(interval_s: float, now: float) -> float:
    """Returns the first tick of a clock at or after a time."""
    return interval_s * ceil(now / interval_s - ROUNDING_S)


def is_tick(interval_s: float, now: float) -> bool:
    """True if a clock ticks now."""
    return tick_s(interval_s, now) <= now + ROUNDING_S
