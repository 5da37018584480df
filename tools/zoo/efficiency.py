"""Makes the noise scale of a model in a few phases out of the Pollux authors' trainings.

Their files hold, for one training at each of several batches, an estimate of the square and of
the variance of the gradient at the end of every epoch, both for the initial batch `m0`: the noise
scale is `variance / square * m0`. It grows a hundredfold as a model learns, and jumps where the
learning rate drops. Epochs are joined to phases so that the logarithm of the noise scale varies
little inside each; the noise scale of a phase is the one that tells the time of it best over all
batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dovetail.core.errors import InputError
from dovetail.physics.batches.efficiency import Efficiency
from tools.zoo.fit_placements import read_csv

Floats = NDArray[np.float64]

PHASES_MAX = 8
"""Twenty phases in place of eight change the length of no training by over 0.2 %."""
EPOCHS = {
    "bert": 2,
    "cifar10": 100,
    "deepspeech2": 80,
    "imagenet": 90,
    "ncf": 10,
    "yolov3": 50,
}
"""The epochs of a training, as in the authors' simulator (simulator/applications.py)."""
MOST_PER_GPU = {"yolov3": 8}
"""The most samples on a GPU where that simulator allows fewer than were measured."""
LEAST_SQUARE = 1e-30
"""Floor of a measured square: one epoch of one training holds a zero."""


@dataclass(frozen=True)
class Trainings:
    """Trainings of one model: progress by epoch; the rest by batch and epoch."""

    batches: Floats
    progress: Floats
    square: Floats
    variance: Floats
    gain: Floats


def read_trainings(folder: Path, epochs: int) -> Trainings:
    """Returns the first `epochs` of every `validation-<batch>.csv` in a model's folder."""
    found = {int(p.stem.split("-")[1]): read_csv(p) for p in folder.glob("validation-*.csv")}
    if not found:
        raise InputError(str(folder), "has no validation-<batch>.csv")
    batches = sorted(found)
    rows = [found[b][:epochs] for b in batches]
    square, variance, progress = (
        np.array([[float(row[key]) for row in one] for one in rows])
        for key in ("grad_sqr", "grad_var", "progress")
    )
    noise_scale = variance / np.maximum(square, LEAST_SQUARE) * batches[0]
    worth = np.array(batches, dtype=float)[:, None]
    gain = worth / batches[0] * (noise_scale + batches[0]) / (noise_scale + worth)
    return Trainings(worth[:, 0], progress.min(axis=0), square, variance, gain)


def fit_efficiency(trainings: Trainings, per_gpu: tuple[int, int]) -> Efficiency:
    """Returns the phases that fit the trainings of one model; `per_gpu` bounds micro-batches."""
    steps = np.diff(trainings.progress, prepend=0.0)
    first = trainings.batches[0]
    took = steps / trainings.gain
    scales = np.array([_noise_scale(trainings.batches, steps[e] / took[:, e]) for e in _all(steps)])
    ends = _phases(np.log(scales), took[-1], PHASES_MAX)
    noise: list[float] = []
    for begin, end in zip((0, *ends[:-1]), ends, strict=True):
        gain = steps[begin:end].sum() / took[:, begin:end].sum(axis=1)
        noise.append(float(f"{_noise_scale(trainings.batches, gain):.4g}"))
    progress = tuple(round(float(trainings.progress[end - 1]), 1) for end in ends)
    return Efficiency(int(first), int(trainings.batches[-1]), *per_gpu, progress, tuple(noise))


def _all(steps: Floats) -> range:
    return range(len(steps))


def _noise_scale(batches: Floats, gain: Floats) -> float:
    """Returns the noise scale whose gains are nearest those measured, by their logarithms."""
    from scipy.optimize import minimize_scalar

    first = batches[0]

    def misfit(log_scale: float) -> float:
        scale = float(np.exp(log_scale))
        told = batches / first * (scale + first) / (scale + batches)
        return float((np.log(told / gain) ** 2).sum())

    low, high = np.log(first * 1e-2), np.log(batches[-1] * 1e3)
    return float(np.exp(minimize_scalar(misfit, bounds=(low, high), method="bounded").x))


def _phases(level: Floats, weight: Floats, most: int) -> tuple[int, ...]:
    """Returns where the phases end: the cut into at most `most` with the least weighted variance.

    Dynamic programming over the epochs; `weight` is the time of an epoch.
    """
    n = len(level)
    sums = np.stack([np.cumsum(weight * level**k) for k in range(3)])
    sums = np.concatenate([np.zeros((3, 1)), sums], axis=1)

    def misfit(begin: int, end: int) -> float:
        mass, mean, square = sums[:, end] - sums[:, begin]
        return float(square - mean * mean / mass)

    best = [[misfit(0, end) if end else 0.0 for end in range(n + 1)]]
    cut: list[list[int]] = [[0] * (n + 1)]
    for _ in range(min(most, n) - 1):
        row, cuts = [0.0] * (n + 1), [0] * (n + 1)
        for end in range(1, n + 1):
            row[end], cuts[end] = min(
                (best[-1][begin] + (misfit(begin, end) if begin < end else 0.0), begin)
                for begin in range(end + 1)
            )
        best.append(row)
        cut.append(cuts)
    ends = [n]
    for cuts in reversed(cut[1:]):
        ends.append(cuts[ends[-1]])
    return tuple(sorted({end for end in ends if end}))
