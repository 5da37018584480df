"""A belief with errors: the true physics with seeded errors on the axes of a `Blur`.

A job alone on its requested GPUs has its true speed, as a scheduler has measured it. Every other
(model, GPUs, sharing) has an error, which is always the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dovetail.core.beliefs import (
    BestBatches,
    Interleaving,
    Memory,
    Neighbour,
    Physics,
    Sharing,
    SizedJob,
    Structure,
)
from dovetail.core.growth import Growing
from dovetail.core.job import Floats, Ints, JobTable
from dovetail.core.kinds import Kinds
from dovetail.core.placement import Placement
from dovetail.physics.beliefs.blur import Blur, log_normal, normal, uniform
from dovetail.physics.memory import fit_together
from dovetail.physics.sharing.turns import InterleaveCycles, MemberStages, in_turns, sets_of
from dovetail.physics.speed.rate_tables import RateTables


def believed(truth: Physics, jobs: JobTable, belief: str, seed: int) -> Physics:
    """Returns the physics that policies are shown, from the text that `Blur.parse` reads.

    Raises InputError.
    """
    blur = Blur.parse(belief)
    return truth if blur == Blur() else noisy_physics(truth, jobs, blur, seed)


def noisy_physics(truth: Physics, jobs: JobTable, blur: Blur, seed: int) -> Physics:
    """Returns the truth with the errors of a blur. Batches are requested, so they have none."""
    errors = SpeedErrors(jobs, blur.scaling, seed)
    structure = NoisyStructure(truth.structure, jobs, errors, by_job=blur.stages > 0)
    belief = replace(
        truth,
        speed=NoisySpeed(truth, structure.kinds, errors),
        sharing=NoisySharing(truth, jobs, structure.kinds, blur, seed),
        structure=structure,
    )
    if not blur.memory:
        return belief
    return replace(belief, memory=NoisyMemory(truth.memory, jobs, blur.memory, seed))


class NoisyStructure:
    """The true structure, with kinds as fine as the errors are.

    Errors go by model, so jobs of two models differ even where they are alike in truth. Errors of
    stages go by job, so that no two jobs are alike (Muri, Figure 14).
    """

    def __init__(
        self, truth: Structure, jobs: JobTable, errors: SpeedErrors, *, by_job: bool
    ) -> None:
        self._truth, self._jobs, self._errors, self._by_job = truth, jobs, errors, by_job
        self.kinds = Kinds(self._keys(0))
        self.graph = truth.graph

    def admit(self, jobs: JobTable) -> None:
        """Adds the rows appended to the job table; errors already drawn stay as they are."""
        self._truth.admit(jobs)
        self.kinds.admit(self._keys(len(self.kinds.numbers)))

    @property
    def kind_of(self) -> Ints:
        """Returns the kind of each job: that in truth and its model; its own if stages err."""
        return self.kinds.of

    def scale(self, job: int) -> float:
        """Returns the believed throughput on the requested GPUs over that on one."""
        return self._truth.scale(job) / self._errors.on(job, 1)

    def _keys(self, first: int) -> Ints:
        """Returns the keys of the kinds of jobs, from one job on."""
        every = np.arange(first, len(self._jobs))
        own = every if self._by_job else self._jobs.model.codes[first:].astype(np.int64)
        return np.stack([self._truth.kind_of[first:], own])


class SpeedErrors:
    """Errors of speeds by model and GPUs, drawn once; the requested GPUs have been seen."""

    def __init__(self, jobs: JobTable, sigma: float, seed: int) -> None:
        self._jobs, self._sigma, self._seed = jobs, sigma, seed
        self._factors: dict[tuple[str, int, tuple[str, ...]], float] = {}

    def on(self, job: int, gpus: int) -> float:
        """Returns the error on so many GPUs, well placed."""
        if not self._sigma or gpus == int(self._jobs.gpus[job]):
            return 1.0
        return self._factor(self._jobs.model[job], gpus)

    def spread(self, job: int) -> float:
        """Returns the error on the requested GPUs, each on a node of its own."""
        gpus = int(self._jobs.gpus[job])
        return self._factor(self._jobs.model[job], gpus, ("spread",))

    def _factor(self, model: str, gpus: int, words: tuple[str, ...] = ()) -> float:
        key = (model, gpus, words)
        if key not in self._factors:
            where = f"{self._seed}/{model}/{gpus}/{'+'.join(words)}"
            self._factors[key] = log_normal(self._sigma, where)
        return self._factors[key]


class NoisySpeed:
    """True speeds times their errors."""

    def __init__(self, truth: Physics, kinds: Kinds, errors: SpeedErrors) -> None:
        self._true, self._true_kinds = truth.speed, truth.structure
        self._kinds, self._errors = kinds, errors
        self._rates = RateTables(self._row)

    def whole(self, job: int, placement: Placement, done_s: float = 0.0) -> float:
        """Returns the believed speed as placed."""
        return self._true.whole(job, placement, done_s) * self._errors.on(job, placement.gpus)

    def rates(self, max_gpus: int) -> Floats:
        """Returns the believed speeds by kind."""
        return self._rates.upto(max_gpus, len(self._kinds))

    def best_batches(self, job: int, done_s: float, max_gpus: int) -> BestBatches:
        """Returns the true batches with believed speeds."""
        true = self._true.best_batches(job, done_s, max_gpus)
        factor = [self._errors.on(job, n) for n in range(max_gpus + 1)]
        return true._replace(speed=true.speed * np.array(factor)).sealed()

    def top(self, job: int, gpus: int) -> float:
        """Returns the believed top speed."""
        return self._true.top(job, gpus) * self._errors.on(job, gpus)

    def spread(self, job: int) -> float:
        """Returns the believed speed with each worker on a node of its own."""
        return self._true.spread(job) * self._errors.spread(job)

    def _row(self, kind: int, max_gpus: int) -> Floats:
        job = self._kinds.example[kind]
        true = self._true.rates(max_gpus)[self._true_kinds.kind_of[job]]
        factors = np.array([self._errors.on(job, gpus) for gpus in range(max_gpus + 1)])
        return np.asarray(true * factors)


class NoisySharing:
    """True sharing with errors beside neighbours, and of the stages of interleave sets."""

    def __init__(self, truth: Physics, jobs: JobTable, kinds: Kinds, blur: Blur, seed: int) -> None:
        self._true: Sharing = truth.sharing
        self._true_kinds: Structure = truth.structure
        self._jobs, self._kinds, self._blur, self._seed = jobs, kinds, blur, seed
        # Utilisation is measured by the device, so it has no error.
        self.utilization = truth.sharing.utilization
        known = truth.sharing.interleaving
        self._stage_s = Growing(known.stage_s[:0])
        self._iteration_s = Growing(known.iteration_s[:0])
        self._interleaving: Interleaving | None = None
        self._cycles = InterleaveCycles(known)

    def slowdown(self, job: int, placement: Placement, neighbours: Sequence[Neighbour]) -> float:
        """Returns the believed slowdown."""
        turning, beside = in_turns(placement, neighbours)
        if turning and not beside and self._blur.stages:
            mine = self._turn(job, placement)
            return max(
                self._cycles.slowdown(mine, [self._turn(*one) for one in some])
                for some in sets_of(placement, turning)
            )
        true = self._true.slowdown(job, placement, neighbours)
        if not beside:
            return true
        return true / self._error(job, placement.gpus, [j for j, _ in neighbours])

    def interference(self, mine: SizedJob, other: SizedJob) -> tuple[float, float]:
        """Returns the believed ratios, at least 1; each side errs by itself, as in `slowdown`."""
        one, two = self._true.interference(mine, other)
        return (
            max(1.0, one / self._error(mine.job, self._gpus(mine), [other.job])),
            max(1.0, two / self._error(other.job, self._gpus(other), [mine.job])),
        )

    def interferences(
        self, sides: Sequence[SizedJob], others: Sequence[SizedJob]
    ) -> tuple[Floats, Floats]:
        """Returns the believed ratios of all pairs; errors are drawn pair by pair."""
        pairs = [[self.interference(side, other) for other in others] for side in sides]
        both = np.array(pairs).reshape(len(sides), len(others), 2)
        return both[:, :, 0], both[:, :, 1]

    def set_interference(self, members: Sequence[SizedJob]) -> tuple[float, ...]:
        """Returns the believed ratios of a set, at least 1; each member errs by itself."""
        true, jobs = self._true.set_interference(members), [side.job for side in members]
        errors = (
            self._error(side.job, self._gpus(side), jobs[:place] + jobs[place + 1 :])
            for place, side in enumerate(members)
        )
        return tuple(max(1.0, ratio / error) for ratio, error in zip(true, errors, strict=True))

    def stages(self, job: int, placement: Placement) -> tuple[tuple[float, ...], float]:
        """Returns the true stages as placed with the job's errors, and the true iteration."""
        stage_s, iteration_s = self._true.stages(job, placement)
        kind, true_kind = int(self._kinds.of[job]), int(self._true_kinds.kind_of[job])
        believed, true = self.interleaving.stage_s[kind], self._true.interleaving.stage_s[true_kind]
        errors = np.divide(believed, true, out=np.ones(len(true)), where=true > 0).tolist()
        return tuple(s * e for s, e in zip(stage_s, errors, strict=True)), iteration_s

    @property
    def interleaving(self) -> Interleaving:
        """Returns the believed stages by kind, and the true iterations alone."""
        missing = range(len(self._iteration_s.rows), len(self._kinds))
        if self._interleaving is None or missing:
            self._interleaving = self._with_stages_of(missing)
        return self._interleaving

    def _error(self, job: int, gpus: int, others: Sequence[int]) -> float:
        model = self._jobs.model
        # Sorted, so that the error does not depend on the order of the neighbours.
        partners = "+".join(sorted(model[other] for other in others))
        return log_normal(self._blur.interference, f"{self._seed}/{model[job]}/{gpus}/{partners}")

    def _gpus(self, side: SizedJob) -> int:
        return side.gpus or int(self._jobs.gpus[side.job])

    def _turn(self, job: int, placement: Placement) -> MemberStages:
        assert placement.interleave is not None
        return MemberStages(*self.stages(job, placement), placement.interleave.phase)

    def _with_stages_of(self, kinds: range) -> Interleaving:
        """Returns the stages of every kind, with those of new kinds drawn now."""
        true, examples = self._true.interleaving, [self._kinds.example[kind] for kind in kinds]
        rows = self._true_kinds.kind_of[examples]
        stage_s, iteration_s = true.stage_s[rows], true.iteration_s[rows]
        if self._blur.stages:
            draws = [
                uniform(f"{self._seed}/stages/{self._jobs.job_id[job]}/{r}")
                for job in examples
                for r in range(stage_s.shape[1])
            ]
            off = self._blur.stages * (2 * np.array(draws).reshape(stage_s.shape) - 1)
            stage_s = stage_s * (1 + off)
        stages = self._stage_s.extend(stage_s)
        iterations = self._iteration_s.extend(iteration_s)
        for array in (stages, iterations):
            array.setflags(write=False)
        return true._replace(stage_s=stages, iteration_s=iterations)


