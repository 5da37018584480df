"""The Gittins index of attained service, under the distribution that ended jobs have shown.

The distribution of total service (GPU-seconds) is learned from the jobs that have ended so far,
and renewed as they grow by a tenth; until `samples_min` have ended, the job with the least service
goes first. Ranks change while jobs run, so a running job is ranked again whenever its service has
grown by the factor `step` (and first at the service quantum `delta`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf, log, nextafter
from typing import ClassVar

import numpy as np

from dovetail.algorithms.gittins import GittinsTable, gittins_table
from dovetail.core.job import Floats
from dovetail.core.order import Order
from dovetail.core.passes import Because, Keys, runs_on
from dovetail.core.plan import Draft
from dovetail.core.policy import Decision
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import Running, View

FIRST_LOOK_GPU_S = 60.0
"""Without `delta` a job is first ranked again after one GPU-minute."""


@dataclass(frozen=True, slots=True)
class ServiceHistory:
    """The total service of ended jobs: those in the table, and newer ones."""

    learned: tuple[float, ...] = ()
    fresh: tuple[float, ...] = ()
    table: GittinsTable | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class IndexPolicy:
    """What the policies of the index share; each says in `serve` who gets GPUs by it.

    `delta` in GPU-seconds, 0 for the exact index; `step` is a growth factor.
    """

    delta: float = 0.0
    step: float = 2.0
    samples_min: int = 30

    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate"})
    initial: ClassVar[ServiceHistory] = ServiceHistory()

    def __post_init__(self) -> None:
        if not (0 <= self.delta < inf and 1 < self.step < inf and self.samples_min >= 1):
            raise ValueError("delta must be 0 or more, step above 1, samples-min at least 1")

    @property
    def knows(self) -> frozenset[str]:
        """Returns attained service."""
        return frozenset({"attained service"})

    @property
    def order(self) -> Order:
        """Ranks waiting jobs by service until there is a table to rank them by."""
        return Order(partial(self._keys, None))

    def serve(self, view: View, keys: Keys) -> tuple[Draft | None, Because]:
        """Returns who runs, given the ranks of the running jobs, and why others wait."""
        raise NotImplementedError

    def decide(self, view: View, memory: object) -> Decision:
        """Learns from ended jobs and ranks all; wakes when a running job must be ranked again."""
        assert isinstance(memory, ServiceHistory)
        history = self._learn(view, memory)
        # Waiting jobs were ranked by the table of the last decision; running ones must be too.
        draft, because = self.serve(view, partial(self._running_keys, memory.table))
        wake_at = self._next_look_s(view, draft)
        renewed = history.table is not memory.table
        order = Order(partial(self._keys, history.table)) if renewed else None
        return Decision(draft, history, wake_at, because, order)

    def _keys(self, table: GittinsTable | None, view: View, jobs: Sequence[int]) -> list[float]:
        service = [self._level(a) for a in view.progress.attained_gpu_s(jobs)]
        return service if table is None else [-table.at_one(a) for a in service]

    def _learn(self, view: View, history: ServiceHistory) -> ServiceHistory:
        ended = view.progress.attained_gpu_s(view.changes.ended)
        fresh = history.fresh + tuple(a for a in ended if a > 0)
        enough = len(history.learned) + len(fresh) >= self.samples_min
        if not enough or len(fresh) * 10 < len(history.learned):
            return ServiceHistory(history.learned, fresh, history.table)
        learned = history.learned + fresh
        return ServiceHistory(learned, (), gittins_table(learned, self.delta or None))

    def _first_look(self) -> float:
        return self.delta or FIRST_LOOK_GPU_S

    def _level(self, service: float) -> float:
        """Returns the service at which a job was last ranked."""
        first = self._first_look()
        if service < first * (1 - RELATIVE_TOLERANCE):
            return 0.0
        return first * self.step ** int(log(service / first) / log(self.step) + RELATIVE_TOLERANCE)

    def _running_keys(self, table: GittinsTable | None, running: Running) -> Floats:
        service = self._levels(running.attained_gpu_s)
        return service if table is None else -table.at(service)

    def _levels(self, service: Floats) -> Floats:
        """Returns `_level` of many jobs."""
        first = self._first_look()
        looks = np.log(np.maximum(service / first, 1.0)) / log(self.step) + RELATIVE_TOLERANCE
        return np.where(
            service < first * (1 - RELATIVE_TOLERANCE), 0.0, first * self.step ** np.floor(looks)
        )

    def _next_look_s(self, view: View, draft: Draft | None) -> float:
        """Returns when the first job that runs from now on must be ranked again."""
        left_s = self._left_s(*runs_on(view, draft))
        soonest_s = float(left_s.min()) if len(left_s) else float("inf")
        # The rest can be shorter than one step of the clock, but time must advance.
        return max(view.now + soonest_s, nextafter(view.now, float("inf")))

    def _left_s(self, attained: Floats, gpus: Floats) -> Floats:
        """Returns the seconds until each job is ranked again."""
        level = self._levels(attained)
        target = np.where(level > 0, level * self.step, self._first_look())
        # A job without GPU attains no service.
        with np.errstate(divide="ignore"):
            return np.asarray((target - attained) / gpus)
