"""Our method: gradient boosting on running statistics of the key, the user and the shape of a job.

Features are computed on submission from jobs ended by then, for training and prediction alike. The
target is the logarithm of the run time less that of the nearest level's recent median. The loss is
absolute error: its optimum is the median, which is invariant under the logarithm, and the mean
absolute error is the one that a queue in order of length suffers from.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.algorithms.compiled import compiled
from dovetail.core.growth import Growing
from dovetail.core.job import Floats, Ints
from dovetail.forecast.groups import GroupLengths, growth_reached
from dovetail.forecast.running_statistics import FEATURES, NOBODY, RunningStatistics
from dovetail.forecast.submissions import Submissions

NOTHING_KNOWN_S = 3600.0
"""The prediction before any job has ended; any constant works, since it is the same for all."""
FIRST, GROWTH = 200, 1.3
"""Jobs before the first training, and the growth of the history before the next one."""
ROUNDS, LEAVES, RATE = 60, 31, 0.15
"""Number of trees, leaves of each, and learning rate."""
LEAF = -1
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
            self._trees = trained(features[usable], log_s[usable], self._seed)


def trained(features: NDArray[np.float64], log_s: Floats, seed: int) -> Trees:
    """Returns trees that correct the recent medians of these rows."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    model = HistGradientBoostingRegressor(
        loss="absolute_error",
        max_iter=ROUNDS,
        max_leaf_nodes=LEAVES,
        learning_rate=RATE,
        early_stopping=False,
        random_state=seed,
    )
    # Several runs share the cores: threads that wait for each other take 10 times as long.
    with threadpool_limits(1, user_api="openmp"):
        model.fit(features, log_s - features[:, 0])
    return Trees.of(model)


class Trees:
    """The trees of a trained gradient boosting, laid out for one answer in microseconds.

    scikit-learn takes about a millisecond for one row, ten times the cost of a simulated job. All
    nodes of all trees lie in one row; children are positions in it.
    """

    def __init__(
        self, root: Ints, feature: Ints, threshold: Floats, child: Ints, value: Floats, base: float
    ) -> None:
        self._nodes = (root, feature, threshold, child, value)
        self._base = base

    @staticmethod
    def of(model: object) -> Trees:
        """Returns the trees of a fitted `HistGradientBoostingRegressor` without missing values.

        NOTE: the library has no public access to its trees; a test compares our answers with its
        own.
        """
        fitted: Any = model
        each = [one[0].nodes for one in fitted._predictors]
        sizes = np.array([len(nodes) for nodes in each])
        root = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64)
        nodes = np.concatenate(each)
        shift = np.repeat(root, sizes)
        feature = np.where(nodes["is_leaf"] == 1, LEAF, nodes["feature_idx"]).astype(np.int64)
        child = np.stack((nodes["left"] + shift, nodes["right"] + shift), axis=1).astype(np.int64)
        base = float(np.ravel(fitted._baseline_prediction)[0])
        threshold = nodes["num_threshold"].astype(np.float64)
        return Trees(root, feature, threshold, child, nodes["value"].astype(np.float64), base)

    def predict(self, row: Floats) -> float:
        """Returns the answer for one row of features."""
        return self._base + float(_sum(*self._nodes, row))


def _sum(
    root: Ints, feature: Ints, threshold: Floats, child: Ints, value: Floats, row: Floats
) -> float:
    total = 0.0
    for start in root:
        at = start
        while feature[at] >= 0:
            at = child[at, 0] if row[feature[at]] <= threshold[at] else child[at, 1]
        total += value[at]
    return total


_sum = compiled(_sum)
