"""Predictions from the group alone: the mean or the median of its ended jobs (A-SRPT, Fig. 9).

As published, a job whose group has no ended job is predicted to take 0 seconds, so that it starts
at once and its group becomes known.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

from sortedcontainers import SortedList

from dovetail.forecast.submissions import Submissions

UNSEEN_S = 0.0
"""Predicted for a group that has not been seen (A-SRPT section IV.C.3)."""


class GroupLengths:
    """Learns run times of ended jobs and predicts those of submitted ones.

    The hooks do nothing here: most methods are always up to date, and count no unfinished jobs.
    """

    def guess_s(self, job: int, now: float) -> float:
        """Returns the predicted run time of a job that is being submitted."""
        raise NotImplementedError

    def learn(self, job: int, ran_s: float, completed: bool, now: float) -> None:
        """Adds the run time of a job that has ended."""
        raise NotImplementedError

    def admit(self) -> None:
        """Makes room for jobs appended to the table."""

    def train(self) -> None:
        """Uses all that was learned for the next prediction."""

    def submitted(self, job: int, now: float) -> None:
        """Counts a job as unfinished, after its prediction."""

    def left(self, job: int) -> None:
        """Counts a job as over, also if it never ran."""


class MeanOfGroup(GroupLengths):
    """The mean run time of the ended jobs of the same group."""

    def __init__(self, known: Submissions) -> None:
        self._known = known
        self._sum_s: dict[int, float] = {}
        self._count: dict[int, int] = {}

    def guess_s(self, job: int, now: float) -> float:
        """Returns the mean, or 0 for a group not seen."""
        key = int(self._known.key[job])
        count = self._count.get(key, 0)
        return self._sum_s[key] / count if count else UNSEEN_S

    def learn(self, job: int, ran_s: float, completed: bool, now: float) -> None:
        """Adds a run time to its group."""
        key = int(self._known.key[job])
        self._sum_s[key] = self._sum_s.get(key, 0.0) + ran_s
        self._count[key] = self._count.get(key, 0) + 1


class MedianOfGroup(GroupLengths):
    """The median run time of the ended jobs of the same group."""

    def __init__(self, known: Submissions) -> None:
        self._known = known
        self._ran_s: dict[int, list[float]] = {}

    def guess_s(self, job: int, now: float) -> float:
        """Returns the median, or 0 for a group not seen."""
        ran_s = self._ran_s.get(int(self._known.key[job]))
        return _median(ran_s) if ran_s else UNSEEN_S

    def learn(self, job: int, ran_s: float, completed: bool, now: float) -> None:
        """Adds a run time to its group, in order."""
        insort(self._ran_s.setdefault(int(self._known.key[job]), []), ran_s)


class MedianOfAll(GroupLengths):
    """The median run time of all ended jobs: the baseline of all predictions."""

    def __init__(self) -> None:
        self._ran_s = SortedList()

    def guess_s(self, job: int, now: float) -> float:
        """Returns the median, or 0 before any job has ended."""
        return _median(self._ran_s) if self._ran_s else UNSEEN_S

    def learn(self, job: int, ran_s: float, completed: bool, now: float) -> None:
        """Adds a run time."""
        self._ran_s.add(ran_s)


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2.0


def growth_reached(learned: int, trained_on: int, first: int, growth: float) -> bool:
    """Returns whether the history has grown enough since the last training to train again.

    Each training takes time in proportion to its history, so all together take at most
    growth / (growth - 1) times the last one.
    """
    return learned >= max(first, trained_on * growth)
