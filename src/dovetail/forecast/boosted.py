"""Our method: gradient boosting on running statistics of the key, the user and the shape of a job.

Features are computed on submission from jobs ended by then, for training and prediction alike. The
target is the logarithm of the run time less that of the nearest level's recent median. The loss is
absolute error: its optimum is the median, which is invariant under the logarithm, and the mean
absolute error is the one that a queue in order of length suffers from.
"""

from __future__ import annotations

import math

import numpy as np

from dovetail.core.growth import Growing
from dovetail.forecast.groups import GroupLengths, growth_reached
from dovetail.forecast.running_statistics import FEATURES, NOBODY, RunningStatistics
from dovetail.forecast.submissions import Submissions
from dovetail.forecast.trees import Trees

NOTHING_KNOWN_S = 3600.0
"""The prediction before any job has ended; any constant works, since it is the same for all."""
FIRST, GROWTH = 200, 1.3
"""Jobs before the first training, and the growth of the history before the next one."""
MOST_ROWS = 1_000_000
"""The most jobs of a training, the latest ones; the statistics cover all."""


class Boosted(GroupLengths):
    """Running statistics, corrected by trees trained on their errors."""

    def __init__(self, known: Submissions, seed: int) -> None:
        self.statistics = RunningStatistics(known)
        self._seed = seed
        self._known = known
        self.features = Growing(np.zeros((len(known), len(FEATURES))))
        self.ended: list[int] = []
        self.log_s: list[float] = []
        self._trained_on = 0
        self._trees: Trees | None = None

    def admit(self) -> None:
        """Makes room for more submissions."""
        self.statistics.admit()
        more = len(self._known) - len(self.features.rows)
        self.features.extend(np.zeros((more, len(FEATURES))))

    def guess_s(self, job: int, now: float) -> float:
        """Returns the predicted run time, at most the user's time limit."""
        row, limit_s = self.features.rows[job], float(self._known.time_limit_s[job])
        self.statistics.describe(job, now, row)
        if row[1] == NOBODY:
            return min(NOTHING_KNOWN_S, limit_s)
        if growth_reached(len(self.ended), self._trained_on, FIRST, GROWTH):
            self.train()
        log_s = float(row[0]) + (self._trees.predict(row) if self._trees else 0.0)
        return min(math.exp(log_s), limit_s)

    def learn(self, job: int, ran_s: float, completed: bool, now: float) -> None:
        """Adds a run time to the statistics at once, and to the next training."""
        log_s = math.log(max(ran_s, 1.0))
        self.statistics.learn(job, log_s, completed, now)
        self.ended.append(job)
        self.log_s.append(log_s)

    def submitted(self, job: int, now: float) -> None:
        """Counts a job among the unfinished ones of its key and its user."""
        self.statistics.submit(job, now)

    def left(self, job: int) -> None:
        """Removes a job from the unfinished ones."""
        self.statistics.leave(job)

    def train(self) -> None:
        """Trains the trees on the latest ended jobs."""
        rows = np.asarray(self.ended[-MOST_ROWS:], dtype=np.int64)
        log_s = np.asarray(self.log_s[-MOST_ROWS:])
        features = self.features.rows[rows]
        usable = features[:, 1] < NOBODY
        self._trained_on = len(self.ended)
        if usable.sum() >= FIRST // 2:
            described = features[usable]
            errors = log_s[usable] - described[:, 0]
            self._trees = Trees.trained(described, errors, self._seed)
