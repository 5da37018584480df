"""Iteration times as predicted, beside the measured ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dovetail.physics.zoo.profile import FitError
from dovetail.profiling.least_squares import error_of

Floats = NDArray[np.float64]


class PredictedTimes(NamedTuple):
    """Rows as predicted and as measured, in seconds."""

    predicted_s: Floats
    measured_s: Floats

    @classmethod
    def joined(cls, some: Iterable[PredictedTimes]) -> Self:
        """Returns all rows of several in one."""
        predicted_s, measured_s = zip(*some, strict=True)
        return cls(np.concatenate(predicted_s), np.concatenate(measured_s))

    @property
    def error(self) -> FitError:
        """Returns the relative errors."""
        return error_of(self.predicted_s, self.measured_s)
