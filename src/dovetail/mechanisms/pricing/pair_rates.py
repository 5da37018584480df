"""How fast two jobs run that share the same GPUs, by kind and number of GPUs, as tables.

Computed once a run, for each kind when it is first present: decisions read arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from dovetail.core.beliefs import Physics, SizedJob
from dovetail.core.job import Bools, Floats, Ints
from dovetail.core.placement import Placement
from dovetail.core.queue import ReadableQueue
from dovetail.core.view import View

STEPS = ((1, 1), (1, 2), (2, 1))
"""Accumulation steps of the two: one cuts its batch in half where both do not fit otherwise."""
OTHER_WAY = (0, 2, 1)
"""The variant of `STEPS` seen from the other job."""
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""The numbers of GPUs on which two jobs may share. A rigid job of another size gets no partner."""


class PairRates:
    """Speeds of jobs of one kind beside those of another, on the same GPUs.

    `rates[a, b, g, v]` is the speed of row a beside row b on `counts[g]` GPUs with `STEPS[v]`, in
    solo seconds per second, 0 where both do not fit the memory of a GPU.
    """

    def __init__(self, physics: Physics, memory_bytes: float, widest: int) -> None:
        self.physics, self._memory_bytes = physics, memory_bytes
        self.counts: Ints = np.array([n for n in COUNTS if n <= widest], np.int64)
        self.row_of: dict[int, int] = {}
        self._jobs: list[int] = []
        self.rates: Floats = np.zeros((0, 0, len(self.counts), len(STEPS)))
        self._held = np.zeros((2, 0, len(self.counts)))

    def rows(self, kinds: Sequence[int], jobs: Sequence[int]) -> Ints:
        """Returns the rows of kinds, given a job of each."""
        fresh = {k: j for k, j in zip(kinds, jobs, strict=True) if k not in self.row_of}
        if fresh:
            self._admit(fresh)
        return np.array([self.row_of[k] for k in kinds], np.int64)

    def _admit(self, fresh: dict[int, int]) -> None:
        before = len(self._jobs)
        for kind, job in fresh.items():
            self.row_of[kind] = len(self._jobs)
            self._jobs.append(job)
        known = len(self._jobs)
        wider = np.zeros((known, known, len(self.counts), len(STEPS)))
        wider[:before, :before] = self.rates
        self.rates = wider
        new = self._jobs[before:]
        held = [[self._bytes(job, steps) for job in new] for steps in (1, 2)]
        self._held = np.concatenate([self._held, np.array(held)], axis=1)
        for at, gpus in enumerate(self.counts.tolist()):
            # NOTE: one call for all variants takes a third of the time of one for each, although
            # it includes both jobs in two steps, which is no variant.
            sides = [SizedJob(job, steps, gpus) for steps in (1, 2) for job in new]
            others = [SizedJob(job, steps, gpus) for steps in (1, 2) for job in self._jobs]
            one, two = self.physics.pair_rates(sides, others)
            by_steps = 2, len(new), 2, known
            one, two = one.reshape(by_steps), two.reshape(by_steps)
            for variant, (mine, theirs) in enumerate(STEPS):
                fits = self._fits(variant, at)[before:]
                me, it = one[mine - 1, :, theirs - 1], two[mine - 1, :, theirs - 1]
                self.rates[before:, :, at, variant] = np.where(fits, me, 0.0)
                self.rates[:, before:, at, OTHER_WAY[variant]] = np.where(fits, it, 0.0).T

    def _bytes(self, job: int, steps: int) -> list[float]:
        held = self.physics.memory.held_bytes
        return [
            held(job, Placement(((0, gpus),), accumulation_steps=steps))
            for gpus in self.counts.tolist()
        ]

    def _fits(self, variant: int, at: int) -> Bools:
        mine, theirs = STEPS[variant]
        both = self._held[mine - 1, :, None, at] + self._held[theirs - 1, None, :, at]
        return np.asarray(both <= self._memory_bytes)


_tables: WeakKeyDictionary[ReadableQueue, PairRates] = WeakKeyDictionary()
# NOTE: a cache of values that depend on the run alone, so decisions stay a pure function of the
# view.


def pair_rates_of(view: View) -> PairRates:
    """Returns the tables of the run of a view."""
    tables = _tables.get(view.waiting)
    if tables is None or tables.physics is not view.physics:
        memory_bytes = min(group.gpu_memory_bytes for group in view.cluster.groups)
        tables = _tables[view.waiting] = PairRates(
            view.physics, memory_bytes, view.cluster.installed_gpus
        )
    return tables
