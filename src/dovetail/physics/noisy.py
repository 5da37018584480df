"""A blurred belief: the true physics with seeded errors in the speeds of unmeasured settings.

What a scheduler has seen it knows: a job alone on its requested GPUs has its true speed. Every
other setting of (model, GPUs, sharing) gets one log-normal factor of median 1, always the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import sha256
from statistics import NormalDist

import numpy as np

from dovetail.core.beliefs import BestBatches, Interleaving, Neighbour, Physics, WorkerTime
from dovetail.core.errors import InputError, nearest
from dovetail.core.job import Floats, Ints, JobTable, PipelineStage
from dovetail.core.placement import Placement


class NoisyPhysics:
    """Believes what another physics says, give or take `sigma` in the logarithm."""

    def __init__(self, truth: Physics, jobs: JobTable, sigma: float, seed: int) -> None:
        if not 0 <= sigma <= 10:
            raise InputError("--belief", f"sigma must be between 0 and 10, not {sigma}")
        self._truth, self._jobs, self._sigma, self._seed = truth, jobs, sigma, seed
        self._rates: dict[int, Floats] = {}
        # Errors go by model, so jobs of two models differ even where the truth takes them for one.
        seen = np.column_stack([truth.kind_of, jobs.model.codes])
        _, example, kind_of = np.unique(seen, axis=0, return_index=True, return_inverse=True)
        self._example: list[int] = example.tolist()
        self._kind_of = kind_of.reshape(-1).astype(np.int64)

    @property
    def kind_of(self) -> Ints:
        """Returns the kind of each job: what it is in truth, and its model."""
        return self._kind_of

    def speed(
        self,
        job: int,
        placement: Placement,
        neighbours: Sequence[Neighbour],
        done_s: float = 0.0,
    ) -> float:
        """Returns the believed solo seconds of progress per second."""
        true = self._truth.speed(job, placement, neighbours, done_s)
        if not neighbours and placement.gpus == int(self._jobs.gpus[job]):
            return true
        partners = sorted(self._jobs.model.text(j) for j, _ in neighbours)
        return true * self._factor(self._jobs.model.text(job), placement.gpus, partners)

    def scale(self, job: int) -> float:
        """Returns the believed throughput on the requested GPUs over that on one."""
        return self._truth.scale(job) * self._factor(self._jobs.model.text(job), 1, [])

    def phase_end_s(self, job: int, done_s: float) -> float:
        """Returns what is true: the noise of gradients is measured while a job trains."""
        return self._truth.phase_end_s(job, done_s)

    def best_batches(self, job: int, done_s: float, max_gpus: int) -> BestBatches:
        """Returns the true batches with believed speeds; the requested GPUs have been seen."""
        true = self._truth.best_batches(job, done_s, max_gpus)
        model, requested = self._jobs.model.text(job), int(self._jobs.gpus[job])
        factor = [
            1.0 if n == requested else self._factor(model, n, []) for n in range(max_gpus + 1)
        ]
        return true._replace(speed=true.speed * np.array(factor)).sealed()

    def rates(self, max_gpus: int) -> Floats:
        """Returns the believed speeds by kind; the requested GPUs have been seen."""
        if max_gpus not in self._rates:
            believed = self._truth.rates(max_gpus)[self._truth.kind_of[self._example]]
            for kind, job in enumerate(self._example):
                model, requested = self._jobs.model.text(job), int(self._jobs.gpus[job])
                for gpus in range(1, max_gpus + 1):
                    if gpus != requested:
                        believed[kind, gpus] *= self._factor(model, gpus, [])
            believed.setflags(write=False)
            self._rates[max_gpus] = believed
        return self._rates[max_gpus]

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
        models = self._jobs.model.text(job), self._jobs.model.text(other)
        gpus = int(self._jobs.gpus[job]), int(self._jobs.gpus[other])
        mine, theirs = self._truth.interference(job, steps, other, other_steps)
        return (
            max(1.0, mine / self._factor(models[0], gpus[0], [models[1]])),
            max(1.0, theirs / self._factor(models[1], gpus[1], [models[0]])),
        )

    def footprint_bytes(self, job: int, steps: int) -> float:
        """Returns what is true: memory is measured in the first dry run."""
        return self._truth.footprint_bytes(job, steps)

    def fits_memory(self, occupants: Sequence[Neighbour], gpu_memory_bytes: float) -> bool:
        """Tells what is true: memory is measured in the first dry run."""
        return self._truth.fits_memory(occupants, gpu_memory_bytes)

    def fixed_bytes(self, job: int) -> float:
        """Returns what is true: memory is measured in the first dry run."""
        return self._truth.fixed_bytes(job)

    @property
    def interleaving(self) -> Interleaving:
        """Returns the true stages."""
        true = self._truth.interleaving
        rows = self._truth.kind_of[self._example]
        return true._replace(stage_s=true.stage_s[rows], iteration_s=true.iteration_s[rows])

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

    def spread_speed(self, job: int) -> float:
        """Returns the believed speed with each worker on a node of its own."""
        gpus = int(self._jobs.gpus[job])
        return self._truth.spread_speed(job) * self._factor(
            self._jobs.model.text(job), gpus, ["spread"]
        )

    def _factor(self, model: str, gpus: int, partners: Sequence[str]) -> float:
        return math.exp(self._sigma * _normal(f"{self._seed}/{model}/{gpus}/{'+'.join(partners)}"))


def _normal(key: str) -> float:
    """Returns a standard normal number that depends on the key alone."""
    digest = int.from_bytes(sha256(key.encode()).digest()[:7], "big")
    return NormalDist().inv_cdf((digest + 0.5) / 2**56)


def believed(truth: Physics, jobs: JobTable, belief: str, seed: int) -> Physics:
    """Returns the physics that policies are shown for `exact` or `noisy:SIGMA`.

    Raises InputError.
    """
    name, _, argument = belief.partition(":")
    if name == "exact":
        return truth
    if name == "noisy":
        try:
            sigma = float(argument)
        except ValueError:
            raise InputError("--belief noisy", "it wants a spread", "as in noisy:0.2") from None
        return NoisyPhysics(truth, jobs, sigma, seed)
    raise InputError("--belief", f"unknown '{name}'", nearest(name, ("exact", "noisy")))
