"""The losses of jobs with a model to each other on shared GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.core.beliefs import Interleaving, Neighbour, SizedJob
from dovetail.core.job import Floats
from dovetail.core.placement import Placement
from dovetail.physics.device_times import DeviceTimes
from dovetail.physics.modelled.job_models import JobModels
from dovetail.physics.sharing.interference import Interference
from dovetail.physics.sharing.limits import utilization
from dovetail.physics.sharing.service_demand import ServiceDemand
from dovetail.physics.sharing.turns import (
    InterleaveCycles,
    MemberStages,
    in_turns,
    sets_of,
    turn_of,
)
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
        self._cycles = InterleaveCycles(models.stages.known)
        self._utilizations: dict[ServiceDemand, float] = {}

    def utilization(self, demand: ServiceDemand) -> float:
        """Returns how busy a job of such demands keeps each of its GPUs."""
        used = self._utilizations.get(demand)
        if used is None:
            used = self._utilizations[demand] = utilization(demand)
        return used

    def turn(self, job: int, placement: Placement) -> MemberStages:
        """Returns the stages of a job as placed."""
        models = self._models
        return turn_of(models.placed_demand(job, placement), models.stages.rule)

    def of_workers(
        self, job: int, placement: Placement, neighbours: Sequence[Neighbour]
    ) -> list[float]:
        """Returns the slowdown of each worker by its limit, its neighbour or set, its device."""
        turning, beside = in_turns(placement, neighbours)
        if turning:
            slow = [self._in_turns(job, placement, turning)] * placement.gpus
        if beside or not turning:
            apart = self._side_by_side(job, placement, beside)
            slow = list(map(max, slow, apart)) if turning else apart
        if self._devices is not None:
            on = self._devices.on
            devices = [on(job, node) for node, count in placement.spans for _ in range(count)]
            slow = [s * d for s, d in zip(slow, devices, strict=True)]
        return slow

    def _in_turns(self, job: int, placement: Placement, members: Sequence[Neighbour]) -> float:
        mine = self._seated(job, placement)
        return max(
            self._cycles.slowdown(mine, [self._seated(*one) for one in some])
            for some in sets_of(placement, members)
        )

    def _seated(self, job: int, placement: Placement) -> MemberStages:
        assert placement.interleave is not None
        return self.turn(job, placement)._replace(phase=placement.interleave.phase)

    def _side_by_side(
        self, job: int, placement: Placement, neighbours: Sequence[Neighbour]
    ) -> list[float]:
        mine = self._models.placed_demand(job, placement)
        sharers = []
        for other in neighbours:
            theirs = self._models.placed_demand(*other)
            ratio = self._interference.ratio(mine, theirs)
            sharers.append(Sharer(self.utilization(theirs), ratio))
        return worker_slowdowns(placement, self.utilization(mine), neighbours, sharers)


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

    def slowdown(self, job: int, placement: Placement, neighbours: Sequence[Neighbour]) -> float:
        """Returns the iteration as placed over that of an even job alone on whole GPUs."""
        if self._mixed_types or placement.fractions or placement.samples or placement.interleave:
            return self._straggling(job, placement, neighbours)
        if not neighbours:
            return 1.0
        # NOTE: here one ratio decides for all workers, the most frequent case of sharing.
        models, worst = self._models, 1.0
        mine = models.placed_demand(job, placement)
        for other, there in neighbours:
            if there.fractions:
                return self._straggling(job, placement, neighbours)
            worst = max(worst, self._law.ratio(mine, models.placed_demand(other, there)))
        return worst

    def interference(self, mine: SizedJob, other: SizedJob) -> tuple[float, float]:
        """Returns the ratios of two jobs."""
        one, two = self._demand(mine), self._demand(other)
        return self._law.ratio(one, two), self._law.ratio(two, one)

    def interferences(
        self, sides: Sequence[SizedJob], others: Sequence[SizedJob]
    ) -> tuple[Floats, Floats]:
        """Returns the ratios of all pairs of jobs."""
        mine, theirs = ([self._demand(side) for side in some] for some in (sides, others))
        return self._law.ratios(mine, theirs)

    def set_interference(self, members: Sequence[SizedJob]) -> tuple[float, ...]:
        """Returns the ratios of the members of a set."""
        return tuple(self._law.of_set([self._demand(side) for side in members]).tolist())

    def stages(self, job: int, placement: Placement) -> tuple[tuple[float, ...], float]:
        """Returns the stages and the iteration at the GPUs that the job holds."""
        return self._slowdowns.turn(job, placement)[:2]

    @property
    def interleaving(self) -> Interleaving:
        """Returns the stages by kind as requested, and the rule of the cycle."""
        return self._models.stages.known

    def utilization(self, job: int) -> float:
        """Returns how busy the job keeps each GPU; limits and contention depend on it."""
        return self._slowdowns.utilization(self._demand(SizedJob(job)))

    def _demand(self, side: SizedJob) -> ServiceDemand:
        models = self._models
        gpus, nodes = side.gpus or models.gpus[side.job], 0 if models.by_count else side.nodes
        return models.demand(side.job, gpus, side.steps, nodes=nodes)

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
