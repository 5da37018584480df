"""The physics of jobs without a model: speed in proportion to GPUs, whatever the placement.

Sharing slows both sides by the interference of jobs of unknown model. Stages that are not known
count as the GPU's alone, so an interleave set of n such jobs runs at an n-th of the speed.
Accumulation costs such a job nothing. It is as busy as the median of the measured models, and its
compute time grows with its samples alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.core.beliefs import (
    BestBatches,
    Interleaving,
    Neighbour,
    Physics,
    SizedJob,
    WorkerTime,
)
from dovetail.core.job import Floats, Ints, JobTable, PipelineStage
from dovetail.core.kinds import Kinds
from dovetail.core.placement import Placement
from dovetail.core.units import NEVER_S
from dovetail.physics.device_times import DeviceTimes
from dovetail.physics.sharing.contention import shipped_contention
from dovetail.physics.sharing.interference import Injected, Interference
from dovetail.physics.sharing.service_demand import RESOURCES, UNKNOWN_DEMAND
from dovetail.physics.sharing.turns import InterleaveRule, in_turns, interleaving_of, sets_of
from dovetail.physics.sharing.worker_slowdowns import Sharer, straggling, worker_slowdowns
from dovetail.physics.speed.rate_tables import RateTables


def linear_physics(
    jobs: JobTable,
    interference: Interference | None = None,
    devices: DeviceTimes | None = None,
) -> Physics:
    """Returns linear scaling for all jobs; GPUs are alike but for `devices`."""
    law, structure = interference or Injected(), LinearStructure(jobs)
    return Physics(
        speed=LinearSpeed(structure),
        sharing=LinearSharing(structure, law, devices),
        memory=UnknownMemory(),
        batches=LinearBatches(jobs, law),
        structure=structure,
    )


class LinearStructure:
    """Kinds by requested GPUs and graph; throughput in proportion to GPUs."""

    def __init__(self, jobs: JobTable) -> None:
        self.jobs = jobs
        self.gpus: list[int] = jobs.gpus.tolist()
        self.kinds = Kinds(_keys(jobs, 0))

    def admit(self, jobs: JobTable) -> None:
        """Adds the rows appended to the job table."""
        known = len(self.gpus)
        self.gpus.extend(jobs.gpus[known:].tolist())
        self.kinds.admit(_keys(jobs, known))

    @property
    def kind_of(self) -> Ints:
        """Returns the kind of each job."""
        return self.kinds.of

    def graph(self, job: int) -> tuple[PipelineStage, ...]:
        """Returns the graph that the trace gives the job."""
        code = int(self.jobs.graph_code[job])
        return self.jobs.graphs[code] if code >= 0 else ()

    def scale(self, job: int) -> float:
        """Returns the requested GPUs."""
        return float(self.gpus[job])


class LinearSpeed:
    """GPUs over requested GPUs."""

    def __init__(self, structure: LinearStructure) -> None:
        self._structure, self._gpus = structure, structure.gpus
        self._rates = RateTables(self._row)

    def whole(self, job: int, placement: Placement, done_s: float = 0.0) -> float:
        """Returns GPUs over requested GPUs."""
        gpus, requested = placement.gpus, self._gpus[job]
        return 1.0 if gpus == requested else gpus / requested

    def rates(self, max_gpus: int) -> Floats:
        """Returns GPUs over requested GPUs, by kind."""
        return self._rates.upto(max_gpus, len(self._structure.kinds))

    def best_batches(self, job: int, done_s: float, max_gpus: int) -> BestBatches:
        """Returns GPUs over requested GPUs, on any nodes, with the batch as requested."""
        counts = np.array([np.zeros(max_gpus + 1), np.arange(max_gpus + 1)])
        return BestBatches.of(counts / self._gpus[job])

    def top(self, job: int, gpus: int) -> float:
        """Returns the speed on so many GPUs: placement does not matter."""
        return self.whole(job, Placement(((0, gpus),)))

    def spread(self, job: int) -> float:
        """Returns 1: placement does not matter."""
        return 1.0

    def _row(self, kind: int, max_gpus: int) -> Floats:
        return np.arange(max_gpus + 1) / self._gpus[self._structure.kinds.example[kind]]


class LinearSharing:
    """One ratio for all pairs; unknown stages take turns on the whole GPU."""

    def __init__(
        self,
        structure: LinearStructure,
        interference: Interference,
        devices: DeviceTimes | None = None,
    ) -> None:
        self._kinds, self._devices = structure.kinds, devices
        self._ratio = interference.ratio(UNKNOWN_DEMAND, UNKNOWN_DEMAND)
        self._interleaving = _unknown_stages(len(self._kinds))

    def slowdown(self, job: int, placement: Placement, neighbours: Sequence[Neighbour]) -> float:
        """Returns the slowdown by a set, limits, samples or neighbours, and by the type of GPU."""
        if self._devices is None:
            return self._beside(placement, neighbours)
        on = self._devices.on
        slowest = max((on(job, node) for node, _ in placement.spans), default=1.0)
        return slowest * self._beside(placement, neighbours)

    def _beside(self, placement: Placement, neighbours: Sequence[Neighbour]) -> float:
        if not (placement.fractions or placement.samples or placement.interleave):
            if not neighbours:
                return 1.0
            if not any(there.fractions for _, there in neighbours):
                return self._ratio
        slow = _slow_workers(placement, neighbours, self._ratio)
        return straggling(slow, placement.samples, 0.0)

    def interference(self, mine: SizedJob, other: SizedJob) -> tuple[float, float]:
        """Returns the ratio of jobs of unknown model, twice."""
        return self._ratio, self._ratio

    def interferences(
        self, sides: Sequence[SizedJob], others: Sequence[SizedJob]
    ) -> tuple[Floats, Floats]:
        """Returns that ratio for every pair."""
        ratios = np.full((len(sides), len(others)), self._ratio)
        return ratios, ratios

    def set_interference(self, members: Sequence[SizedJob]) -> tuple[float, ...]:
        """Returns that excess for every other member."""
        return (1.0 + (len(members) - 1) * (self._ratio - 1.0),) * len(members)

    def stages(self, job: int, placement: Placement) -> tuple[tuple[float, ...], float]:
        """Returns zeros: not known."""
        return (0.0,) * RESOURCES, 0.0

    @property
    def interleaving(self) -> Interleaving:
        """Returns stages that are not known."""
        if len(self._interleaving.iteration_s) < len(self._kinds):
            self._interleaving = _unknown_stages(len(self._kinds))
        return self._interleaving

    def utilization(self, job: int) -> float:
        """Returns the median of the measured models."""
        return shipped_contention().median_utilization


class UnknownMemory:
    """The memory of jobs without a model: every footprint is unknown, so all jobs fit."""

    def footprint_bytes(self, job: int, steps: int) -> float:
        """Returns 0: not known."""
        return 0.0

    def held_bytes(self, job: int, placement: Placement) -> float:
        """Returns 0: not known."""
        return 0.0

    def fixed_bytes(self, job: int) -> float:
        """Returns 0: not known."""
        return 0.0

    def fits(self, occupants: Sequence[Neighbour], gpu_memory_bytes: float) -> bool:
        """Returns True."""
        return True


class LinearBatches:
    """The batches of the trace; the cost of accumulation is unknown."""

    def __init__(self, jobs: JobTable, interference: Interference) -> None:
        self._jobs = jobs
        self._ratio = interference.ratio(UNKNOWN_DEMAND, UNKNOWN_DEMAND)

    def samples(self, job: int) -> int:
        """Returns the batch that the trace gives the job."""
        return int(self._jobs.batch_size[job])

    def most_steps(self, job: int) -> int:
        """Returns 1: no batch is known that could be cut."""
        return 1

    def accumulated(self, job: int, steps: int, gpus: int = 0) -> float:
        """Returns 1: the cost of accumulation is unknown."""
        return 1.0

    def phase_end_s(self, job: int, done_s: float) -> float:
        """Returns inf: another batch changes nothing here."""
        return NEVER_S

    def workers(
        self, job: int, placement: Placement, neighbours: Sequence[Neighbour]
    ) -> tuple[WorkerTime, ...]:
        """Returns forward times in units of an even worker's alone on a whole GPU."""
        return self.workers_at(job, placement, _slow_workers(placement, neighbours, self._ratio))

    def workers_at(
        self, job: int, placement: Placement, slow: Sequence[float]
    ) -> tuple[WorkerTime, ...]:
        """Returns the forward times of workers that are so many times slower than alone."""
        batch = placement.batch_size or self.samples(job)
        if not batch:
            return tuple(WorkerTime(one, 0.0) for one in slow)
        return tuple(WorkerTime(0.0, one * placement.gpus / batch) for one in slow)


def _slow_workers(
    placement: Placement, neighbours: Sequence[Neighbour], ratio: float
) -> list[float]:
    turning, beside = in_turns(placement, neighbours)
    members = max(1 + len(some) for some in sets_of(placement, turning))
    if turning and not beside:
        return [float(members)] * placement.gpus
    median = shipped_contention().median_utilization
    sharer = Sharer(median, ratio)
    slow = worker_slowdowns(placement, median, beside, [sharer] * len(beside))
    return [max(float(members), one) for one in slow]


def _unknown_stages(kinds: int) -> Interleaving:
    return interleaving_of([UNKNOWN_DEMAND] * kinds, InterleaveRule())


def _keys(jobs: JobTable, first: int) -> Ints:
    """Returns the keys of the kinds of jobs, from one job on."""
    return np.stack([jobs.gpus[first:], jobs.graph_code[first:].astype(np.int64)])
