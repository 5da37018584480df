"""Error bands of predictions by quantiles of earlier errors.

The end of a job gives the factor between its run time and its prediction on submission. The latest
factors are stored by kind of evidence; their quantiles around a new prediction are its band (split
conformal prediction, over time).
"""

from __future__ import annotations

import math
from collections import deque

from sortedcontainers import SortedList

from dovetail.forecast.submissions import Submissions

EVIDENCE = ("new user", "unseen key", "key seen 1 to 4 times", "key seen 5 times or more")
"""The evidence for a prediction on submission, from least to most."""
NEW_USER, UNSEEN, SOME, PLENTY = range(4)
LEVEL = 0.1
"""The band leaves out this share on either side."""
REMEMBERED = 1000
"""Factors stored of each kind: enough for tails of 10 %, few enough to follow a drift."""
FEWEST = 19
"""With fewer factors there is no band: from 0 to infinity."""
SPREADS = (0.1, 0.5, 1.5)
"""Edges of the spread of log run times in a key, by which kinds are separated."""


class Evidence:
    """The ended jobs by user and key."""

    def __init__(self, known: Submissions) -> None:
        self._known = known
        self._users: set[int] = set()
        self._moments: dict[int, tuple[int, float, float]] = {}

    def of(self, job: int) -> int:
        """Returns the position in `EVIDENCE` for a job now."""
        count = self._moments.get(int(self._known.key[job]), (0, 0.0, 0.0))[0]
        if count:
            return SOME if count < 5 else PLENTY
        known = self._known
        return NEW_USER if known.has_user[job] and known.user[job] not in self._users else UNSEEN

    def spread(self, job: int) -> int:
        """Returns the class of the spread of the job's key, 0 for the narrowest."""
        count, _, squares = self._moments.get(int(self._known.key[job]), (0, 0.0, 0.0))
        deviation = math.sqrt(squares / count) if count else 0.0
        return sum(deviation > edge for edge in SPREADS)

    def learn(self, job: int, log_s: float) -> None:
        """Adds the run time of an ended job."""
        self._users.add(int(self._known.user[job]))
        count, mean, squares = self._moments.get(int(self._known.key[job]), (0, 0.0, 0.0))
        off = log_s - mean
        mean += off / (count + 1)
        self._moments[int(self._known.key[job])] = (count + 1, mean, squares + off * (log_s - mean))


class Bands:
    """The latest factors between run time and prediction, by kind of evidence."""

    def __init__(self) -> None:
        self._latest: dict[int, deque[float]] = {}
        self._sorted: dict[int, SortedList] = {}

    def learn(self, kind: int, guess_s: float, ran_s: float) -> None:
        """Adds the error of a prediction of this kind."""
        off = math.log(max(ran_s, 1.0) / max(guess_s, 1.0))
        latest = self._latest.setdefault(kind, deque())
        ordered = self._sorted.setdefault(kind, SortedList())
        latest.append(off)
        ordered.add(off)
        if len(latest) > REMEMBERED:
            ordered.remove(latest.popleft())

    def around(self, kind: int, guess_s: float) -> tuple[float, float]:
        """Returns the band around a prediction of this kind."""
        ordered = self._sorted.get(kind, ())
        count = len(ordered)
        if count < FEWEST:
            return 0.0, math.inf
        low = max(math.floor(LEVEL * (count + 1)), 1) - 1
        high = count - 1 - low
        base_s = max(guess_s, 1.0)
        return base_s * math.exp(ordered[low]), base_s * math.exp(ordered[high])
