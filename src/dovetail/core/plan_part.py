"""A part of what runs: what a policy sees that another one wraps, as if the rest were stopped."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.core.job import Bools, Floats, Ints
from dovetail.core.length_distribution import LengthQuantiles
from dovetail.core.occupancy import Occupancy
from dovetail.core.placement import Placement
from dovetail.core.plan import Draft, RunningPlan
from dovetail.core.view import Progress, Running


class PlanPart:
    """The running plan without some jobs; every draft of it stops them."""

    def __init__(self, whole: RunningPlan, without: Collection[int]) -> None:
        self._whole, self._without = whole, sorted(without)
        hidden = frozenset(without)
        self._placed = {job: p for job, p in whole.placed.items() if job not in hidden}
        self._draft = self._begin()

    def _begin(self) -> Draft:
        draft = self._whole.draft()
        for job in self._without:
            draft.remove(job)
        self._bare = draft.savepoint()
        return draft

    @property
    def version(self) -> int:
        """Returns a number that grows with every change of the plan."""
        return self._whole.version

    @property
    def placed(self) -> Mapping[int, Placement]:
        """Returns job -> placement."""
        return self._placed

    @property
    def occupancy(self) -> Occupancy:
        """Returns the index of free GPUs; read only outside a draft."""
        return self._draft.occupancy

    @property
    def free_gpus(self) -> int:
        """Returns the number of free GPUs on nodes open for work."""
        return self._draft.free_gpus

    def draft(self) -> Draft:
        """Returns a draft of the part that runs."""
        if not self._whole.is_open(self._draft):
            self._draft = self._begin()
        self._draft.undo_to(self._bare)
        return self._draft

    def repack(self) -> Draft:
        """Returns a draft that starts from an empty cluster."""
        return self._whole.repack()

    def discard(self) -> None:
        """Rolls an open draft back."""
        self.draft()

    def restore(self) -> None:
        """Rebuilds the tables from what runs, whatever a draft has left behind."""
        self._whole.restore()
        self._draft = self._begin()

    def is_open(self, draft: Draft) -> bool:
        """True if a draft is the last that was begun, and the plan has not changed since."""
        return self._whole.is_open(draft)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Some rows of the running jobs. A column that the policy may not read raises when it is."""

    whole: Running
    keep: Bools

    @property
    def jobs(self) -> Ints:
        return self.whole.jobs[self.keep]

    @property
    def gpus(self) -> Floats:
        return self.whole.gpus[self.keep]

    @property
    def left_s(self) -> Floats:
        return self.whole.left_s[self.keep]

    @property
    def attained_gpu_s(self) -> Floats:
        return self.whole.attained_gpu_s[self.keep]


class ProgressPart:
    """The progress of all jobs, where some do not count as running."""

    def __init__(self, whole: Progress, without: Collection[int]) -> None:
        self._whole, self.knows_lengths = whole, whole.knows_lengths
        self._without = np.fromiter(without, np.int64, len(without))

    def running(self) -> Running:
        """Returns the running jobs that count, as columns."""
        rows = self._whole.running()
        return _Rows(rows, ~np.isin(rows.jobs, self._without))

    def done_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the progress, in solo seconds on the requested GPUs."""
        return self._whole.done_s(jobs)

    def left_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the mean of what is left, given the progress so far; of one number, less it."""
        return self._whole.left_s(jobs)

    def length_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the forecast lengths, in solo seconds on the requested GPUs; means of each."""
        return self._whole.length_s(jobs)

    def length_quantiles(self, jobs: Sequence[int]) -> LengthQuantiles:
        """Returns the distributions of the lengths of jobs that have not ended."""
        return self._whole.length_quantiles(jobs)

    def attained_gpu_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the GPU-seconds held so far, switching included."""
        return self._whole.attained_gpu_s(jobs)

    def pending_since_s(self, job: int) -> float:
        """Returns when a waiting job last became pending."""
        return self._whole.pending_since_s(job)

    def running_since_s(self, job: int) -> float:
        """Returns when a running job was last placed."""
        return self._whole.running_since_s(job)
