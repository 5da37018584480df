"""How wrong a belief is, axis by axis: parsed from `--belief`, drawn by hash.

Each axis affects other answers; the lengths of jobs are the forecast's. Every error is a hash of a
seed and of what it is an error of, so it does not depend on the order of the calls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from hashlib import sha256
from statistics import NormalDist

from dovetail.core.errors import InputError, nearest

SIGMA_MAX = 10.0
AXES = ("scaling", "interference", "stages", "memory")


@dataclass(frozen=True, slots=True)
class Blur:
    """The spread of the errors on each axis; 0 is exact.

    `scaling` and `interference`: sigma of a log-normal factor of median 1 on speeds at GPU counts,
    and beside neighbours, that were not measured. `stages`: each stage of each job is off by a
    uniform factor in [1 - N, 1 + N] (Muri, Figure 14). `memory`: sigma of a log-normal
    overestimate of footprints, at least 1.
    """

    scaling: float = 0.0
    interference: float = 0.0
    stages: float = 0.0
    memory: float = 0.0

    def __post_init__(self) -> None:
        for axis in AXES:
            value, most = getattr(self, axis), 1.0 if axis == "stages" else SIGMA_MAX
            if not 0 <= value <= most:
                raise InputError("--belief", f"{axis} must be between 0 and {most:g}, not {value}")

    @staticmethod
    def parse(text: str) -> Blur:
        """Returns the blur of `exact`, `noisy:S` or words such as `scaling:0.2,stages:0.5`.

        `noisy:S` is short for `scaling:S,interference:S`. Raises InputError.
        """
        if text == "exact":
            return Blur()
        spreads: dict[str, float] = {}
        for word in text.split(","):
            name, _, argument = word.partition(":")
            if name != "noisy" and name not in AXES:
                hint = nearest(name, ("exact", "noisy", *AXES))
                raise InputError("--belief", f"unknown '{name}'", hint)
            try:
                value = float(argument)
            except ValueError:
                example = f"as in {name}:0.2"
                raise InputError(f"--belief {name}", "it needs a spread", example) from None
            for axis in AXES[:2] if name == "noisy" else (name,):
                if axis in spreads:
                    raise InputError("--belief", f"{axis} is given twice")
                spreads[axis] = value
        return replace(Blur(), **spreads)


def normal(key: str) -> float:
    """Returns a standard normal number that depends on the key alone."""
    return NormalDist().inv_cdf(uniform(key))


def uniform(key: str) -> float:
    """Returns a number in (0, 1) that depends on the key alone."""
    digest = int.from_bytes(sha256(key.encode()).digest()[:7], "big")
    return (digest + 0.5) / 2**56


def log_normal(sigma: float, key: str) -> float:
    """Returns a factor of median 1 that depends on the key alone; 1 without a spread."""
    return math.exp(sigma * normal(key)) if sigma else 1.0
