"""`--forecast predicted[:METHOD]`: lengths learned from the jobs that have ended before."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

from dovetail.core.beliefs import DoneOf
from dovetail.core.errors import InputError, nearest
from dovetail.core.job import JobTable
from dovetail.core.length_distribution import LengthDistribution
from dovetail.core.trace import COMPLETED, ENDS
from dovetail.forecast.bands import PLENTY, UNSEEN, Bands, Evidence
from dovetail.forecast.boosted import Boosted
from dovetail.forecast.forest import Forest
from dovetail.forecast.groups import GroupLengths, MeanOfGroup, MedianOfAll, MedianOfGroup
from dovetail.forecast.submissions import Submissions

METHODS: dict[str, Callable[[Submissions, int], GroupLengths]] = {
    "boosted": Boosted,
    "mean": lambda known, seed: MeanOfGroup(known),
    "median": lambda known, seed: MedianOfGroup(known),
    "forest": Forest,
    "overall": lambda known, seed: MedianOfAll(),
}
"""The first is the default."""
DEFAULT = next(iter(METHODS))


class Predicted:
    """A forecast from the requests of jobs and the run times of ended ones.

    It never sees the run times of a trace: the world reports a job when it is over. Failed,
    cancelled and timed-out jobs count like completed ones, since jobs like them occupy GPUs as
    long. Jobs that never ran are not used.
    """

    knows: ClassVar[frozenset[str]] = frozenset({"length"})
    learns: ClassVar[bool] = True

    def __init__(self, jobs: JobTable, method: str = DEFAULT, seed: int = 0) -> None:
        if method not in METHODS:
            raise InputError(
                "--forecast predicted", f"unknown method '{method}'", nearest(method, METHODS)
            )
        self._known = Submissions(jobs)
        self.learner = METHODS[method](self._known, seed)
        self._evidence = Evidence(self._known)
        self._bands = Bands()
        self._predictions: dict[int, tuple[float, int]] = {}
        self._frozen_s = math.inf

    def admit(self, jobs: JobTable) -> None:
        """Adds the rows appended to the table."""
        self._known.admit()
        self.learner.admit()

    def length_s(self, job: int, now: float) -> float:
        """Returns the predicted run time, from jobs that ended by now."""
        at_s = min(now, self._frozen_s)
        guess_s = self.learner.guess_s(job, at_s)
        self._predictions[job] = guess_s, self._kind(job, guess_s)
        if self._frozen_s == math.inf:
            self.learner.submitted(job, at_s)
        return guess_s

    def distribution(self, job: int, now: float, done_s: DoneOf) -> LengthDistribution | None:
        """Returns none: a prediction is one number."""
        return None

    def band_s(self, job: int, now: float) -> tuple[float, float]:
        """Returns the 10 % and 90 % quantiles of the run time; (0, inf) without evidence."""
        if job not in self._predictions:
            self.length_s(job, now)
        guess_s, kind = self._predictions[job]
        return self._bands.around(kind, guess_s)

    def evidence(self, job: int) -> int:
        """Returns the position in `bands.EVIDENCE` for a job now."""
        return self._evidence.of(job)

    def ended(self, job: int, ran_s: float, how: str, now: float) -> None:
        """Learns from a job that is over."""
        if self._frozen_s < math.inf:
            return
        self.learner.left(job)
        if ran_s <= 0.0:
            self._predictions.pop(job, None)
            return
        if job in self._predictions:
            guess_s, kind = self._predictions.pop(job)
            self._bands.learn(kind, guess_s, ran_s)
        self._evidence.learn(job, math.log(max(ran_s, 1.0)))
        self.learner.learn(job, ran_s, how == ENDS[COMPLETED], now)

    def freeze(self, now: float) -> None:
        """Trains on all ended jobs; later answers are those of this instant."""
        self.learner.train()
        self._frozen_s = now

    def _kind(self, job: int, guess_s: float) -> int:
        """Returns the kind of a prediction for bands: by evidence, spread, and whether it is 0."""
        evidence = self._evidence.of(job)
        spread = self._evidence.spread(job) if evidence == PLENTY else 0
        nothing = guess_s <= 0.0 and evidence > UNSEEN
        return (evidence * 8 + spread) * 2 + nothing
