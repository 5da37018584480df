"""The losses of jobs with a model to each other on shared GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.core.beliefs import Interleaving, Neighbour, Side
from dovetail.core.job import Floats
from dovetail.core.placement import Placement
from dovetail.physics.device_times import DeviceTimes
from dovetail.physics.modelled.job_models import JobModels
from dovetail.physics.sharing.interleave import InterleaveCycles
from dovetail.physics.sharing.limits import shipped_demand
from dovetail.physics.sharing.pair_law import GpuLoad, Interference
from dovetail.physics.sharing.worker_slowdowns import (
    Sharer,
    split_slowdown,
    straggling,
    worker_slowdowns,
)


class WorkerSlowdowns:
    """How many times slower each worker of a job is than alone on a whole GPU that it requests.

    `devices` is None if all types of GPU are alike.
    """

    def __init__(
        self, models: JobModels, interference: Interference, devices: DeviceTimes | None
    ) -> None:
        self._models, self._interference, self._devices = models, interference, devices
        self._turns = InterleaveCycles(lambda: models.stages.known)
        self._utilizations: dict[GpuLoad, float] = {}

    def utilization(self, job: int, gpus: int, steps: int) -> float:
        """Returns how busy a job on so many GPUs, with so many steps, keeps each of them."""
        load = self._models.load(job, gpus, steps)
        used = self._utilizations.get(load)
        if used is None:
            used = shipped_demand().utilization(load.model, load.micro_batch)
            self._utilizations[load] = used
        return used

    def of_workers(
        self, job: int, placement: Placement, neighbours: Sequence[Neighbour]
    ) -> list[float]:
        """Returns the slowdown of each worker by its limit, its neighbour or set, its device."""
        if placement.interleave and all(there.interleave for _, there in neighbours):
            slow = [self._in_turns(job, placement, neighbours)] * placement.gpus
        else:
            slow = self._side_by_side(job, placement, neighbours)
        if self._devices is not None:
            on = self._devices.on
            devices = [on(job, node) for node, count in placement.spans for _ in range(count)]
            slow = [s * d for s, d in zip(slow, devices, strict=True)]
        return slow

    def _in_turns(self, job: int, placement: Placement, members: Sequence[Neighbour]) -> float:
        if not members:
            return 1.0
        kind, all_members = self._models.kind, ((job, placement), *members)
        seats = [(kind[j], p.interleave.phase) for j, p in all_members if p.interleave]
        return self._turns.slowdown(kind[job], seats)

    def _side_by_side(
        self, job: int, placement: Placement, neighbours: Sequence[Neighbour]
    ) -> list[float]:
        gpus, steps = placement.gpus, placement.accumulation_steps
        mine = self._models.load(job, gpus, steps)
        sharers = []
        for other, there in neighbours:
            as_placed = there.gpus, there.accumulation_steps
            ratio = self._interference.ratio(mine, self._models.load(other, *as_placed))
            sharers.append(Sharer(self.utilization(other, *as_placed), ratio))
        used = self.utilization(job, gpus, steps)
        return worker_slowdowns(placement, used, neighbours, sharers)


class ModelSharing:
    """Sharing by the models of the jobs. With `mixed_types` nodes differ in their GPU type."""

    def __init__(
        self,
        models: JobModels,
        interference: Interference,
        slowdowns: WorkerSlowdowns,
        *,
        mixed_types: bool,
    ) -> None:
        self._models, self._law, self._slowdowns = models, interference, slowdowns
        self._mixed_types = mixed_types
        self._ratios: dict[tuple[int, int, int, int], tuple[float, float]] = {}

    def slowdown(self, job: int, placement: Placement, neighbours: Sequence[Neighbour]) -> float:
        """Returns the iteration as placed over that of an even job alone on whole GPUs."""
        if self._mixed_types or placement.fractions or placement.samples or placement.interleave:
            return self._straggling(job, placement, neighbours)
        if not neighbours:
            return 1.0
        # NOTE: here one ratio decides for all workers, the most frequent case of sharing.
        models, worst = self._models, 1.0
        mine = models.load(job, placement.gpus, placement.accumulation_steps)
        for other, there in neighbours:
            if there.fractions:
                return self._straggling(job, placement, neighbours)
            theirs = models.load(other, there.gpus, there.accumulation_steps)
            worst = max(worst, self._law.ratio(mine, theirs))
        return worst

    def interference(
        self, job: int, steps: int, other: int, other_steps: int
    ) -> tuple[float, float]:
        """Returns the ratios of two jobs on their requested GPUs."""
        kind = self._models.kind
        key = (kind[job], steps, kind[other], other_steps)
        ratios = self._ratios.get(key)
        if ratios is None:
            mine, theirs = self._load(job, steps), self._load(other, other_steps)
            ratios = self._law.ratio(mine, theirs), self._law.ratio(theirs, mine)
            self._ratios[key] = ratios
        return ratios

    def interferences(self, sides: Sequence[Side], others: Sequence[Side]) -> tuple[Floats, Floats]:
        """Returns the ratios of all pairs of jobs on their requested GPUs."""
        mine, theirs = ([self._load(*side) for side in some] for some in (sides, others))
        return self._law.ratios(mine, theirs), self._law.ratios(theirs, mine).T

    @property
    def interleaving(self) -> Interleaving:
        """Returns the stages by kind, and the rule of the cycle."""
        return self._models.stages.known

    def utilization(self, job: int) -> float:
        """Returns how busy the job keeps each GPU; limits and contention depend on it."""
        return self._slowdowns.utilization(job, self._models.gpus[job], 1)

    def _load(self, job: int, steps: int) -> GpuLoad:
        return self._models.load(job, self._models.gpus[job], steps)

    def _straggling(self, job: int, placement: Placement, neighbours: Sequence[Neighbour]) -> float:
        models, slow = self._models, self._slowdowns.of_workers(job, placement, neighbours)
        profile = models.profile[job]
        if not placement.samples or models.is_pipeline(job):
            return max(slow)
        if profile is None:
            return straggling(slow, placement.samples, 0.0)
        gpus, batch = placement.gpus, models.batch[models.kind[job]]
        nodes = models.well_placed_nodes(job, gpus) if models.by_count else placement.nodes
        return split_slowdown(profile, placement, slow, batch=batch, nodes=nodes)
