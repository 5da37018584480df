"""How much two jobs on one GPU slow each other: ratios of iteration times (SJF-BSBF eq. 5, 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from dovetail.core.errors import InputError
from dovetail.physics.profile import ModelProfile


class Interference(Protocol):
    """Shared over alone iteration time of one job beside another on the same GPU."""

    def ratio(
        self,
        mine: ModelProfile | None,
        micro_batch: float,
        other: ModelProfile | None,
        other_micro_batch: float,
    ) -> float:
        """Returns the ratio, at least 1, of a model at its micro-batch beside another at its own.

        None stands for a job whose model is not known.
        """
        ...


@dataclass(frozen=True, slots=True)
class Injected:
    """One ratio for every pair: what the sweep of SJF-BSBF Figure 6(b) injects."""

    xi: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.xi < math.inf:
            raise InputError("--interference", "a ratio of iteration times is at least 1")

    def ratio(
        self,
        mine: ModelProfile | None,
        micro_batch: float,
        other: ModelProfile | None,
        other_micro_batch: float,
    ) -> float:
        """Returns the injected ratio."""
        return self.xi