class NoisyMemory:
    """True footprints times an error by model, never below the true ones."""

    def __init__(self, truth: Memory, jobs: JobTable, sigma: float, seed: int) -> None:
        self._true, self._jobs, self._sigma, self._seed = truth, jobs, sigma, seed
        self._factors: dict[str, float] = {}

    def footprint_bytes(self, job: int, steps: int) -> float:
        """Returns the believed footprint."""
        return self._true.footprint_bytes(job, steps) * self._factor(job)

    def held_bytes(self, job: int, placement: Placement) -> float:
        """Returns the believed footprint as placed."""
        return self._true.held_bytes(job, placement) * self._factor(job)

    def fixed_bytes(self, job: int) -> float:
        """Returns the believed fixed part."""
        return self._true.fixed_bytes(job) * self._factor(job)

    def fits(self, occupants: Sequence[Neighbour], gpu_memory_bytes: float) -> bool:
        """True if the believed footprints fit; then the true ones do too."""
        return fit_together(self, occupants, gpu_memory_bytes)

    def _factor(self, job: int) -> float:
        model = self._jobs.model[job]
        if model not in self._factors:
            drawn = normal(f"{self._seed}/memory/{model}")
            self._factors[model] = math.exp(self._sigma * abs(drawn))
        return self._factors[model]
