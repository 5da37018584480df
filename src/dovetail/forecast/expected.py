"""`--forecast FORECAST,expected`: what is left of a job is the mean of a distribution.

The distribution of a job is its own forecast times the factors by which jobs before it were longer
than their forecasts: of the jobs with as much evidence (`bands.EVIDENCE`), those whose forecasts
were nearest to its own. Jobs that have not ended count as longer than they are done (product-limit
estimate, Kaplan and Meier 1958). One that was cancelled or timed out held its GPUs as long as it
did, and that is its length.

Behind the 95 % quantile the distribution has a Pareto tail, fitted to the longest fifth of the
factors (Hill's estimate, censored ones included). While few jobs have ended, assumed factors count
with the observed ones.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from sortedcontainers import SortedDict, SortedList

from dovetail.core.beliefs import DoneOf, Forecast
from dovetail.core.job import Bools, Floats, JobTable
from dovetail.core.length_distribution import PARTS, LengthDistribution
from dovetail.forecast.bands import FEWEST, PLENTY, REMEMBERED, Evidence
from dovetail.forecast.submissions import Submissions

NEAREST = 100
"""Ended jobs from whose factors a distribution is made."""
ASSUMED_SPREAD = 1.5
"""The standard deviation of the logarithm of the assumed factors, as in real logs."""
ASSUMED_S = 3600.0
"""The median that is assumed where the forecast is no time at all."""
TAIL_SHARE = 0.2
"""The share of the factors, the longest, to which the tail is fitted."""
TAIL_MEAN, TAIL_WEIGHT = 1 / 3, 5.0
"""The assumed mean of log factors above the start of the tail, and the factors it is worth."""
TAIL_MOST = 0.5
"""The largest such mean: then as much is left of an outlived job as it has done."""
_LEVELS = np.arange(PARTS) / PARTS
_ASSUMED = np.array(
    [NormalDist(0.0, ASSUMED_SPREAD).inv_cdf((n + 0.5) / FEWEST) for n in range(FEWEST)]
)


class Expected:
    """A forecast that states distributions, learned from the errors of another one."""

    learns = True

    def __init__(self, forecast: Forecast, jobs: JobTable) -> None:
        self._forecast = forecast
        self._known = Submissions(jobs)
        self._evidence = Evidence(self._known)
        self._of_kind: dict[int, _Factors] = {}
        self._of_all = _Factors()
        self._told: dict[int, tuple[int, _Submission]] = {}
        self._count = 0

    @property
    def knows(self) -> frozenset[str]:
        """Returns the knowledge that the other forecast supplies."""
        return self._forecast.knows

    def admit(self, jobs: JobTable) -> None:
        """Adds the rows appended to the table."""
        self._forecast.admit(jobs)
        self._known.admit()

    def length_s(self, job: int, now: float) -> float:
        """Returns the length that the other forecast gives."""
        guess_s = self._forecast.length_s(job, now)
        self._forget(job)
        self._count += 1
        told = _Submission(math.log(max(guess_s, 1.0)), self._count, job)
        self._told[job] = self._kind(job), told
        for factors in self._both(self._told[job][0]):
            factors.unfinished.add(told)
        return guess_s

    def distribution(self, job: int, now: float, done_s: DoneOf) -> LengthDistribution | None:
        """Returns the distribution of the length of a job, around what `length_s` gave last."""
        kind, (log_s, _, _) = self._told[job]
        own, of_all = self._both(kind)
        factors = own if len(own) >= FEWEST else of_all
        longer, is_ended = factors.nearest(log_s, done_s)
        if len(factors) < FEWEST:
            assumed = _ASSUMED if log_s > 0 else _ASSUMED + math.log(ASSUMED_S)
            longer = np.concatenate((longer, assumed))
            is_ended = np.concatenate((is_ended, np.ones(FEWEST, bool)))
        quantiles, tail = _fitted(longer, is_ended)
        limit_s = float(self._known.time_limit_s[job])
        quantiles_s = np.minimum(np.exp(log_s + quantiles), limit_s)
        return LengthDistribution(tuple(quantiles_s.tolist()), tail)

    def ended(self, job: int, ran_s: float, how: str, now: float) -> None:
        """Learns by what factor a job was longer than its forecast; nothing if it never ran."""
        self._forecast.ended(job, ran_s, how, now)
        told = self._told.get(job)
        self._forget(job)
        if ran_s <= 0.0:
            return
        ran = math.log(max(ran_s, 1.0))
        if told is not None:
            for factors in self._both(told[0]):
                factors.learn(told[1], ran - told[1].log_s)
        self._evidence.learn(job, ran)

    def _forget(self, job: int) -> None:
        """Removes a job from the unfinished ones, if it is there."""
        told = self._told.pop(job, None)
        if told is not None:
            for factors in self._both(told[0]):
                factors.unfinished.discard(told[1])

    def _both(self, kind: int) -> tuple[_Factors, _Factors]:
        return self._of_kind.setdefault(kind, _Factors()), self._of_all

    def _kind(self, job: int) -> int:
        """Returns the kind of a forecast: its evidence, and the spread of a key seen often."""
        evidence = self._evidence.of(job)
        return evidence + (self._evidence.spread(job) if evidence == PLENTY else 0)


class _Submission(NamedTuple):
    """The logarithm of a forecast, how many were asked for before, and the job."""

    log_s: float
    number: int
    job: int


class _Factors:
    """The latest ended jobs by forecast, with their log factors, and the unfinished ones."""

    def __init__(self) -> None:
        self._latest: deque[_Submission] = deque()
        self._ended: SortedDict = SortedDict()
        self.unfinished = SortedList()

    def __len__(self) -> int:
        return len(self._ended)

    def learn(self, told: _Submission, longer: float) -> None:
        """Adds a factor, and forgets the oldest if there are enough."""
        self._latest.append(told)
        self._ended[told] = longer
        if len(self._latest) > REMEMBERED:
            del self._ended[self._latest.popleft()]

    def nearest(self, log_s: float, done_s: DoneOf) -> tuple[Floats, Bools]:
        """Returns the log factors of the jobs of nearest forecasts, and which of them have ended.

        Of equally near ones the latest count. An unfinished job has the factor it has reached; one
        without progress says nothing.
        """
        at = self._ended.bisect_left((log_s, math.inf))
        ended = self._ended.items()[max(at - NEAREST, 0) : at + NEAREST]
        off = sorted(abs(told.log_s - log_s) for told, _ in ended)
        far = off[NEAREST - 1] if len(off) >= NEAREST else math.inf
        others = list(self.unfinished.irange((log_s - far,), (log_s + far, math.inf)))
        done = done_s([told.job for told in others])
        rows = [(told.log_s, told.number, longer, 1.0) for told, longer in ended] + [
            (told.log_s, told.number, math.log(max(made, 1.0)) - told.log_s, 0.0)
            for told, made in zip(others, done, strict=True)
            if made > 0.0
        ]
        near = np.array(rows).reshape(-1, 4)
        near = near[np.lexsort((-near[:, 1], np.abs(near[:, 0] - log_s)))[:NEAREST]]
        return near[:, 2], near[:, 3] > 0.0


def _fitted(longer: Floats, is_ended: Bools) -> tuple[Floats, float]:
    """Returns the quantiles of log factors, of which some are only reached, and the tail.

    One factor more, longer than all, stands for the job that is asked about.
    """
    order = np.lexsort((~is_ended, longer))
    longer, is_ended = longer[order], is_ended[order]
    at_risk = len(longer) + 1 - np.arange(len(longer))
    survive = np.cumprod(1.0 - is_ended / at_risk)
    known, below = longer[is_ended], 1.0 - survive[is_ended]
    quantiles = np.interp(
        _LEVELS, np.concatenate(([0.0], below)), np.concatenate((known[:1], known))
    )
    start = min(1.0 - TAIL_SHARE, float(below[-1]) * (1.0 - TAIL_SHARE))
    begins = float(np.interp(start, below, known))
    excess = np.maximum(longer - begins, 0.0)
    count = int((is_ended & (longer > begins)).sum())
    mean = (float(excess.sum()) + TAIL_WEIGHT * TAIL_MEAN) / (count + TAIL_WEIGHT)
    mean = min(mean, TAIL_MOST)
    # Levels that no ended job has reached lie in the tail.
    beyond = np.maximum(np.log((1.0 - below[-1]) / (1.0 - _LEVELS)), 0.0)
    return quantiles + mean * beyond, mean / (1.0 - mean)
