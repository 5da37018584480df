"""Goals of calibration: an objective over the jobs of a co-location set, and a priority of each.

Users may write one: any class with the two methods of `Goal`. The three here are those of GIMBAL
section 5.2 with the signs of ALGORITHMS 3.2: an objective is minimised, and a higher priority means
more important.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from statistics import fmean
from typing import Protocol

from dovetail.core.errors import InputError, nearest
from dovetail.core.policy import class_from_file


@dataclass(frozen=True, slots=True)
class Member:
    """A job of a set in plain numbers; seconds, parts of 1, GPUs.

    `speed` is solo seconds of progress per second as measured, `remaining_s` the time to its end
    at that speed, `slack_s` the time from then to its deadline (infinite without one).
    """

    gpus: int
    utilization: float
    speed: float
    remaining_s: float
    deadline_s: float
    slack_s: float

    @staticmethod
    def of(
        *, gpus: int, utilization: float, speed: float, left_s: float, deadline_s: float, now: float
    ) -> Member:
        """Returns the job with its time left and slack at this speed."""
        remaining_s = left_s / speed if speed > 0 else inf
        slack_s = deadline_s - now - remaining_s if deadline_s < inf else inf
        return Member(gpus, utilization, speed, remaining_s, deadline_s, slack_s)


class Goal(Protocol):
    """Two functions over plain numbers."""

    def objective(self, members: Sequence[Member]) -> float:
        """Returns the value to minimise for the jobs of a set."""

    def priority(self, member: Member) -> float:
        """Returns the importance of a job in its set."""


class ShortJct:
    """The mean time to the end (equations 1 and 2); low utilisation has priority."""

    set_priority = staticmethod(fmean)

    def objective(self, members: Sequence[Member]) -> float:
        """Returns the mean of the times to the end."""
        return fmean(m.remaining_s for m in members)

    def priority(self, member: Member) -> float:
        """Returns the utilisation, negated."""
        return -member.utilization


class Deadlines:
    """The largest lateness (equations 3 and 4); least slack has priority."""

    def objective(self, members: Sequence[Member]) -> float:
        """Returns the largest lateness, 0 if no job is late."""
        return max(max(0.0, -m.slack_s) for m in members)

    def priority(self, member: Member) -> float:
        """Returns the slack, negated."""
        return -member.slack_s


class Makespan:
    """The time to the last end (equations 5 and 6); the longest time left has priority."""

    def objective(self, members: Sequence[Member]) -> float:
        """Returns the longest time to the end."""
        return max(m.remaining_s for m in members)

    def priority(self, member: Member) -> float:
        """Returns the time to the end."""
        return member.remaining_s


GOALS: dict[str, type[Goal]] = {"jct": ShortJct, "deadline": Deadlines, "makespan": Makespan}


def together(goal: Goal, members: Sequence[Member]) -> float:
    """Returns the priority of several jobs: their highest, or by the goal's `set_priority`.

    JCT uses the mean (ALGORITHMS 3.2).
    """
    combine: Callable[[list[float]], float] = getattr(goal, "set_priority", max)
    return combine([goal.priority(member) for member in members])


@lru_cache(maxsize=32)
def goal_of(text: str) -> Goal:
    """Returns the goal `jct`, `deadline`, `makespan`, or that of a file `path.py:Class`.

    Raises InputError.
    """
    path, _, name = text.partition(":")
    if not path.endswith(".py"):
        if text not in GOALS:
            mend = f"{nearest(text, GOALS)}, or a file of your own: goal=path.py:Class"
            raise InputError(f"goal '{text}'", "no such goal", mend)
        return GOALS[text]()
    cls = class_from_file(path, name, "objective", "goal")
    if not callable(getattr(cls, "priority", None)):
        raise InputError(path, f"'{cls.__name__}' has no method priority")
    goal: Goal = cls()
    return goal
