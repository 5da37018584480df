"""What tenants deserve by its definition, and what they got: a second account of fair shares.

Nothing here calls the code that it judges. Water filling is found by bisection on the level, over
queues given as rows; shares are added up from the facts of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from builders import Story
from dovetail.core.messages import Ended, Started, Stopped
from dovetail.core.tenants import TIERS, QueueSpec


def poured(caps: Sequence[float], weights: Sequence[float], pool: float) -> list[float]:
    """Returns the least levels `min(cap, weight * level)` that use a pool, or the caps."""
    if sum(caps) <= pool:
        return list(caps)
    low, high = 0.0, pool / min(weights)
    for _ in range(100):
        level = (low + high) / 2
        used = sum(min(c, w * level) for c, w in zip(caps, weights, strict=True))
        low, high = (level, high) if used < pool else (low, level)
    return [min(c, w * high) for c, w in zip(caps, weights, strict=True)]


class Fairness:
    """The shares of queues in a tree, by definition: guarantees, then tiers, then weights."""

    def __init__(self, queues: Sequence[QueueSpec], demand: Mapping[str, float]) -> None:
        self._demand = demand
        self._below: dict[str, list[QueueSpec]] = {}
        for queue in queues:
            self._below.setdefault(queue.parent, []).append(queue)

    def shares(self, gpus: float) -> dict[str, float]:
        """Returns the GPUs that each queue deserves, those below it included."""
        found: dict[str, float] = {}
        self._share(self._below.get("", []), gpus, found)
        return found

    def _share(self, siblings: Sequence[QueueSpec], gpus: float, found: dict[str, float]) -> None:
        got = {q.name: min(self._cap(q), self._promise(q)) for q in siblings}
        left = gpus - sum(got.values())
        for rank in sorted({_rank(q) for q in siblings}):
            equals = [q for q in siblings if _rank(q) == rank]
            caps = [self._cap(q) - got[q.name] for q in equals]
            more = poured(caps, [q.weight for q in equals], left) if left > 0 else [0.0] * len(caps)
            for queue, share in zip(equals, more, strict=True):
                got[queue.name] += share
                left -= share
        for queue in siblings:
            found[queue.name] = got[queue.name]
            self._share(self._below.get(queue.name, []), got[queue.name], found)

    def _cap(self, queue: QueueSpec) -> float:
        below = self._below.get(queue.name, [])
        asked = sum(map(self._cap, below)) if below else self._demand.get(queue.name, 0.0)
        return min(asked, queue.quota_gpus or inf)

    def _promise(self, queue: QueueSpec) -> float:
        own = sum(gpus for _, gpus in queue.guaranteed)
        return max(own, sum(map(self._promise, self._below.get(queue.name, []))))


def _rank(queue: QueueSpec) -> tuple[int, float]:
    return TIERS.index(queue.tier), -queue.priority


def held_gpus(story: Story, begin_s: float, end_s: float) -> dict[str, float]:
    """Returns the mean GPUs that the jobs of each queue held between two instants."""
    queue = story.scene.trace.jobs.queue.texts()
    since: dict[int, tuple[float, int]] = {}
    total: dict[str, float] = {}

    def release(job: int, t: float) -> None:
        start_s, gpus = since.pop(job, (t, 0))
        overlap_s = min(t, end_s) - max(start_s, begin_s)
        total[queue[job]] = total.get(queue[job], 0.0) + gpus * max(0.0, overlap_s)

    for fact in story.facts:
        if isinstance(fact, Started):
            release(fact.job, fact.t)
            since[fact.job] = fact.t, fact.placement.gpus
        elif isinstance(fact, Stopped | Ended):
            release(fact.job, fact.t)
    return {name: gpu_s / (end_s - begin_s) for name, gpu_s in total.items()}
