"""How fast jobs can be on a number of GPUs, wherever on the cluster these are."""

from __future__ import annotations

import numpy as np

from dovetail.core.beliefs import Physics, on_nodes
from dovetail.core.cluster import Cluster


class TopSpeeds:
    """Speeds of the jobs of a trace that no placement on a number of GPUs exceeds."""

    def __init__(self, cluster: Cluster, physics: Physics) -> None:
        self._physics = physics
        self._size, self._nodes = max(cluster.installed), cluster.nodes

    def of(self, job: int, gpus: int) -> float:
        """Returns the top speed of a job on so many GPUs of the first type."""
        top = self._physics.speed.top(job, gpus)
        return top if self._physics.structure.graph(job) else min(top, self._plain(job, gpus))

    def _plain(self, job: int, gpus: int) -> float:
        """Returns the highest speed of a plain job, of which only the number of nodes matters.

        It is fastest on the fewest, or on one more: a ring over two nodes may be slower than one
        over three (docs/concepts/physics.md), and all over more are alike. The fewest are those of
        the largest, so nodes of several sizes only add placements that exceed no speed here.
        """
        fewest = -(-gpus // self._size)
        if fewest == 1:
            return np.inf
        numbers = [n for n in (fewest, fewest + 1) if n <= min(gpus, self._nodes)]
        whole = self._physics.speed.whole
        return max((whole(job, on_nodes(gpus, n)) for n in numbers), default=np.inf)
