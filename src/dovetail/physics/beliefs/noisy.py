"""A blurred belief: the true physics with seeded errors on the axes of a `Blur`.

What a scheduler has seen it knows: a job alone on its requested GPUs has its true speed. What it
has not seen of (model, GPUs, sharing) has an error that is always the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dovetail.core.beliefs import BestBatches, Interleaving, Neighbour, Physics, Side, WorkerTime
from dovetail.core.growth import Growing
from dovetail.core.job import Floats, Ints, JobTable, PipelineStage
from dovetail.core.kinds import Kinds
from dovetail.core.placement import Placement
from dovetail.physics.beliefs.blur import Blur, log_normal, normal, uniform
from dovetail.physics.memory import interleaved_bytes
from dovetail.physics.sharing.interleave import Seat, Turns
from dovetail.physics.speed.rate_tables import RateTables


class NoisyPhysics:
    """Believes what another physics says, give or take a blur."""

    def __init__(self, truth: Physics, jobs: JobTable, blur: Blur, seed: int) -> None:
        self._truth, self._jobs, self._blur, self._seed = truth, jobs, blur, seed
        self._rates = RateTables(self._row)
        self._factors: dict[tuple[str, int, tuple[str, ...]], float] = {}
        self._held: dict[str, float] = {}
        self._known = len(jobs)
        self._kinds = Kinds(self._keys(0))
        true = truth.interleaving
        self._stage_s = Growing(true.stage_s[:0])
        self._iteration_s = Growing(true.iteration_s[:0])
        self._interleaving = self._believed_stages(range(len(self._kinds)))
        self._turns = Turns(self._interleaving)

    def admit(self, jobs: JobTable) -> None:
        """Takes note of rows appended to the table; errors already drawn stay as they are."""
        self._truth.admit(jobs)
        first, self._known = self._known, len(jobs)
        new = self._kinds.admit(self._keys(first))
        if new:
            self._interleaving = self._turns.known = self._believed_stages(new)

    def _keys(self, first: int) -> Ints:
        """Returns what tells kinds apart, from one job on.

        Errors go by model, so jobs of two models differ even where the truth takes them for one;
        errors of stages go by job, so that no two jobs are alike (Muri, Figure 14).
        """
        every = np.arange(first, len(self._jobs))
        own = every if self._blur.stages else self._jobs.model.codes[first:].astype(np.int64)
        return np.stack([self._truth.kind_of[first:], own])

    @property
    def kind_of(self) -> Ints:
        """Returns the kind of each job: that in truth and its model; its own if stages err."""
        return self._kinds.of

    def speed(
        self,
        job: int,
        placement: Placement,
        neighbours: Sequence[Neighbour],
        done_s: float = 0.0,
    ) -> float:
        """Returns the believed solo seconds of progress per second."""
        scaling = self._scaling(job, placement.gpus)
        taking_turns = placement.interleave and all(p.interleave for _, p in neighbours)
        if neighbours and taking_turns and self._blur.stages:
            alone = self._truth.speed(job, placement, (), done_s) * scaling
            seats = [self._seat(job, placement), *(self._seat(*n) for n in neighbours)]
            return alone / self._turns.slowdown(int(self._kinds.of[job]), seats)
        true = self._truth.speed(job, placement, neighbours, done_s) * scaling
        if not neighbours or taking_turns:
            return true
        return true * self._beside(job, placement.gpus, [j for j, _ in neighbours])

    def scale(self, job: int) -> float:
        """Returns the believed throughput on the requested GPUs over that on one."""
        return self._truth.scale(job) / self._scaling(job, 1)

    def phase_end_s(self, job: int, done_s: float) -> float:
        """Returns what is true: the noise of gradients is measured while a job trains."""
        return self._truth.phase_end_s(job, done_s)

    def best_batches(self, job: int, done_s: float, max_gpus: int) -> BestBatches:
        """Returns the true batches with believed speeds; the requested GPUs have been seen."""
        true = self._truth.best_batches(job, done_s, max_gpus)
        factor = [self._scaling(job, n) for n in range(max_gpus + 1)]
        return true._replace(speed=true.speed * np.array(factor)).sealed()

    def rates(self, max_gpus: int) -> Floats:
        """Returns the believed speeds by kind; the requested GPUs have been seen."""
        return self._rates.upto(max_gpus, len(self._kinds))

    def accumulated(self, job: int, steps: int) -> float:
        """Returns what is true: a job's own micro-batches are tried out alone."""
        return self._truth.accumulated(job, steps)

    def most_steps(self, job: int) -> int:
        """Returns what is true: the batch is the owner's."""
        return self._truth.most_steps(job)

    def interference(
        self, job: int, steps: int, other: int, other_steps: int
    ) -> tuple[float, float]:
        """Returns the believed ratios, at least 1; each side errs by itself, as in `speed`."""
        gpus = int(self._jobs.gpus[job]), int(self._jobs.gpus[other])
        mine, theirs = self._truth.interference(job, steps, other, other_steps)
        return (
            max(1.0, mine / self._beside(job, gpus[0], [other])),
            max(1.0, theirs / self._beside(other, gpus[1], [job])),
        )

    def interferences(self, sides: Sequence[Side], others: Sequence[Side]) -> tuple[Floats, Floats]:
        """Returns the believed ratios of all pairs; errors are drawn pair by pair."""
        pairs = [[self.interference(*side, *other) for other in others] for side in sides]
        both = np.array(pairs).reshape(len(sides), len(others), 2)
        return both[:, :, 0], both[:, :, 1]

    def footprint_bytes(self, job: int, steps: int) -> float:
        """Returns the believed footprint, never below the true one."""
        return self._truth.footprint_bytes(job, steps) * self._memory(job)

    def held_bytes(self, job: int, placement: Placement) -> float:
        """Returns the believed footprint as placed, never below the true one."""
        return self._truth.held_bytes(job, placement) * self._memory(job)

    def fixed_bytes(self, job: int) -> float:
        """Returns the believed fixed part, never below the true one."""
        return self._truth.fixed_bytes(job) * self._memory(job)

    def fits_memory(self, occupants: Sequence[Neighbour], gpu_memory_bytes: float) -> bool:
        """Tells whether the believed footprints fit; then the true ones do too."""
        if not self._blur.memory:
            return self._truth.fits_memory(occupants, gpu_memory_bytes)
        held = [self.held_bytes(j, p) for j, p in occupants]
        if len(occupants) > 1 and all(p.interleave for _, p in occupants):
            fixed = (self.fixed_bytes(j) for j, _ in occupants)
            return interleaved_bytes(zip(fixed, held, strict=True)) <= gpu_memory_bytes
        return sum(held) <= gpu_memory_bytes

    @property
    def interleaving(self) -> Interleaving:
        """Returns the believed stages by kind, and the true iterations alone."""
        return self._interleaving

    def utilization(self, job: int) -> float:
        """Returns what is true: utilisation is read off the device."""
        return self._truth.utilization(job)

    def workers(
        self, job: int, placement: Placement, neighbours: Sequence[Neighbour]
    ) -> tuple[WorkerTime, ...]:
        """Returns what is true: forward passes are timed while a job trains."""
        return self._truth.workers(job, placement, neighbours)

    def batch(self, job: int) -> int:
        """Returns what is true: the batch is the owner's."""
        return self._truth.batch(job)

    def graph(self, job: int) -> tuple[PipelineStage, ...]:
        """Returns what is true: the graph is the owner's."""
        return self._truth.graph(job)

    def top_speed(self, job: int, gpus: int) -> float:
        """Returns the believed top speed; the requested GPUs have been seen."""
        return self._truth.top_speed(job, gpus) * self._scaling(job, gpus)

    def spread_speed(self, job: int) -> float:
        """Returns the believed speed with each worker on a node of its own."""
        gpus = int(self._jobs.gpus[job])
        spread = self._factor(self._jobs.model.text(job), gpus, ("spread",))
        return self._truth.spread_speed(job) * spread

    def _scaling(self, job: int, gpus: int) -> float:
        """Returns the error of a speed alone; the requested GPUs have been seen."""
        if not self._blur.scaling or gpus == int(self._jobs.gpus[job]):
            return 1.0
        return self._factor(self._jobs.model.text(job), gpus)

    def _factor(self, model: str, gpus: int, words: tuple[str, ...] = ()) -> float:
        """Returns the error of a model on GPUs, well placed or spread out."""
        key = (model, gpus, words)
        if key not in self._factors:
            where = f"{self._seed}/{model}/{gpus}/{'+'.join(words)}"
            self._factors[key] = log_normal(self._blur.scaling, where)
        return self._factors[key]

    def _beside(self, job: int, gpus: int, others: Sequence[int]) -> float:
        text = self._jobs.model.text
        partners = "+".join(sorted(text(other) for other in others))
        return log_normal(self._blur.interference, f"{self._seed}/{text(job)}/{gpus}/{partners}")

    def _memory(self, job: int) -> float:
        if not self._blur.memory:
            return 1.0
        model = self._jobs.model.text(job)
        if model not in self._held:
            drawn = normal(f"{self._seed}/memory/{model}")
            self._held[model] = math.exp(self._blur.memory * abs(drawn))
        return self._held[model]

    def _row(self, kind: int, max_gpus: int) -> Floats:
        job = self._kinds.example[kind]
        true = self._truth.rates(max_gpus)[self._truth.kind_of[job]]
        off = np.array([self._scaling(job, gpus) for gpus in range(max_gpus + 1)])
        return np.asarray(true * off)

    def _seat(self, job: int, placement: Placement) -> Seat:
        assert placement.interleave is not None
        return int(self._kinds.of[job]), placement.interleave.phase

    def _believed_stages(self, kinds: range) -> Interleaving:
        """Returns the stages of every kind, those of the new ones drawn now."""
        true, examples = self._truth.interleaving, [self._kinds.example[kind] for kind in kinds]
        rows = self._truth.kind_of[examples]
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


def believed(truth: Physics, jobs: JobTable, belief: str, seed: int) -> Physics:
    """Returns the physics that policies are shown, by the words of `Blur.parse`.

    Raises InputError.
    """
    blur = Blur.parse(belief)
    return truth if blur == Blur() else NoisyPhysics(truth, jobs, blur, seed)
