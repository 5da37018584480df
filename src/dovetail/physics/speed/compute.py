"""How long an iteration computes, and how long it takes in all (ALGORITHMS section 1.1).

It knows nothing of clusters or jobs: numbers in, seconds out, plain floats or numpy arrays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Number = float | Floats


@dataclass(frozen=True, slots=True)
class Compute:
    """Forward and backward pass of one micro-batch: `t_comp(B) = a + b*B` (3)."""

    a_s: float
    b_s_per_sample: float

    def __post_init__(self) -> None:
        if not (self.a_s >= 0 and self.b_s_per_sample >= 0 and math.isfinite(self.a_s)):
            raise ValueError(f"compute parameters must be finite and not negative: {self}")

    def time_s(self, batch: float) -> float:
        """Returns the seconds one GPU computes on `batch` samples."""
        return self.a_s + self.b_s_per_sample * batch

    def scaled(self, factor: float) -> Compute:
        """Returns the same work on a device that takes `factor` times as long."""
        return Compute(self.a_s * factor, self.b_s_per_sample * factor)


@overload
def overlapped_s(compute_s: float, comm_s: float, overlap: float) -> float: ...
@overload
def overlapped_s(compute_s: Number, comm_s: Number, overlap: float) -> Number: ...
def overlapped_s(compute_s: Number, comm_s: Number, overlap: float) -> Number:
    """Returns `(compute^d + comm^d)^(1/d)`: d = 1 is no overlap, d = inf the longer of both.

    The larger term is taken out first, so that large d neither overflow nor underflow.
    """
    if overlap < 1:
        raise ValueError(f"the overlap exponent must be at least 1, not {overlap}")
    if isinstance(compute_s, np.ndarray) or isinstance(comm_s, np.ndarray):
        longer, shorter = np.maximum(compute_s, comm_s), np.minimum(compute_s, comm_s)
        ratio = np.divide(shorter, longer, out=np.zeros(np.shape(longer)), where=longer > 0)
        tail = np.zeros_like(ratio) if math.isinf(overlap) else ratio**overlap
        return np.asarray(longer * (1 + tail) ** (1 / overlap), dtype=np.float64)
    longer_s, shorter_s = max(compute_s, comm_s), min(compute_s, comm_s)
    if shorter_s <= 0 or math.isinf(overlap):
        return longer_s
    return float(longer_s * (1 + (shorter_s / longer_s) ** overlap) ** (1 / overlap))


@overload
def iteration_s(
    compute: Compute, *, batch: float, steps: float, comm_s: float, overlap: float
) -> float: ...
@overload
def iteration_s(
    compute: Compute, *, batch: Number, steps: Number, comm_s: Number, overlap: float
) -> Number: ...
def iteration_s(
    compute: Compute, *, batch: Number, steps: Number, comm_s: Number, overlap: float
) -> Number:
    """Returns equation (7): `(s-1)*t_comp(B/s) + (t_comp(B/s)^d + t_comm^d)^(1/d)`.

    `batch` is per GPU and `steps` the accumulation steps; only the last micro-batch overlaps
    the all-reduce.
    """
    micro_s = compute.a_s + compute.b_s_per_sample * (batch / steps)
    return (steps - 1) * micro_s + overlapped_s(micro_s, comm_s, overlap)
