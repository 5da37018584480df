"""The paper's prediction: a random forest on the label-encoded group and user (A-SRPT IV.C.3).

100 trees, squared error, grown until the leaves are pure. With two features that only name groups
of jobs, jobs of one (group, user) pair always fall into one leaf, and the splits depend on each
pair's weight and mean alone; so each tree is grown on the pairs of its bootstrap sample, weighted
by how often they were drawn. That is the same forest in a fraction of the time.
"""

from __future__ import annotations

import numpy as np

from dovetail.core.job import Floats, Ints
from dovetail.forecast.groups import UNSEEN_S, GroupLengths, growth_reached
from dovetail.forecast.submissions import Submissions

TREES = 100
FIRST, GROWTH = 20, 1.2
"""Jobs before the first training, and the growth of the history before the next one."""


class PairForest:
    """A trained forest: its prediction for each (group, user) pair of its history."""

    def __init__(self, key: Ints, user: Ints, ran_s: Floats, seed: int) -> None:
        from sklearn.tree import DecisionTreeRegressor

        width = int(user.max()) + 1
        pairs, pair_of = np.unique(key * width + user, return_inverse=True)
        features = np.stack((pairs // width, pairs % width), axis=1).astype(np.float32)
        rng = np.random.default_rng(seed)
        total = np.zeros(len(pairs))
        for _ in range(TREES):
            drawn = rng.integers(0, len(ran_s), len(ran_s))
            of = pair_of[drawn]
            weight = np.bincount(of, minlength=len(pairs)).astype(np.float64)
            in_bag = np.flatnonzero(weight)
            mean_s = np.bincount(of, ran_s[drawn], len(pairs))[in_bag] / weight[in_bag]
            tree = DecisionTreeRegressor(random_state=int(rng.integers(2**31)))
            tree.fit(features[in_bag], mean_s, sample_weight=weight[in_bag])
            total += tree.predict(features)
        self._width = width
        self._guess_s: dict[int, float] = dict(
            zip(pairs.tolist(), (total / TREES).tolist(), strict=True)
        )

    def guess_s(self, key: int, user: int) -> float:
        """Returns the prediction for a pair, 0 for one that the history does not have."""
        return self._guess_s.get(key * self._width + user, UNSEEN_S) if user < self._width else 0.0


class Forest(GroupLengths):
    """The forest, trained again whenever the history has grown by a fifth.

    NOTE: one training of the published size takes many seconds, so trainings are spaced by growth,
    not by the day: then all of them together take at most six times the last one.
    """

    def __init__(self, known: Submissions, seed: int) -> None:
        self._known = known
        self._seed = seed
        self._jobs: list[int] = []
        self._ran_s: list[float] = []
        self._trained_on = 0
        self._forest: PairForest | None = None

    def guess_s(self, job: int, now: float) -> float:
        """Returns the forest's prediction, or 0 for a group it was not trained on."""
        if growth_reached(len(self._jobs), self._trained_on, FIRST, GROWTH):
            self.train()
        if self._forest is None:
            return UNSEEN_S
        return self._forest.guess_s(int(self._known.key[job]), int(self._known.user[job]))

    def learn(self, job: int, ran_s: float, completed: bool, now: float) -> None:
        """Adds a run time to the next training."""
        self._jobs.append(job)
        self._ran_s.append(ran_s)

    def train(self) -> None:
        """Trains on all that has been learned, if anything has."""
        if not self._jobs:
            return
        jobs = np.asarray(self._jobs, dtype=np.int64)
        ran_s = np.asarray(self._ran_s)
        self._forest = PairForest(self._known.key[jobs], self._known.user[jobs], ran_s, self._seed)
        self._trained_on = len(jobs)
