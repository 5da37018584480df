"""When slurmctld's threads look at the queue.

The main scheduler's thread wakes every second. It makes a pass if one was asked for (a job was
submitted or ended, a node changed) and the last one is `batch_sched_delay` ago, and every
`sched_interval` a pass over all jobs. Backfill runs `bf_interval` after its last pass; if nothing
happened since, it looks every second whether something has.

Source: Slurm 22.05, `controller.c`, `_slurmctld_background`; `backfill.c`, `backfill_agent`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from dovetail.core.units import NEVER_S

POLL_S = 1.0
ROUNDING_S = 1e-6


@dataclass(frozen=True, slots=True)
class Cycles:
    """The cycles of a slurmctld whose main scheduler made a full pass at `full_pass_s`."""

    full_pass_s: float = 0.0

    def look_s(self, now: float) -> float:
        """Returns when the main scheduler's thread next wakes, at or after a time."""
        return self._tick_s(POLL_S, now)

    def full_pass_from_s(self, interval_s: float, now: float) -> float:
        """Returns the first pass over all jobs at or after a time."""
        return self._tick_s(interval_s, now)

    def is_full_pass(self, interval_s: float, now: float) -> bool:
        """True if a pass of the main scheduler at a time tests all jobs."""
        return self._tick_s(interval_s, now) <= now + ROUNDING_S

    def backfill_s(self, last_s: float, interval_s: float, news_s: float) -> float:
        """Returns when backfill runs after a pass and a change."""
        if news_s == NEVER_S:
            return NEVER_S
        due_s = last_s + interval_s
        return due_s + POLL_S * max(0, ceil((news_s - due_s - ROUNDING_S) / POLL_S))

    def backfilled_before_s(self, last_s: float, interval_s: float, now: float) -> float:
        """Returns the last pass of backfill before a time if passes followed each other."""
        passes = ceil((now - last_s - ROUNDING_S) / interval_s) - 1
        return last_s + max(0, passes) * interval_s

    def _tick_s(self, interval_s: float, now: float) -> float:
        ticks = ceil((now - self.full_pass_s) / interval_s - ROUNDING_S)
        return self.full_pass_s + interval_s * ticks
