"""Infers the interference ratio as SJF-BSBF does: equation (7) fitted alone and shared (IV.A, 4).

The throughputs of one model alone and beside one neighbour are fitted together: one equation (7)
for both, and the ratio by which the shared iterations are longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.core.errors import InputError
from dovetail.physics.speed.compute import Compute, iteration_s
from dovetail.physics.zoo.profile import FitError
from dovetail.profiling.least_squares import error_of, solve_least_squares

Floats = NDArray[np.float64]

FEWEST_ROWS = 2
OVERLAP_MAX = 11.0


@dataclass(frozen=True, slots=True)
class Throughput:
    """A measured throughput: samples/s of each GPU (eq. 14), for B samples in s micro-batches.

    `comm_s` is what the all-reduce of this placement takes by itself, 0 on one GPU.
    """

    samples_per_s: float
    batch_per_gpu: float
    steps: int = 1
    comm_s: float = 0.0

    def __post_init__(self) -> None:
        if min(self.samples_per_s, self.batch_per_gpu) <= 0 or self.steps < 1 or self.comm_s < 0:
            raise InputError(str(self), "a throughput, its batch and its steps are positive")


@dataclass(frozen=True, slots=True)
class InferredRatio:
    """Equation (7) of a model, its ratio beside a neighbour, and how well both hold."""

    compute: Compute
    overlap: float
    ratio: float
    alone_error: FitError
    shared_error: FitError


def infer_ratio(alone: Sequence[Throughput], shared: Sequence[Throughput]) -> InferredRatio:
    """Returns the ratio, at least 1, that brings one equation (7) nearest to both sets of rows.

    `alone` needs two batch sizes, `shared` one row. The overlap is fitted where an all-reduce was
    timed, else it is 1, which then means nothing. Raises InputError for too few rows.
    """
    if len({row.batch_per_gpu / row.steps for row in alone}) < FEWEST_ROWS or not shared:
        raise InputError("throughputs", "alone needs two batch sizes, shared one row")
    columns = _columns([*alone, *shared])
    is_shared = np.arange(len(alone) + len(shared)) >= len(alone)
    overlaps = bool((columns[2] > 0).any())

    def predicted_s(x: Floats) -> Floats:
        overlap = 1 + float(np.exp(x[3])) if overlaps else 1.0
        compute = Compute(float(np.exp(x[0])), float(np.exp(x[1])))
        batch, steps, comm_s, _ = columns
        seconds = iteration_s(compute, batch=batch, steps=steps, comm_s=comm_s, overlap=overlap)
        return np.asarray(seconds * np.where(is_shared, np.exp(x[2]), 1.0))

    def residuals(x: Floats) -> Floats:
        return np.asarray(np.log(predicted_s(x) / columns[3]))

    slope_s = columns[3][~is_shared].max() / columns[0][~is_shared].max()
    start = [np.log(columns[3].min() / 2), np.log(slope_s), 0.5, 0.0]
    bounds = ([-25, -25, 0, -7], [10, 10, 5, np.log(OVERLAP_MAX - 1)])
    x = solve_least_squares(residuals, [start], bounds)
    best_s, measured_s = predicted_s(x), columns[3]
    return InferredRatio(
        compute=Compute(float(np.exp(x[0])), float(np.exp(x[1]))),
        overlap=1 + float(np.exp(x[3])) if overlaps else 1.0,
        ratio=float(np.exp(x[2])),
        alone_error=error_of(best_s[~is_shared], measured_s[~is_shared]),
        shared_error=error_of(best_s[is_shared], measured_s[is_shared]),
    )


def _columns(rows: Sequence[Throughput]) -> tuple[Floats, Floats, Floats, Floats]:
    """Returns samples, steps, seconds of the all-reduce, and seconds of an iteration."""
    batch = np.array([row.batch_per_gpu for row in rows], float)
    steps = np.array([row.steps for row in rows], float)
    comm_s = np.array([row.comm_s for row in rows], float)
    return batch, steps, comm_s, batch / np.array([row.samples_per_s for row in rows])
