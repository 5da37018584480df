"""Columns of generated jobs, before load, deadlines and limits are applied."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dovetail.core.job import Floats, Ints, Labels


@dataclass(frozen=True)
class GeneratedJobs:
    """Columns of generated jobs, sorted by submission; all have the same length."""

    submit_s: Floats
    gpus: Ints
    duration_s: Floats
    end: NDArray[np.int8]
    user: Labels
    queue: Labels
    recurrence: Labels
    duration_max_s: float
    counts: dict[str, int] = field(default_factory=dict)


def numbered(prefix: str, codes: NDArray[np.int64]) -> Labels:
    """Returns labels such as user007 for codes from 0; codes that do not occur get no name."""
    used, inverse = np.unique(codes, return_inverse=True)
    width = len(str(int(used[-1]))) if len(used) else 1
    names = tuple(f"{prefix}{code:0{width}d}" for code in used.tolist())
    return Labels(inverse.astype(np.int32).ravel(), names)


def zipf_weights(n: int, power: float) -> Floats:
    """Returns n weights proportional to rank ** -power, with sum 1."""
    weights = np.arange(1, n + 1, dtype=np.float64) ** -power
    return np.asarray(weights / weights.sum(), dtype=np.float64)
