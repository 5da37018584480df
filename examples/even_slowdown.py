"""A goal of your own for GIMBAL: nobody is slowed much more than the others it shares with.

    dovetail simulate trace.csv --policy "gimbal:goal=examples/even_slowdown.py:EvenSlowdown"

A goal is two functions over plain numbers (`dovetail.mechanisms.calibration.goals.Member`): the
objective of a co-location set is made as small as can be, and workers of jobs of lower priority
are squeezed.
"""

from collections.abc import Sequence

from dovetail.mechanisms.calibration.goals import Member


class EvenSlowdown:
    """The largest slowdown in the set; who is slowed most goes first."""

    def objective(self, members: Sequence[Member]) -> float:
        """Returns how many times as long the slowest job takes as it would alone."""
        return max(1 / m.speed if m.speed > 0 else float("inf") for m in members)

    def priority(self, member: Member) -> float:
        """Returns the speed, negated: the slower, the more important."""
        return -member.speed
