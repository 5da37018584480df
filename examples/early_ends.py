"""A goal for GIMBAL that looks ahead: the last job of a set runs on alone, and whole, in the end.

    dovetail simulate trace.csv --policy "gimbal:goal=examples/early_ends.py:EarlyEnds"

GIMBAL's own goal for completion times takes the speeds of the moment as if they lasted for ever,
so it favours who has longest to go. Here the one with least work left goes first.
"""

from collections.abc import Sequence
from statistics import fmean

from dovetail.mechanisms.calibration.goals import Member


class EarlyEnds:
    """The mean time to the end, if the job that is left last runs on alone."""

    set_priority = staticmethod(fmean)

    def objective(self, members: Sequence[Member]) -> float:
        """Returns the mean of the times to the end; all but the last keep their speeds."""
        ends_s = sorted(m.remaining_s for m in members)
        last = max(members, key=lambda m: m.remaining_s)
        alone_from_s = ends_s[-2]
        if last.remaining_s == float("inf"):
            return last.remaining_s
        ends_s[-1] = alone_from_s + (last.remaining_s - alone_from_s) * last.speed
        return fmean(ends_s)

    def priority(self, member: Member) -> float:
        """Returns the work left, in seconds alone, negated."""
        return -member.remaining_s * member.speed
