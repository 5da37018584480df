"""The physics of jobs without a model: speed in proportion to GPUs, whatever the placement.

Sharing slows both sides by the interference of jobs of unknown model. Stages that are not known
are taken for the GPU's alone, so an interleave set of n such jobs runs at an n-th of the speed.
Accumulation costs such a job nothing. It is as busy as the median of the measured models, and its
computing grows with its samples alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dovetail.core.beliefs import BestBatches, Interleaving, Neighbour, WorkerTime
from dovetail.core.job import Floats, Ints, JobTable, PipelineStage
from dovetail.core.placement import Placement
from dovetail.physics.gang import Sharer, straggling, worker_slowdowns
from dovetail.physics.interleave import InterleaveRule, interleaving_of
from dovetail.physics.limits import shipped_demand
from dovetail.physics.sharing import Injected, Interference

NEVER = float("inf")


@dataclass(frozen=True)
class LinearPhysics:
    """Linear scaling, whatever the model."""

    jobs: JobTable
    interference_of: Interference = field(default_factory=Injected)

    def __post_init__(self) -> None:
        keys = np.stack([self.jobs.gpus, self.jobs.graph_code])
        (counts, _), kind = np.unique(keys, axis=1, return_inverse=True)
        kind = kind.reshape(-1)
        object.__setattr__(self, "_gpus", self.jobs.gpus.tolist())
        object.__setattr__(self, "_kind_of", kind.astype(np.int64))
        object.__setattr__(self, "_requested", counts)
        object.__setattr__(self, "_rates", {})
        unknown = interleaving_of([(None, 1)] * len(counts), InterleaveRule())
        object.__setattr__(self, "_interleaving", unknown)
        object.__setattr__(self, "_xi", self.interference_of.ratio(None, 1.0, None, 1.0))

    @property
    def kind_of(self) -> Ints:
        """Returns the kind of each job: requested GPUs and the graph decide."""
        return self._kind_of  # type: ignore[attr-defined,no-any-return]

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
                return alone / self._xi  # type: ignore[attr-defined,no-any-return]
        return alone / straggling(self._slow(placement, neighbours), placement.samples, 0.0)

    def alone(self, job: int, gpus: int) -> float:
        """Returns the speed on so many GPUs without neighbours or limits."""
        requested: list[int] = self._gpus  # type: ignore[attr-defined]
        return 1.0 if gpus == requested[job] else gpus / requested[job]

    def phase_end_s(self, job: int, done_s: float) -> float:
        """Returns inf: another batch changes nothing here."""
        return NEVER

    def best_batches(self, job: int, done_s: float, max_gpus: int) -> BestBatches:
        """Returns GPUs over requested GPUs, on any nodes, with the batch as requested."""
        requested: list[int] = self._gpus  # type: ignore[attr-defined]
        return BestBatches.of(
            np.array([np.zeros(max_gpus + 1), np.arange(max_gpus + 1)]) / requested[job]
        )

    def scale(self, job: int) -> float:
        """Returns the throughput on the requested GPUs over that on one."""
        requested: list[int] = self._gpus  # type: ignore[attr-defined]
        return float(requested[job])

    def rates(self, max_gpus: int) -> Floats:
        """Returns GPUs over requested GPUs, by kind."""
        known: dict[int, Floats] = self._rates  # type: ignore[attr-defined]
        if max_gpus not in known:
            requested: Ints = self._requested  # type: ignore[attr-defined]
            known[max_gpus] = np.arange(max_gpus + 1) / requested[:, None]
            known[max_gpus].setflags(write=False)
        return known[max_gpus]

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
        return self._xi, self._xi  # type: ignore[attr-defined]

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
        return self._interleaving  # type: ignore[attr-defined,no-any-return]

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

    def _slow(self, placement: Placement, neighbours: Sequence[Neighbour]) -> list[float]:
        median = shipped_demand().median
        sharer = Sharer(median, self._xi)  # type: ignore[attr-defined]
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
