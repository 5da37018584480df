"""How well a larger batch learns: the gradient noise scale of a model as it trains (Pollux).

A training is measured in steps of its initial batch `m0`. With noise scale `phi` a sample in a
batch `m` is worth `(phi + m0) / (phi + m)` of one in `m0` (Pollux OSDI '21 equation 6), so that a
step of `m` samples counts for `m / m0` times that many steps of `m0`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import overload

from dovetail.core.job import Floats


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The noise scale in the phases of a training, and the batches that may be chosen.

    Phase `k` lasts up to `progress[k]` steps of the initial batch, and the last one for ever.
    A GPU takes micro-batches of `least_per_gpu` to `most_per_gpu` samples.
    """

    initial_batch: int
    max_batch: int
    least_per_gpu: int
    most_per_gpu: int
    progress: tuple[float, ...]
    noise_scale: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.initial_batch <= self.max_batch:
            raise ValueError("batches must grow from 1 or more: initial_batch to max_batch")
        if not 1 <= self.least_per_gpu <= self.most_per_gpu:
            raise ValueError("batches of a GPU must grow from 1 or more")
        if not self.progress or len(self.progress) != len(self.noise_scale):
            raise ValueError("a noise scale is needed for each phase of the progress")
        if self.progress[0] <= 0 or any(a >= b for a, b in pairwise(self.progress)):
            raise ValueError("the phases must end one after the other")
        if min(self.noise_scale) < 0:
            raise ValueError("a noise scale cannot be negative")

    @property
    def steps(self) -> tuple[float, ...]:
        """Returns the steps of the initial batch in each phase."""
        return tuple(b - a for a, b in pairwise((0.0, *self.progress)))

    def gain(self, batch: float, phase: int) -> float:
        """Returns the steps of the initial batch that one step of `batch` is worth."""
        worth = batch / self.initial_batch
        return worth * sample_worth(self.noise_scale[phase], self.initial_batch, batch)

    def iterations(self, batch: float) -> float:
        """Returns the steps of `batch` samples that a whole training takes."""
        return sum(n / self.gain(batch, k) for k, n in enumerate(self.steps))


@overload
def sample_worth(noise_scale: float, reference: float, batch: float) -> float: ...
@overload
def sample_worth(noise_scale: float, reference: float, batch: Floats) -> Floats: ...
def sample_worth(noise_scale: float, reference: float, batch: float | Floats) -> float | Floats:
    """Returns the worth of a sample in `batch` over that of one in `reference`."""
    return (noise_scale + reference) / (noise_scale + batch)
