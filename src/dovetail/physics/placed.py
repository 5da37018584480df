"""The physics of a cluster: each job by its model's profile, placed where it is placed.

Speeds are relative to the job alone on its requested GPUs, well placed, on the cluster's first
kind of GPU: that is what `duration_s` of a trace means. A job whose model is not known scales
linearly; a pipeline as its stages meet on the links. Jobs of one model, requested GPUs, batch and
graph are of one kind, and every answer about a kind is reckoned once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from dovetail.core.beliefs import BestBatches, Interleaving, Neighbour, Side, WorkerTime
from dovetail.core.cluster import Cluster
from dovetail.core.job import Floats, Ints, JobTable, PipelineStage
from dovetail.core.kinds import Kinds
from dovetail.core.placement import Placement
from dovetail.core.units import NEVER_S
from dovetail.physics.batches import goodput
from dovetail.physics.linear import LinearPhysics
from dovetail.physics.memory import interleaved_bytes
from dovetail.physics.pipelines.pipeline import Pipelines
from dovetail.physics.sharing.gang import Gangs, forward_times, split_slowdown, straggling
from dovetail.physics.sharing.interleave import GrowingStages, InterleaveRule, Turns
from dovetail.physics.sharing.pair_law import Injected, Interference, Load
from dovetail.physics.speed.rate_tables import RateTables
from dovetail.physics.speed.throughput import fewest_steps, footprint_bytes, speed_relative
from dovetail.physics.zoo.device import time_factor
from dovetail.physics.zoo.models import Catalogue
from dovetail.physics.zoo.profile import ModelProfile


class PlacedPhysics:
    """Speeds from model profiles. With `by_count` only the number of GPUs matters."""

    def __init__(
        self,
        jobs: JobTable,
        cluster: Cluster,
        catalogue: Catalogue,
        *,
        interference: Interference | None = None,
        interleaving: InterleaveRule | None = None,
        by_count: bool = False,
    ) -> None:
        self._interference = interference or Injected()
        self._linear = LinearPhysics(jobs, self._interference)
        self._by_count = by_count
        self._find = catalogue.find
        self._per_node = max(g.gpus_per_node for g in cluster.groups)
        self._slowdown = _slowdowns(cluster)
        self._gpus: list[int] = []
        self._profile: list[ModelProfile | None] = []
        self.modelled = 0
        self._kinds = Kinds(_keys(jobs, 0))
        self._kind = self._kinds.numbers
        self._example = self._kinds.example
        self._batch: list[float] = []
        self._goodput: list[goodput.Kind | None] = []
        self._pipelines = Pipelines(cluster)
        self._stages = GrowingStages(interleaving or InterleaveRule())
        self._turns = Turns(self._stages.known)
        self._gangs = Gangs(
            self._profile,
            self._kind,
            self._micro_batch,
            self._interference,
            self._turns,
            self._slowdown,
        )
        self._rates = RateTables(self._row)
        self._ratios: dict[tuple[int, int, int, int], tuple[float, float]] = {}
        self._loads: dict[tuple[int, int], Load] = {}
        self._accumulated: dict[tuple[int, int], float] = {}
        self._take(jobs)
        self._reckon(jobs, range(len(self._kinds)))

    def admit(self, jobs: JobTable) -> None:
        """Takes note of rows appended to the table; a new kind is reckoned when it appears."""
        self._linear.admit(jobs)
        keys = _keys(jobs, len(self._gpus))
        self._take(jobs)
        self._reckon(jobs, self._kinds.admit(keys))

    def _take(self, jobs: JobTable) -> None:
        """Notes of each job not yet known what it asks for, and its profile."""
        known = len(self._gpus)
        self._gpus.extend(jobs.gpus[known:].tolist())
        names, codes = jobs.model.names, jobs.model.codes[known:].tolist()
        found = {c: self._find(names[c]) if c >= 0 else None for c in dict.fromkeys(codes)}
        self._profile.extend(found[c] for c in codes)
        self.modelled += sum(found[c] is not None for c in codes)

    def _reckon(self, jobs: JobTable, kinds: range) -> None:
        """Notes what does not change of kinds that are new."""
        if not kinds:
            return
        examples = [self._example[kind] for kind in kinds]
        profiles = [self._profile[job] for job in examples]
        self._batch.extend(self._global_batch(j, int(jobs.batch_size[j])) for j in examples)
        self._goodput.extend(self._goodput_of(kind) for kind in kinds)
        gpus = [self._gpus[job] for job in examples]
        self._stages.admit(list(zip(profiles, gpus, strict=True)))
        self._turns.known = self._stages.known
        self._pipelines.admit(jobs, examples, profiles)

    @property
    def kind_of(self) -> Ints:
        """Returns the kind of each job."""
        return self._kinds.of

    def speed(
        self,
        job: int,
        placement: Placement,
        neighbours: Sequence[Neighbour],
        done_s: float = 0.0,
    ) -> float:
        """Returns solo seconds of progress per second."""
        if self._pipelines.graphs[self._kind[job]]:
            alone = self._pipelined(job, placement)
        elif self._profile[job] is None:
            alone = self._linear.alone(job, placement.gpus)
        else:
            alone = self._relative(job, placement, done_s)
        if self._slowdown or placement.fractions or placement.samples or placement.interleave:
            return alone / self._straggling(job, placement, neighbours)
        if not neighbours:
            return alone
        # NOTE: here one ratio decides for all workers, the most frequent case with company.
        profile, worst = self._profile[job], 1.0
        mine = self._micro_batch(job, placement.gpus, placement.accumulation_steps)
        for other, there in neighbours:
            if there.fractions:
                return alone / self._straggling(job, placement, neighbours)
            beside = self._micro_batch(other, there.gpus, there.accumulation_steps)
            ratio = self._interference.ratio(profile, mine, self._profile[other], beside)
            worst = max(worst, ratio)
        return alone / worst

    def phase_end_s(self, job: int, done_s: float) -> float:
        """Returns the progress at which the model's noise scale changes next, or inf."""
        kind = self._goodput[self._kind[job]]
        return NEVER_S if kind is None else goodput.phase_end_s(kind, done_s)

    def best_batches(self, job: int, done_s: float, max_gpus: int) -> BestBatches:
        """Returns the best batches of a job that has come so far; a pipeline keeps its own."""
        if self._pipelines.graphs[self._kind[job]]:
            return self._pipelines.best_batches(self._kind[job], max_gpus)
        kind = self._goodput[self._kind[job]]
        if kind is None:
            return self._linear.best_batches(job, done_s, max_gpus)
        return goodput.best_batches(kind, done_s, max_gpus)

    def scale(self, job: int) -> float:
        """Returns the throughput on the requested GPUs over that on one."""
        if self._pipelines.graphs[self._kind[job]]:
            return 1.0 / self._pipelines.rate(self._kind[job], 1)
        if self._profile[job] is None:
            return float(self._gpus[job])
        return 1.0 / self._relative_to(job, 1, 1)

    def rates(self, max_gpus: int) -> Floats:
        """Returns the speed of each kind on 0 to `max_gpus` GPUs, well placed."""
        return self._rates.upto(max_gpus, len(self._example))

    def accumulated(self, job: int, steps: int) -> float:
        """Returns the speed alone, as requested, with so many accumulation steps."""
        key = (self._kind[job], steps)
        speed = self._accumulated.get(key)
        if speed is None:
            requested = self._gpus[job]
            if self._profile[job] is None or steps == 1:
                speed = 1.0
            else:
                speed = self._relative_to(
                    job, requested, self._well_placed_nodes(job, requested), steps
                )
            self._accumulated[key] = speed
        return speed

    def most_steps(self, job: int) -> int:
        """Returns the most accumulation steps of the job on its requested GPUs."""
        if self._profile[job] is None:
            return 1
        return max(1, int(self._batch[self._kind[job]] / self._gpus[job]))

    def interference(
        self, job: int, steps: int, other: int, other_steps: int
    ) -> tuple[float, float]:
        """Returns the ratios of two jobs on their requested GPUs."""
        key = (self._kind[job], steps, self._kind[other], other_steps)
        found = self._ratios.get(key)
        if found is None:
            a, b = self._load(job, steps), self._load(other, other_steps)
            between = self._interference
            found = a.beside(b, between), b.beside(a, between)
            self._ratios[key] = found
        return found

    def interferences(self, sides: Sequence[Side], others: Sequence[Side]) -> tuple[Floats, Floats]:
        """Returns the ratios of all pairs of jobs on their requested GPUs."""
        mine, theirs = ([self._load(*side) for side in some] for some in (sides, others))
        between = self._interference
        return between.ratios(mine, theirs), between.ratios(theirs, mine).T

    def _load(self, job: int, steps: int) -> Load:
        key = (self._kind[job], steps)
        load = self._loads.get(key)
        if load is None:
            micro_batch = self._micro_batch(job, self._gpus[job], steps)
            load = self._loads[key] = Load(self._profile[job], micro_batch)
        return load

    def footprint_bytes(self, job: int, steps: int) -> float:
        """Returns what the job holds on each of its requested GPUs; 0 if it has no model."""
        return self._held_bytes(job, self._gpus[job], steps)

    def held_bytes(self, job: int, placement: Placement) -> float:
        """Returns what the worker with the most samples holds as placed; 0 if it has no model."""
        most = max(placement.samples, default=0)
        return self._held_bytes(job, placement.gpus, placement.accumulation_steps, most)

    def fits_memory(self, occupants: Sequence[Neighbour], gpu_memory_bytes: float) -> bool:
        """Tells whether the jobs whose footprints are known fit together."""
        held = [self.held_bytes(j, p) for j, p in occupants]
        if len(occupants) > 1 and all(p.interleave is not None for _, p in occupants):
            fixed = (self.fixed_bytes(j) for j, _ in occupants)
            return interleaved_bytes(zip(fixed, held, strict=True)) <= gpu_memory_bytes
        return sum(held) <= gpu_memory_bytes

    @property
    def interleaving(self) -> Interleaving:
        """Returns the stages by kind, and the rule of the cycle."""
        return self._stages.known

    def fixed_bytes(self, job: int) -> float:
        """Returns weights, gradients and optimiser state; 0 if the job has no model."""
        staged = self._pipelines.held_bytes(self._kind[job], self._gpus[job], 1)
        if staged:
            return staged[0]
        profile = self._profile[job]
        return 0.0 if profile is None else profile.memory.value.fixed_bytes

    def utilization(self, job: int) -> float:
        """Returns how busy the job keeps each GPU; what limits and contention go by."""
        return self._gangs.utilization(job, self._gpus[job], 1)

    def workers(
        self, job: int, placement: Placement, neighbours: Sequence[Neighbour]
    ) -> tuple[WorkerTime, ...]:
        """Returns the forward times of the workers as placed."""
        profile, slow = self._profile[job], self._gangs.slow(job, placement, neighbours)
        if self._pipelines.graphs[self._kind[job]]:
            return tuple(WorkerTime(one, 0.0) for one in slow)
        if profile is None:
            return self._linear.workers_at(job, placement, slow)
        return forward_times(profile, placement, slow, self._batch[self._kind[job]])

    def batch(self, job: int) -> int:
        """Returns the samples of an iteration as requested; 0 if nothing says, or stages differ."""
        if self._pipelines.graphs[self._kind[job]]:
            return 0
        if self._profile[job] is None:
            return self._linear.batch(job)
        return round(self._batch[self._kind[job]])

    def _straggling(self, job: int, placement: Placement, neighbours: Sequence[Neighbour]) -> float:
        """Returns the iteration as placed over that of an even job alone and whole."""
        profile, slow = self._profile[job], self._gangs.slow(job, placement, neighbours)
        if not placement.samples or self._pipelines.graphs[self._kind[job]]:
            return max(slow)
        if profile is None:
            return straggling(slow, placement.samples, 0.0)
        gpus, batch = placement.gpus, self._batch[self._kind[job]]
        nodes = self._well_placed_nodes(job, gpus) if self._by_count else placement.nodes
        return split_slowdown(profile, placement, slow, batch=batch, nodes=nodes)

    def graph(self, job: int) -> tuple[PipelineStage, ...]:
        """Returns the graph of the trace, or of the planner if it knows the model; else ()."""
        return self._pipelines.graphs[self._kind[job]]

    def top_speed(self, job: int, gpus: int) -> float:
        """Returns the speed well placed; of a pipeline, the most that its slowest stage allows."""
        if self._pipelines.graphs[self._kind[job]] and not self._by_count:
            return self._pipelines.top_speed(self._kind[job], gpus)
        return self.speed(job, Placement(((0, gpus),)), ())

    def spread_speed(self, job: int) -> float:
        """Returns the speed with each worker, or replica of a stage, on a node of its own."""
        if self._pipelines.graphs[self._kind[job]] and not self._by_count:
            return self._pipelines.spread_speed(self._kind[job])
        if self._profile[job] is None or self._by_count:
            return 1.0
        return self._relative_to(job, self._gpus[job], self._gpus[job])

    def _global_batch(self, job: int, given: int) -> float:
        """Returns the samples of one iteration as requested; 0 where no profile says."""
        profile = self._profile[job]
        if profile is None:
            return 0.0
        requested, batch = self._gpus[job], profile.batch.value
        if given:
            return float(given * requested if batch.per_gpu else given)
        return batch.on_each_of(requested) * requested

    def _micro_batch(self, job: int, gpus: int, steps: int) -> float:
        profile = self._profile[job]
        if profile is None:
            return 1.0
        per_gpu = self._batch[self._kind[job]] / gpus
        return per_gpu / max(steps, fewest_steps(profile, per_gpu))

    def _held_bytes(self, job: int, gpus: int, steps: int, most: int = 0) -> float:
        staged = self._pipelines.held_bytes(self._kind[job], gpus, steps)
        if staged:
            return staged[1]
        profile = self._profile[job]
        if profile is None:
            return 0.0
        per_gpu = self._batch[self._kind[job]] / gpus
        steps = max(steps, fewest_steps(profile, per_gpu))
        per_gpu = most or per_gpu
        return footprint_bytes(profile, gpus=gpus, batch_per_gpu=per_gpu, accumulation_steps=steps)

    def _row(self, kind: int, max_gpus: int) -> Floats:
        job = self._example[kind]
        if self._pipelines.graphs[kind]:
            counts = range(1, max_gpus + 1)
            return np.array([0.0, *(self._pipelines.rate(kind, n) for n in counts)])
        if self._profile[job] is None:
            return np.arange(max_gpus + 1) / self._gpus[job]
        alone = [
            self._relative_to(job, n, self._well_placed_nodes(job, n))
            for n in range(1, max_gpus + 1)
        ]
        return np.array([0.0, *alone])

    def _well_placed_nodes(self, job: int, gpus: int) -> int:
        profile = self._profile[job]
        assert profile is not None
        per_node = profile.gpus_per_node.value if self._by_count else self._per_node
        return ceil(gpus / per_node)

    def _goodput_of(self, kind: int) -> goodput.Kind | None:
        job = self._example[kind]
        profile = self._profile[job]
        if profile is None:
            return None
        per_node = profile.gpus_per_node.value if self._by_count else self._per_node
        return goodput.Kind(profile, self._gpus[job], self._batch[kind], per_node, self._by_count)

    def _pipelined(self, job: int, placement: Placement) -> float:
        """Returns the speed of a pipeline alone; a batch in parts costs what it costs unplaced."""
        kind = self._kind[job]
        if self._by_count:
            alone = self._pipelines.rate(kind, placement.gpus)
        else:
            alone = self._pipelines.speed(kind, placement.spans)
        if placement.accumulation_steps == 1:
            return alone
        return alone * self.accumulated(job, placement.accumulation_steps)

    def _relative(self, job: int, placement: Placement, done_s: float) -> float:
        gpus, steps = placement.gpus, placement.accumulation_steps
        nodes = placement.nodes
        if self._by_count:
            nodes = self._well_placed_nodes(job, gpus)
        if placement.batch_size:
            kind = self._goodput[self._kind[job]]
            assert kind is not None
            return goodput.relative_speed(
                kind, done_s, gpus=gpus, nodes=nodes, batch=placement.batch_size, steps=steps
            )
        if (
            not self._by_count
            and steps == 1
            and gpus == self._gpus[job]
            and nodes == ceil(gpus / self._per_node)
        ):
            return 1.0
        return self._relative_to(job, gpus, nodes, steps)

    def _relative_to(self, job: int, gpus: int, nodes: int, steps: int = 1) -> float:
        profile = self._profile[job]
        assert profile is not None
        batch = self._batch[self._kind[job]]
        return speed_relative(
            profile,
            gpus=gpus,
            nodes_used=nodes,
            requested_gpus=self._gpus[job],
            gpus_per_node=profile.gpus_per_node.value if self._by_count else self._per_node,
            global_batch=batch,
            # One step is no wish: then the profile's own fewest stand.
            accumulation_steps=max(steps, fewest_steps(profile, batch / gpus)) if steps > 1 else 0,
        )


def _keys(jobs: JobTable, first: int) -> Ints:
    """Returns what tells kinds apart, from one job on: model, requested GPUs, batch and graph."""
    rows = slice(first, None)
    labels = jobs.model.codes[rows].astype(np.int64), jobs.graph_code[rows].astype(np.int64)
    return np.stack([labels[0], jobs.gpus[rows], jobs.batch_size[rows], labels[1]])


def _slowdowns(cluster: Cluster) -> list[float]:
    """Returns, per node, its iteration time over that of the first kind; empty if all alike."""
    kinds = [g.gpu_type for g in cluster.groups]
    if len(set(kinds)) < 2:
        return []
    return [time_factor(kinds[0], cluster.group_of(n).gpu_type) for n in range(cluster.nodes)]
