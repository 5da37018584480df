"""The physics of jobs without a model: speed in proportion to GPUs, whatever the placement.

Sharing slows both sides by the interference of jobs of unknown model. Stages that are not known
are taken for the GPU's alone, so an interleave set of n such jobs runs at an n-th of the speed.
Accumulation costs such a job nothing. It is as busy as the median of the measured models, and its
computing grows with its samples alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.core.beliefs import BestBatches, Interleaving, Neighbour, Side, WorkerTime
from dovetail.core.job import Floats, Ints, JobTable, PipelineStage
from dovetail.core.kinds import Kinds
from dovetail.core.placement import Placement
from dovetail.core.units import NEVER_S
from dovetail.physics.sharing.gang import Sharer, straggling, worker_slowdowns
from dovetail.physics.sharing.interleave import InterleaveRule, interleaving_of
from dovetail.physics.sharing.limits import shipped_demand
from dovetail.physics.sharing.pair_law import Injected, Interference
from dovetail.physics.speed.rate_tables import RateTables


class LinearPhysics:
    """Linear scaling, whatever the model."""

    def __init__(self, jobs: JobTable, interference_of: Interference | None = None) -> None:
        self.jobs = jobs
        self._gpus: list[int] = jobs.gpus.tolist()
        self._kinds = Kinds(_keys(jobs, 0))
        self._rates = RateTables(self._row)
        self._interleaving = self._unknown_stages()
        self._xi = (interference_of or Injected()).ratio(None, 1.0, None, 1.0)

    def admit(self, jobs: JobTable) -> None:
        """Takes note of rows appended to the table."""
        known = len(self._gpus)
        self._gpus.extend(jobs.gpus[known:].tolist())
        if self._kinds.admit(_keys(jobs, known)):
            self._interleaving = self._unknown_stages()

    @property
    def kind_of(self) -> Ints:
        """Returns the kind of each job: requested GPUs and the graph decide."""
        return self._kinds.of

    def speed(
        self,
        job: int,
        placement: Placement,
        neighbours: Sequence[Neighbour],
        done_s: float = 0.0,
    ) -> float:
        """Returns solo seconds of progress per second."""
        alone = self.alone(job, placement.gpus)
        if placement.interleave and all(there.interleave for _, there in neighbours):
            return alone / (1 + len(neighbours))
        if not (placement.fractions or placement.samples):
            if not neighbours:
                return alone
            if not any(there.fractions for _, there in neighbours):
                return alone / self._xi
        return alone / straggling(self._slow(placement, neighbours), placement.samples, 0.0)

    def alone(self, job: int, gpus: int) -> float:
        """Returns the speed on so many GPUs without neighbours or limits."""
        requested = self._gpus[job]
        return 1.0 if gpus == requested else gpus / requested

    def phase_end_s(self, job: int, done_s: float) -> float:
        """Returns inf: another batch changes nothing here."""
        return NEVER_S

    def best_batches(self, job: int, done_s: float, max_gpus: int) -> BestBatches:
        """Returns GPUs over requested GPUs, on any nodes, with the batch as requested."""
        counts = np.array([np.zeros(max_gpus + 1), np.arange(max_gpus + 1)])
        return BestBatches.of(counts / self._gpus[job])

    def scale(self, job: int) -> float:
        """Returns the throughput on the requested GPUs over that on one."""
        return float(self._gpus[job])

    def rates(self, max_gpus: int) -> Floats:
        """Returns GPUs over requested GPUs, by kind."""
        return self._rates.upto(max_gpus, len(self._kinds))

    def accumulated(self, job: int, steps: int) -> float:
        """Returns 1: what accumulation costs is not known."""
        return 1.0

    def most_steps(self, job: int) -> int:
        """Returns 1: no batch is known that could be cut."""
        return 1

    def interference(
        self, job: int, steps: int, other: int, other_steps: int
    ) -> tuple[float, float]:
        """Returns the ratio of jobs of unknown model, twice."""
        return self._xi, self._xi

    def interferences(self, sides: Sequence[Side], others: Sequence[Side]) -> tuple[Floats, Floats]:
        """Returns that ratio for every pair."""
        ratios = np.full((len(sides), len(others)), self._xi)
        return ratios, ratios

    def footprint_bytes(self, job: int, steps: int) -> float:
        """Returns 0: not known."""
        return 0.0

    def fits_memory(self, occupants: Sequence[Neighbour], gpu_memory_bytes: float) -> bool:
        """Tells that jobs of unknown footprint fit."""
        return True

    def held_bytes(self, job: int, placement: Placement) -> float:
        """Returns 0: not known."""
        return 0.0

    def fixed_bytes(self, job: int) -> float:
        """Returns 0: not known."""
        return 0.0

    @property
    def interleaving(self) -> Interleaving:
        """Returns stages that are not known."""
        return self._interleaving

    def utilization(self, job: int) -> float:
        """Returns the median of what was measured."""
        return shipped_demand().median

    def workers(
        self, job: int, placement: Placement, neighbours: Sequence[Neighbour]
    ) -> tuple[WorkerTime, ...]:
        """Returns forward times in units of an even worker's alone and whole."""
        if placement.interleave and all(there.interleave for _, there in neighbours):
            slow = [1.0 + len(neighbours)] * placement.gpus
        else:
            slow = self._slow(placement, neighbours)
        return self.workers_at(job, placement, slow)

    def workers_at(
        self, job: int, placement: Placement, slow: Sequence[float]
    ) -> tuple[WorkerTime, ...]:
        """Returns the forward times of workers that are so many times slower than alone."""
        batch = placement.batch_size or self.batch(job)
        if not batch:
            return tuple(WorkerTime(one, 0.0) for one in slow)
        return tuple(WorkerTime(0.0, one * placement.gpus / batch) for one in slow)

    def batch(self, job: int) -> int:
        """Returns the batch that the trace gives the job."""
        return int(self.jobs.batch_size[job])

    def _row(self, kind: int, max_gpus: int) -> Floats:
        return np.arange(max_gpus + 1) / self._gpus[self._kinds.example[kind]]

    def _unknown_stages(self) -> Interleaving:
        return interleaving_of([(None, 1)] * len(self._kinds), InterleaveRule())

    def _slow(self, placement: Placement, neighbours: Sequence[Neighbour]) -> list[float]:
        median = shipped_demand().median
        sharer = Sharer(median, self._xi)
        return worker_slowdowns(placement, median, neighbours, [sharer] * len(neighbours))

    def graph(self, job: int) -> tuple[PipelineStage, ...]:
        """Returns the graph that the trace gives the job."""
        code = int(self.jobs.graph_code[job])
        return self.jobs.graphs[code] if code >= 0 else ()

    def top_speed(self, job: int, gpus: int) -> float:
        """Returns the speed on so many GPUs: placement does not matter."""
        return self.speed(job, Placement(((0, gpus),)), ())

    def spread_speed(self, job: int) -> float:
        """Returns 1: placement does not matter."""
        return 1.0


def _keys(jobs: JobTable, first: int) -> Ints:
    """Returns what tells kinds apart, from one job on."""
    return np.stack([jobs.gpus[first:], jobs.graph_code[first:].astype(np.int64)])
